#include "exec/program.h"

#include <algorithm>

#include "runtime/device.h"

namespace tpj::exec {

pjrt::TensorType type_of(const Param& p) {
  if (p.kind == Param::Kind::kCell) return {p.type->dtype, p.type->dims};
  return {p.dtype, p.kind == Param::Kind::kRng ? std::vector<int64_t>{2} : std::vector<int64_t>()};
}

compile::Request Program::request() const {
  const runtime::PluginConfig& c = runtime::config();
  const bool overridden = c.override_operations.empty() ||
                          std::any_of(c.override_operations.begin(), c.override_operations.end(), [&](const auto& op) {
                            return text.find("\"stablehlo." + op + "\"") != std::string::npos;
                          });
  compile::Request out{text, {}, overridden ? c.compile_overrides : pjrt::Options(), record};
  for (const Param& p : params) out.parameters.push_back(type_of(p));
  return out;
}

void Program::set_executable(std::unique_ptr<pjrt::Executable> executable) const {
  const std::lock_guard lock(mutex_);
  if (owned_) return;
  owned_ = std::move(executable);
  compiled_.store(owned_.get(), std::memory_order_release);
}

const pjrt::Executable& Program::executable() const {
  if (const pjrt::Executable* e = compiled_.load(std::memory_order_acquire)) [[likely]]
    return *e;
  const std::lock_guard lock(mutex_);
  if (!owned_) {
    owned_ = compile::compile(runtime::client(), request());
    compiled_.store(owned_.get(), std::memory_order_release);
  }
  return *owned_;
}

}  // namespace tpj::exec
