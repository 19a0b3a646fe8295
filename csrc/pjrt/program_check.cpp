#include "pjrt/program_check.h"

#include <cstdint>
#include <cstring>

#include "base/errors.h"
#include "pjrt/program_text.h"

namespace tpj::pjrt {
namespace {

constexpr auto kEnd = std::string_view::npos;

template <typename... Args>
[[noreturn]] void refuse(const Args&... args) {
  fail(ErrorKind::kValue, "[Client::compile] ", args...);
}

std::string without_spaces(std::string_view s) {
  std::string out;
  for (const char c : s)
    if (c != ' ' && c != '\n' && c != '\t' && c != '\r') out += c;
  return out;
}

// All integers in `s`, which holds nothing but a list of them.
std::vector<int64_t> integers(std::string_view s) {
  std::vector<int64_t> out;
  for (size_t i = 0; i < s.size();) {
    if (s[i] < '0' || s[i] > '9') {
      ++i;
      continue;
    }
    const bool negative = i > 0 && s[i - 1] == '-';
    int64_t value = 0;
    for (; i < s.size() && s[i] >= '0' && s[i] <= '9'; ++i)
      if (__builtin_mul_overflow(value, 10, &value) || __builtin_add_overflow(value, s[i] - '0', &value))
        value = INT64_MAX;
    out.push_back(negative ? -value : value);
  }
  return out;
}

// Parsers recurse: deep nesting ends in a stack overflow, on a thread with a small stack sooner than in main.
void check_nesting(std::string_view blanked) {
  constexpr int kDeepest = 500;
  int depth = 0;
  for (size_t i = 0; i < blanked.size(); ++i) {
    const char c = blanked[i];
    if (c == '-' && i + 1 < blanked.size() && blanked[i + 1] == '>')
      ++i;  // an arrow
    else if (c == '(' || c == '[' || c == '{' || c == '<')
      ++depth;
    else if (c == ')' || c == ']' || c == '}' || c == '>')
      --depth;
    if (depth > kDeepest) refuse("the program nests brackets more than ", kDeepest, " deep");
  }
}

// Parsers make a table as long as the largest result number (%a#7) or convolution dimension that they read.
void check_indices(std::string_view blanked) {
  constexpr int64_t kMostResults = 1 << 20, kMostDimensions = 1 << 10;
  const auto number_at = [&](size_t i) {
    const size_t end = blanked.find_first_not_of("0123456789", i);
    const std::vector<int64_t> value = integers(blanked.substr(i, end == kEnd ? kEnd : end - i));
    return value.empty() ? -1 : value[0];
  };
  for (size_t i = blanked.find('#'); i != kEnd; i = blanked.find('#', i + 1))
    if (const int64_t n = number_at(i + 1); n > kMostResults) refuse("result number #", n, " is too large");
  for (size_t i = find_word(blanked, "dim_numbers", 0); i != kEnd; i = find_word(blanked, "dim_numbers", i + 1)) {
    const size_t end = find_outside_brackets(blanked, i, ",:{})");
    for (const int64_t n : integers(blanked.substr(i, end == kEnd ? kEnd : end - i)))
      if (n > kMostDimensions) refuse("convolution dimension ", n, " is too large");
  }
}

// Little-endian 64-bit integers written as "0x...".
std::vector<int64_t> hex_integers(std::string_view s) {
  std::vector<int64_t> out;
  const auto digit = [](char c) { return c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10; };
  for (size_t i = s.starts_with("0x") ? 2 : 0; i + 16 <= s.size(); i += 16) {
    uint64_t value = 0;
    for (size_t byte = 0; byte < 8; ++byte)
      value |= static_cast<uint64_t>(digit(s[i + 2 * byte]) * 16 + digit(s[i + 2 * byte + 1])) << (8 * byte);
    out.push_back(static_cast<int64_t>(value));
  }
  return out;
}

// Bounds of the dimensions, "?" for none: from `#stablehlo.bounds<16, ?>` or `#stablehlo.type_extensions<bounds = [16,
// ?]>`.
std::vector<std::string_view> bounds_of(const ProgramText& program, std::string_view encoding) {
  encoding = program.resolve_alias(encoding);
  const size_t word = find_word(encoding, "bounds", 0);
  if (word == kEnd) return {};
  const size_t open = encoding.find_first_of("<[", word);
  if (open == kEnd) return {};
  const size_t close = encoding.find_first_of(">]", open);
  return split(encoding.substr(open + 1, close == kEnd ? kEnd : close - open - 1));
}

struct TensorText {
  std::vector<int64_t> dims;  // upper bounds where dynamic
  std::string element;
};

// `inside` is what stands between tensor< and >. Refuses what no plugin may see.
TensorText read_tensor(const ProgramText& program, std::string_view inside) {
  TensorText out;
  const std::vector<std::string_view> parts = split(inside);
  if (parts.empty()) return out;
  const std::string type = without_spaces(parts[0]);
  std::vector<std::string_view> bounds;
  if (parts.size() > 1) bounds = bounds_of(program, parts[1]);

  int64_t bytes = 16;  // the widest element
  size_t i = 0;
  while (i < type.size()) {
    size_t x = i;
    while (x < type.size() && ((type[x] >= '0' && type[x] <= '9') || type[x] == '?')) ++x;
    if (x == i || x >= type.size() || type[x] != 'x') break;  // the element type
    const size_t dim = out.dims.size();
    std::string_view size = std::string_view(type).substr(i, x - i);
    if (size == "?") {
      if (dim >= bounds.size() || bounds[dim] == "?")
        refuse("tensor<", inside, ">: dimension ", dim, " is dynamic and has no bound");
      size = bounds[dim];
    }
    const std::vector<int64_t> value = integers(size);
    out.dims.push_back(value.empty() ? 0 : value[0]);
    if (out.dims.back() != 0 && __builtin_mul_overflow(bytes, out.dims.back(), &bytes))
      refuse("tensor<", inside, "> has more elements than can be counted");
    i = x + 1;
  }
  out.element = type.substr(i);
  return out;
}

void check_tensors(const ProgramText& program) {
  const std::string_view s = program.blanked();
  static constexpr std::string_view kTensor = "tensor";
  for (size_t i = find_word(s, kTensor, 0); i != kEnd; i = find_word(s, kTensor, i + 1)) {
    const size_t open = i + kTensor.size();
    if (open >= s.size() || s[open] != '<') continue;
    const size_t close = find_outside_brackets(s, open + 1, ">");
    if (close != kEnd) read_tensor(program, s.substr(open + 1, close - open - 1));
  }
}

// The participants that a collective names.
std::vector<int64_t> participants(const ProgramText& program, std::string_view value) {
  static constexpr std::string_view kDense = "dense<";
  if (!value.starts_with(kDense)) return {};  // another spelling of groups: the plugin's business
  const size_t close = value.find('>', kDense.size());
  const std::string_view list = trim(value.substr(kDense.size(), close == kEnd ? kEnd : close - kDense.size()));
  if (!list.starts_with('"')) return integers(list);
  const std::string_view quoted = program.original(list);
  return hex_integers(quoted.substr(1, quoted.size() - 2));
}

void check_collective(const ProgramText& program, const OpText& op, const CompileOptions& options) {
  // A channel number of 0 means none.
  bool channel = false;
  for (const char* key : {"channel_handle", "channel_id"})
    if (const auto value = program.attribute(op.body, key)) {
      const std::vector<int64_t> numbers = integers(*value);
      channel = !numbers.empty() && numbers[0] > 0;
    }
  const bool global = find_word(op.body, "use_global_device_ids", 0) != kEnd;
  const bool reduces = op.name == "all_reduce" || op.name == "all_gather" || op.name == "reduce_scatter";
  int64_t limit = options.num_replicas;
  const char* who = "replicas";
  if (reduces && channel && global) {
    limit = options.num_devices();
    who = "replicas x partitions";
  } else if (!reduces && channel) {
    limit = options.num_partitions;
    who = "partitions";
  }
  for (const char* key : {"replica_groups", "source_target_pairs"}) {
    const auto value = program.attribute(op.body, key);
    if (!value) continue;
    for (const int64_t id : participants(program, *value))
      if (id >= limit || id < -1)  // -1 pads groups of unequal size
        refuse(op.name, ": ", key, " names participant ", id, ", but the compile options have ", limit, " ", who);
  }
}

std::string_view target_of(const ProgramText& program, const OpText& op) {
  if (const auto value = program.attribute(op.body, "call_target_name")) {
    const std::string_view quoted = trim(program.original(*value));
    return quoted.size() >= 2 ? quoted.substr(1, quoted.size() - 2) : quoted;
  }
  const std::string_view body = trim(op.body);
  if (!body.starts_with('@')) return {};
  std::string_view name = program.original(body).substr(1);
  if (name.starts_with('"')) {
    name.remove_prefix(1);
    return name.substr(0, name.find('"'));
  }
  return trim(name.substr(0, name.find('(')));
}

// The types in "tensor<4x16xf32>, tensor<i32>".
std::vector<TensorText> read_types(const ProgramText& program, std::string_view list) {
  std::vector<TensorText> out;
  for (const std::string_view type : split(list)) {
    static constexpr std::string_view kTensor = "tensor<";
    const bool tensor = type.starts_with(kTensor) && type.ends_with('>');
    out.push_back(tensor ? read_tensor(program, type.substr(kTensor.size(), type.size() - kTensor.size() - 1))
                         : TensorText{});
  }
  return out;
}

// Plugins take the sizes on trust: a wrong one aborts, or writes past the end of a buffer when it runs.
void check_top_k(const ProgramText& program, const OpText& op) {
  std::string_view results = trim(op.results);
  static constexpr std::string_view kTuple = "tuple<";
  if (results.starts_with(kTuple)) results = results.substr(kTuple.size(), results.size() - kTuple.size() - 1);
  const std::vector<TensorText> in = read_types(program, op.operands);
  const std::vector<TensorText> out = read_types(program, results);
  if (in.size() != 1 || out.size() != 2)
    refuse("custom call TopK takes 1 operand and gives 2 results, got ", in.size(), " and ", out.size());
  const std::vector<int64_t>& dims = in[0].dims;
  const bool rank = (dims.size() == 1 || dims.size() == 2) && out[0].dims.size() == dims.size();
  const bool values = rank && out[0].element == in[0].element && out[0].dims.back() <= dims.back() &&
                      (dims.size() == 1 || out[0].dims[0] == dims[0]);
  if (!values || out[1].element != "i32" || out[1].dims != out[0].dims)
    refuse(
        "custom call TopK takes a tensor<BxNxT> or tensor<NxT> and gives tensor<BxKxT> and tensor<BxKxi32> with K <= "
        "N, got (",
        trim(op.operands), ") -> (", results, ")");
}

void check_custom_call(const ProgramText& program, const OpText& op) {
  const std::string_view target = target_of(program, op);
  if (target == "TopK") check_top_k(program, op);
  if (target == "PartialReduce") {
    const auto called = program.attribute(op.body, "called_computations");
    if (!called || called->find('@') == kEnd) refuse("custom call PartialReduce needs called_computations");
  }
}

}  // namespace

void validate_program(std::string_view text, const CompileOptions& options) {
  if (trim(text).empty()) refuse("the program is empty");
  if (text.starts_with("ML\xefR")) refuse("the program is MLIR bytecode: StableHLO text is wanted");
  const ProgramText program(text);
  check_nesting(program.blanked());
  check_indices(program.blanked());
  check_tensors(program);
  for (const OpText& op : program.find_ops(
           {"all_reduce", "all_gather", "reduce_scatter", "all_to_all", "collective_permute", "collective_broadcast"}))
    check_collective(program, op, options);
  for (const OpText& op : program.find_ops({"custom_call"})) check_custom_call(program, op);
  if (options.shardy && options.num_partitions > 1 && find_word(program.blanked(), "mhlo.sharding", 0) != kEnd)
    refuse("the program has mhlo.sharding annotations, but the options ask for shardy, which reads sdy.sharding");
}

}  // namespace tpj::pjrt
