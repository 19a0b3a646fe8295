#include "pjrt/program_text.h"

#include <algorithm>

namespace tpj::pjrt {
namespace {

constexpr auto kEnd = std::string_view::npos;

bool is_space(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }
bool is_word(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '$';
}

size_t skip_space(std::string_view s, size_t i) {
  while (i < s.size() && is_space(s[i])) ++i;
  return i;
}

// "stablehlo.all_reduce" or "vhlo.all_reduce_v1" -> "all_reduce"
std::string_view base_name(std::string_view op) {
  if (const size_t dot = op.find('.'); dot != kEnd) op.remove_prefix(dot + 1);
  const size_t v = op.rfind("_v");
  if (v != kEnd && v + 2 < op.size() && op.find_first_not_of("0123456789", v + 2) == kEnd) op = op.substr(0, v);
  return op;
}

}  // namespace

std::string_view trim(std::string_view s) {
  while (!s.empty() && is_space(s.front())) s.remove_prefix(1);
  while (!s.empty() && is_space(s.back())) s.remove_suffix(1);
  return s;
}

size_t find_outside_brackets(std::string_view s, size_t from, std::string_view stops) {
  int depth = 0;
  for (size_t i = from; i < s.size(); ++i) {
    const char c = s[i];
    if (c == '-' && i + 1 < s.size() && s[i + 1] == '>') {
      if (depth == 0 && stops.find('-') != kEnd) return i;
      ++i;
      continue;
    }
    if (depth == 0 && stops.find(c) != kEnd) return i;
    if (c == '(' || c == '[' || c == '{' || c == '<') ++depth;
    if (c == ')' || c == ']' || c == '}' || c == '>')
      if (--depth < 0) return kEnd;
  }
  return kEnd;
}

size_t find_word(std::string_view s, std::string_view word, size_t from) {
  for (size_t i = s.find(word, from); i != kEnd; i = s.find(word, i + 1)) {
    const bool starts = i == 0 || !is_word(s[i - 1]);
    const bool ends = i + word.size() == s.size() || !is_word(s[i + word.size()]);
    if (starts && ends) return i;
  }
  return kEnd;
}

std::vector<std::string_view> split(std::string_view s) {
  std::vector<std::string_view> parts;
  if (trim(s).empty()) return parts;
  for (size_t from = 0;;) {
    const size_t comma = find_outside_brackets(s, from, ",");
    parts.push_back(trim(s.substr(from, comma == kEnd ? kEnd : comma - from)));
    if (comma == kEnd) return parts;
    from = comma + 1;
  }
}

ProgramText::ProgramText(std::string_view text) : text_(text), blanked_(text) {
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '"') {
      const size_t begin = i + 1;
      for (i = begin; i < text.size() && text[i] != '"'; ++i) {
        blanked_[i] = ' ';
        if (text[i] == '\\' && i + 1 < text.size()) blanked_[++i] = ' ';
      }
      strings_.push_back({begin, std::min(i, text.size())});
    } else if (text[i] == '/' && i + 1 < text.size() && text[i + 1] == '/') {
      for (; i < text.size() && text[i] != '\n'; ++i) blanked_[i] = ' ';
    }
  }
}

std::string_view ProgramText::original(std::string_view part) const {
  return text_.substr(static_cast<size_t>(part.data() - blanked_.data()), part.size());
}

