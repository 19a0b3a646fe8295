#include "hlo/compose.h"

#include "base/errors.h"

namespace tpj::hlo {
namespace {

constexpr std::string_view kHead = "module @m {\n  func.func @main(", kTail = "}\n", kAlias = " {tf.aliasing_output = ";

std::string joined(const std::vector<Type>& types) {
  std::string out;
  for (size_t i = 0; i < types.size(); ++i) out += (i ? ", " : "") + types[i].str();
  return out;
}

}  // namespace

int Composer::parameter(const Type& type) {
  TPJ_ASSERT(body_.empty(), "a parameter after a call");
  parameters_.push_back(type);
  names_.push_back(str("%a", names_.size()));
  return static_cast<int>(names_.size()) - 1;
}

int Composer::function(std::string_view module) {
  TPJ_ASSERT(module.starts_with(kHead) && module.ends_with(kTail), "not a printed module");
  module.remove_prefix(kHead.size());
  module.remove_suffix(kTail.size());
  functions_ += str("  func.func private @f", n_functions_, "(");
  // Which memory a result takes is @main's to say. Parameters stand before the line's end.
  for (size_t end = module.find('\n'), at = module.find(kAlias); at < end; at = module.find(kAlias)) {
    functions_ += module.substr(0, at);
    module.remove_prefix(module.find('}', at) + 1);
    end = module.find('\n');
  }
  functions_ += module;
  return n_functions_++;
}

int Composer::call(int function, const std::vector<int>& args, const std::vector<Type>& takes,
                   const std::vector<Type>& gives) {
  const auto first = static_cast<int>(names_.size());
  const std::string name = str("%v", first);
  body_ += str("    ", name, ":", gives.size(), " = func.call @f", function, "(");
  for (size_t i = 0; i < args.size(); ++i) body_ += (i ? ", " : "") + names_[static_cast<size_t>(args[i])];
  body_ += str(") : (", joined(takes), ") -> (", joined(gives), ")\n");
  for (size_t i = 0; i < gives.size(); ++i) names_.push_back(str(name, "#", i));
  return first;
}

int Composer::element(int array, const Type& type, int64_t size, int64_t index) {
  const int64_t n = type.numel();
  const std::string name = str("%v", names_.size()), flat = Type{type.dtype, {n}}.str();
  body_ += str("    ", name, "_ = \"stablehlo.slice\"(", names_[static_cast<size_t>(array)],
               ") {start_indices = array<i64: ", index, ">, limit_indices = array<i64: ", index + n,
               ">, strides = array<i64: 1>} : (", Type{type.dtype, {size}}.str(), ") -> ", flat, "\n    ", name,
               " = \"stablehlo.reshape\"(", name, "_) : (", flat, ") -> ", type.str(), "\n");
  names_.push_back(name);
  return static_cast<int>(names_.size()) - 1;
}

int Composer::barrier(int value, const Type& type) {
  const std::string name = str("%v", names_.size());
  body_ += str("    ", name, " = \"stablehlo.optimization_barrier\"(", names_[static_cast<size_t>(value)], ") : (",
               type.str(), ") -> ", type.str(), "\n");
  names_.push_back(name);
  return static_cast<int>(names_.size()) - 1;
}

std::string Composer::print(const std::vector<int>& results, const std::vector<Type>& types,
                            const std::vector<int>& aliases) const {
  std::string out = "module @m {\n  func.func @main(";
  for (size_t i = 0; i < parameters_.size(); ++i) {
    out += str(i ? ", " : "", names_[i], ": ", parameters_[i].str());
    if (i < aliases.size() && aliases[i] >= 0) out += str(kAlias, aliases[i], " : i32}");
  }
  out += str(") -> (", joined(types), ") {\n", body_, "    func.return");
  for (size_t i = 0; i < results.size(); ++i) out += (i ? ", " : " ") + names_[static_cast<size_t>(results[i])];
  out += str(types.empty() ? "" : " : ", joined(types), "\n  }\n", functions_, "}\n");
  return out;
}

}  // namespace tpj::hlo
