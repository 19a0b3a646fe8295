#include "eager/changing.h"

#include <ATen/ATen.h>

#include <atomic>
#include <utility>

#include "base/flags.h"
#include "eager/kernels.h"
#include "runtime/cell.h"
#include "runtime/device.h"
#include "runtime/scalar_type.h"

namespace tpj::eager {
namespace {

using runtime::Cell;

std::atomic<int64_t> g_step{0};
// This thread asks Python already: what that calls in turn is not asked for.
constinit thread_local bool t_asks = false;

// Numbers that PyTorch has wrapped in tensors become numbers again, and undefined tensors None.
c10::IValue plain(const c10::IValue& v) {
  if (!v.isTensor()) return v;
  if (!v.toTensor().defined()) return {};
  return v.toTensor().unsafeGetTensorImpl()->is_wrapped_number() ? c10::IValue(v.toTensor().item()) : v;
}

// Takes another tensor's contents and the size of its storage. What this one shows has to lie there in the same way.
void adopt_(const at::Tensor& self, const at::Tensor& other) {
  const size_t nbytes = other.storage().nbytes();
  TORCH_CHECK(nbytes >= self.storage().nbytes(), "adopt_: ", nbytes, " bytes in place of ", self.storage().nbytes());
  Cell& cell = *Cell::of(*self.unsafeGetTensorImpl());
  cell.store(Cell::of(*other.unsafeGetTensorImpl())->load());
  cell.set_nbytes(nbytes);
  self.storage().unsafeGetStorageImpl()->set_nbytes(nbytes);
}

// The tensor's storage as a flat tensor of so many elements, which grows with zeros if it has fewer. Its buffer is flat
// then, too, so that a program for it serves every storage of that size. By way of the host: compiles nothing.
at::Tensor flat_storage(const at::Tensor& self, int64_t numel) {
  const size_t old_bytes = self.storage().nbytes(), item = self.dtype().itemsize();
  const auto nbytes = static_cast<size_t>(numel) * item;
  TORCH_CHECK(nbytes >= old_bytes && old_bytes % item == 0, "flat_storage: from ", old_bytes, " to ", nbytes, " bytes");
  const auto* type = runtime::BufferType::intern(runtime::to_dtype(self.scalar_type()), {numel});
  Cell& cell = *Cell::of(*self.unsafeGetTensorImpl());
  if (cell.type() != type) {
    const auto old = static_cast<int64_t>(old_bytes / item);
    const at::Tensor whole = host_view(at::native::as_strided_tensorimpl(self, {old}, {1}, 0));
    at::Tensor padded = whole;
    if (old != numel) {
      padded = at::zeros({numel}, whole.options());
      padded.narrow(0, 0, old).copy_(whole);
    }
    cell.store(runtime::upload(padded.const_data_ptr(), type, self.device().index()));
    if (old != numel) {
      cell.set_nbytes(nbytes);
      self.storage().unsafeGetStorageImpl()->set_nbytes(nbytes);
    }
  }
  return at::native::as_strided_tensorimpl(self, {numel}, {1}, 0);
}

}  // namespace

void next_step() { g_step.fetch_add(1, std::memory_order_relaxed); }

bool run_changing(const c10::OperatorHandle& op, const exec::Form& form, const torch::jit::Stack& stack, size_t n_args,
                  exec::Results* results, std::string& why) {
  static const c10::OperatorHandle ask = c10::Dispatcher::singleton().findSchemaOrThrow("tpj::changing", "");
  if (t_asks || flags().SIZES != "bounded" || (form.row != nullptr && !form.row->options.cuts.empty())) return false;
  if (!ask.hasKernelForDispatchKey(c10::DispatchKey::CompositeExplicitAutograd)) return false;  // Python has ended
  std::vector<c10::IValue> arguments;
  for (size_t i = stack.size() - n_args; i < stack.size(); ++i) arguments.push_back(plain(stack[i]));
  torch::jit::Stack call{c10::toString(op.operator_name()), c10::ivalue::Tuple::create(std::move(arguments)),
                         g_step.load(std::memory_order_relaxed)};
  struct Asks {
    Asks() { t_asks = true; }
    ~Asks() { t_asks = false; }
  };
  {
    const Asks asks;
    ask.callBoxed(call);
  }
  const c10::IValue& answer = call.back();
  if (answer.isString()) why = answer.toStringRef();
  if (!answer.isTuple()) return false;
  if (results != nullptr) {
    const std::vector<c10::IValue>& made = answer.toTupleRef().elements().vec();
    for (size_t i = 0; i < op.schema().returns().size(); ++i) {
      const bool writes = !form.mutated.empty() && op.schema().returns()[i].alias_info() != nullptr;
      results->push_back(writes ? stack[stack.size() - n_args + static_cast<size_t>(form.mutated[i])] : made[i].isNone() ? c10::IValue(at::Tensor()) : made[i]);
    }
  }
  return true;
}

void register_changing(torch::Library& lib) {
  lib.def("changing(str operator, Any arguments, int step) -> Any");
  lib.def("adopt_(Tensor(a!) self, Tensor other) -> ()");
  lib.def("flat_storage(Tensor self, int numel) -> Tensor");
  lib.impl("adopt_", c10::DispatchKey::CompositeExplicitAutograd, &adopt_);
  lib.impl("flat_storage", c10::DispatchKey::CompositeExplicitAutograd, &flat_storage);
  for (const char* name : {"adopt_", "flat_storage"})
    for (const auto key : {c10::DispatchKey::Autograd, c10::DispatchKey::ADInplaceOrView})
      lib.impl(name, key, torch::CppFunction::makeFallthrough());
}

}  // namespace tpj::eager
