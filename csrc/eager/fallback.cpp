// Operators without a row: PyTorch's decomposition where there is one, else the CPU, counted and never silent.
#include <ATen/ATen.h>
#include <ATen/native/CPUFallback.h>

#include <mutex>

#include "base/flags.h"
#include "eager/kernels.h"
#include "eager/register.h"
#include "runtime/device.h"

namespace tpj::eager {
namespace {

struct Counts {
  std::mutex mutex;
  std::map<std::string, int64_t> calls;
  std::map<std::string, bool> warned;
};

Counts& counts() {
  static Counts& c = *new Counts;
  return c;
}

// Returns true the first time.
bool count(const std::string& name) {
  const std::lock_guard lock(counts().mutex);
  counts().calls[name] += 1;
  return !std::exchange(counts().warned[name], true);
}

// PyTorch's helper takes the device of the first tensor and moves the rest silently: refuse what other devices refuse.
void check_devices(const torch::jit::Stack& stack, size_t first) {
  std::optional<c10::Device> device;
  const auto check = [&](const at::Tensor& t) {
    if (!t.defined() || (t.is_cpu() && t.dim() == 0)) return;
    TORCH_CHECK(!device || *device == t.device(),
                "Expected all tensors to be on the same device, but found at least two devices, ", *device, " and ",
                t.device(), "!");
    device = t.device();
  };
  for (size_t i = first; i < stack.size(); ++i) {
    if (stack[i].isTensor())
      check(stack[i].toTensor());
    else if (stack[i].isTensorList())
      for (const at::Tensor& t : stack[i].toTensorVector()) check(t);
  }
}

void fallback(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const std::string name = c10::toString(op.operator_name());
  const std::string& device = runtime::config().device_name;
  check_devices(*stack, stack->size() - op.schema().arguments().size());
  if (run_decomposed(op, *stack)) return;
  TORCH_CHECK_NOT_IMPLEMENTED(flags().FALLBACK != "error", name, " has no program on device '", device,
                              "', and TORCH_PJRT_FALLBACK=error forbids to run it on the CPU");
  if (count(name) && flags().FALLBACK == "warn")
    TORCH_WARN(name, " has no program on device '", device,
               "': it runs on the CPU, with copies both ways. torch_pjrt.fallbacks() counts such ",
               "calls; TORCH_PJRT_FALLBACK=error turns them into errors.");
  at::native::cpu_fallback(op, stack, /*error_on_views=*/true);
}

bool (*g_is_printing)() = [] { return false; };

void sparse_error(const c10::OperatorHandle& op, torch::jit::Stack*) {
  TORCH_CHECK_NOT_IMPLEMENTED(false, c10::toString(op.operator_name()), ": only strided tensors live on ",
                              runtime::config().device_name);
}

}  // namespace

void set_is_printing(bool (*hook)()) { g_is_printing = hook; }

bool is_printing() { return g_is_printing(); }

std::map<std::string, int64_t> fallbacks() {
  const std::lock_guard lock(counts().mutex);
  return counts().calls;
}

void reset_fallbacks() {
  const std::lock_guard lock(counts().mutex);
  counts().calls.clear();
}

void register_fallback() {
  static torch::Library& all =
      *new torch::Library(torch::Library::IMPL, "_", c10::DispatchKey::PrivateUse1, __FILE__, __LINE__);
  all.fallback(torch::CppFunction::makeFromBoxedFunction<&fallback>());
  static torch::Library& sparse =
      *new torch::Library(torch::Library::IMPL, "_", c10::DispatchKey::SparsePrivateUse1, __FILE__, __LINE__);
  sparse.fallback(torch::CppFunction::makeFromBoxedFunction<&sparse_error>());
}

}  // namespace tpj::eager
