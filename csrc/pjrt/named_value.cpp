#include "pjrt/named_value.h"

#include "base/errors.h"

namespace tpj::pjrt {
namespace {

struct Fill {
  PJRT_NamedValue& out;

  void operator()(const std::string& v) {
    out.type = PJRT_NamedValue_kString;
    out.string_value = v.data();
    out.value_size = v.size();
  }
  void operator()(int64_t v) {
    out.type = PJRT_NamedValue_kInt64;
    out.int64_value = v;
  }
  void operator()(double v) {
    out.type = PJRT_NamedValue_kFloat;
    out.float_value = static_cast<float>(v);
  }
  void operator()(bool v) {
    out.type = PJRT_NamedValue_kBool;
    out.bool_value = v;
  }
  void operator()(const std::vector<int64_t>& v) {
    out.type = PJRT_NamedValue_kInt64List;
    out.int64_array_value = v.data();
    out.value_size = v.size();
  }
};

}  // namespace

std::vector<PJRT_NamedValue> to_named_values(const Options& options) {
  std::vector<PJRT_NamedValue> out;
  out.reserve(options.size());
  for (const auto& [name, value] : options) {
    PJRT_NamedValue v{};
    v.struct_size = PJRT_NamedValue_STRUCT_SIZE;
    v.name = name.data();
    v.name_size = name.size();
    v.value_size = 1;
    std::visit(Fill{v}, value);
    out.push_back(v);
  }
  return out;
}

Attributes from_named_values(const PJRT_NamedValue* values, size_t n) {
  Attributes out;
  for (size_t i = 0; i < n; ++i) {
    const PJRT_NamedValue& v = values[i];
    std::string name(v.name, v.name_size);
    switch (v.type) {
      case PJRT_NamedValue_kString:
        out.emplace(std::move(name), std::string(v.string_value, v.value_size));
        break;
      case PJRT_NamedValue_kInt64:
        out.emplace(std::move(name), v.int64_value);
        break;
      case PJRT_NamedValue_kInt64List:
        out.emplace(std::move(name), std::vector<int64_t>(v.int64_array_value, v.int64_array_value + v.value_size));
        break;
      case PJRT_NamedValue_kFloat:
        out.emplace(std::move(name), static_cast<double>(v.float_value));
        break;
      case PJRT_NamedValue_kBool:
        out.emplace(std::move(name), v.bool_value);
        break;
    }
  }
  return out;
}

std::string show(const Option& value) {
  if (const auto* s = std::get_if<std::string>(&value)) return *s;
  if (const auto* i = std::get_if<int64_t>(&value)) return std::to_string(*i);
  if (const auto* d = std::get_if<double>(&value)) return str(*d);
  if (const auto* b = std::get_if<bool>(&value)) return *b ? "true" : "false";
  std::string out = "[";
  for (const int64_t i : std::get<std::vector<int64_t>>(value)) out += (out.size() > 1 ? ", " : "") + std::to_string(i);
  return out + "]";
}

}  // namespace tpj::pjrt