std::optional<OpText> ProgramText::read_op(std::string_view name, size_t after_name) const {
  const std::string_view s = blanked_;
  // An attribute named like an operation has no signature of its own: it ends at a comma, a bracket or an equals sign.
  const size_t colon = find_outside_brackets(s, after_name, ":,=");
  if (colon == kEnd || s[colon] != ':') return std::nullopt;
  OpText op{.name = name, .body = s.substr(after_name, colon - after_name), .operands = {}, .results = {}};
  const size_t open = skip_space(s, colon + 1);
  if (open >= s.size() || s[open] != '(') return op;
  const size_t close = find_outside_brackets(s, open + 1, ")");
  if (close == kEnd) return std::nullopt;
  const size_t arrow = skip_space(s, close + 1);
  if (s.substr(arrow, 2) != "->") return op;
  op.operands = s.substr(open + 1, close - open - 1);
  size_t begin = skip_space(s, arrow + 2);
  if (begin < s.size() && s[begin] == '(') {
    const size_t end = find_outside_brackets(s, begin + 1, ")");
    if (end == kEnd) return std::nullopt;
    op.results = s.substr(begin + 1, end - begin - 1);
    return op;
  }
  // A single type: identifier characters, then at most one bracketed part.
  size_t end = begin;
  while (end < s.size() && (is_word(s[end]) || s[end] == '.' || s[end] == '!')) ++end;
  if (end < s.size() && s[end] == '<') {
    const size_t closing = find_outside_brackets(s, end + 1, ">");
    if (closing == kEnd) return std::nullopt;
    end = closing + 1;
  }
  op.results = s.substr(begin, end - begin);
  return op;
}

std::vector<OpText> ProgramText::find_ops(const std::vector<std::string_view>& names) const {
  std::vector<OpText> found;
  const auto wanted = [&](std::string_view name) { return std::find(names.begin(), names.end(), name) != names.end(); };
  for (const Quoted& q : strings_) {
    const std::string_view name = base_name(text_.substr(q.begin, q.end - q.begin));
    if (!wanted(name)) continue;
    const size_t open = skip_space(blanked_, q.end + 1);
    if (open >= blanked_.size() || blanked_[open] != '(') continue;  // a string that is no operation
    if (auto op = read_op(name, open)) found.push_back(*op);
  }
  for (const std::string_view name : names) {
    for (size_t i = find_word(blanked_, name, 0); i != kEnd; i = find_word(blanked_, name, i + 1)) {
      if (i == 0 || blanked_[i - 1] != '.') continue;
      if (auto op = read_op(name, i + name.size())) found.push_back(*op);
    }
  }
  return found;
}

std::string_view ProgramText::resolve_alias(std::string_view value) const {
  value = trim(value);
  if (!value.starts_with('#')) return value;
  size_t end = 1;
  while (end < value.size() && is_word(value[end])) ++end;
  if (end < value.size() && (value[end] == '.' || value[end] == '<')) return value;  // an attribute of a dialect
  const std::string_view alias = value.substr(0, end);
  const std::string_view s = blanked_;
  for (size_t i = s.find(alias); i != kEnd; i = s.find(alias, i + 1)) {
    size_t equals = i + alias.size();
    if (equals < s.size() && is_word(s[equals])) continue;
    equals = skip_space(s, equals);
    if (equals >= s.size() || s[equals] != '=') continue;
    const size_t begin = skip_space(s, equals + 1);
    const size_t stop = find_outside_brackets(s, begin, "\n");
    return s.substr(begin, stop == kEnd ? kEnd : stop - begin);
  }
  return value;
}

std::optional<std::string_view> ProgramText::attribute(std::string_view part, std::string_view key) const {
  for (size_t i = find_word(part, key, 0); i != kEnd; i = find_word(part, key, i + 1)) {
    const size_t equals = skip_space(part, i + key.size());
    if (equals >= part.size() || part[equals] != '=') continue;
    size_t begin = skip_space(part, equals + 1);
    // Up to a comma of this level, or the bracket that closes it.
    size_t end = begin;
    for (int depth = 0; end < part.size(); ++end) {
      const char c = part[end];
      if (depth == 0 && c == ',') break;
      if (c == '-' && end + 1 < part.size() && part[end + 1] == '>') {
        ++end;
        continue;
      }
      if (c == '(' || c == '[' || c == '{' || c == '<') ++depth;
      if ((c == ')' || c == ']' || c == '}' || c == '>') && --depth < 0) break;
    }
    return resolve_alias(part.substr(begin, end - begin));
  }
  return std::nullopt;
}

}  // namespace tpj::pjrt
