#include "exec/program.h"

#include <algorithm>

#include "runtime/device.h"

namespace tpj::exec {

pjrt::TensorType type_of(const Param& p) {
  if (p.kind == Param::Kind::kCell) return {p.type->dtype, p.type->dims};
  return {p.dtype, p.kind == Param::Kind::kRng ? std::vector<int64_t>{2} : std::vector<int64_t>()};
}

pjrt::Options overrides_for(std::string_view text) {
  const runtime::PluginConfig& c = runtime::config();
  const bool needed = std::any_of(
      c.override_operations.begin(), c.override_operations.end(),
      [&](const std::string& op) { return text.find("\"stablehlo." + op + "\"") != std::string_view::npos; });
  return needed || c.override_operations.empty() ? c.compile_overrides : pjrt::Options();
}

const pjrt::Executable& Program::executable() const {
  if (const pjrt::Executable* e = compiled_.load(std::memory_order_acquire)) [[likely]]
    return *e;
  const std::lock_guard lock(mutex_);
  if (!owned_) {
    std::vector<pjrt::TensorType> types;
    for (const Param& p : params) types.push_back(type_of(p));
    owned_ = compile::compile(runtime::client(), overrides_for(text), text, std::move(types), record);
    compiled_.store(owned_.get(), std::memory_order_release);
  }
  return *owned_;
}

}  // namespace tpj::exec
