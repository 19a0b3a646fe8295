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

// Another tensor of the same storage. A tensor that Python has seen counts one reference more for ever, and autograd
// then does not add to it in place.
at::Tensor same_storage(const at::Tensor& t) {
  return at::Tensor(t.unsafeGetTensorImpl()->shallow_copy_and_detach(c10::VariableVersion(0), true));
}

// An argument for Python. Numbers that PyTorch has wrapped in tensors become numbers again, undefined tensors None.
c10::IValue for_python(const c10::IValue& v) {
  if (v.isTensor()) {
    const at::Tensor& t = v.toTensor();
    if (!t.defined()) return {};
    return t.unsafeGetTensorImpl()->is_wrapped_number() ? c10::IValue(t.item()) : c10::IValue(same_storage(t));
  }
  if (v.isTensorList() || v.isOptionalTensorList()) {
    std::vector<c10::IValue> items;
    for (const c10::IValue& item : v.toListRef()) items.push_back(for_python(item));
    return c10::ivalue::Tuple::create(std::move(items));
  }
  return v;
}

// A tensor of its own over a buffer, which may be larger than what is seen of it: buffers do not change, so sharing one
// is no aliasing.
at::Tensor over(const at::Tensor& like, runtime::BufferRef buffer, c10::IntArrayRef sizes, c10::IntArrayRef strides) {
  const size_t nbytes = at::detail::computeStorageNbytes(sizes, strides, like.dtype().itemsize());
  const int device = like.device().index();
  c10::Storage storage(c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), nbytes,
                                                             Cell::make(device, nbytes, std::move(buffer)),
                                                             c10::GetAllocator(c10::kPrivateUse1), true));
  at::Tensor t = at::detail::make_tensor<c10::TensorImpl>(
      std::move(storage), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), like.dtype());
  t.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides);
  return t;
}

// The buffer's contents as a tensor of these sizes and strides.
at::Tensor shown(const at::Tensor& self, c10::IntArrayRef sizes, c10::IntArrayRef strides) {
  return over(self, Cell::of(*self.unsafeGetTensorImpl())->load(), sizes, strides);
}

// The whole buffer as a contiguous tensor of this size; nothing where it has not so many elements.
std::optional<at::Tensor> whole(const at::Tensor& self, c10::IntArrayRef size) {
  runtime::BufferRef buffer = Cell::of(*self.unsafeGetTensorImpl())->load();
  const size_t nbytes = static_cast<size_t>(c10::multiply_integers(size)) * self.dtype().itemsize();
  if (!buffer || buffer->type()->nbytes != nbytes) return std::nullopt;
  return over(self, std::move(buffer), size, c10::contiguous_strides(size));
}

// How many elements the buffer has if it is flat; else 0.
int64_t flat_numel(const at::Tensor& self) {
  const runtime::BufferType* type = Cell::of(*self.unsafeGetTensorImpl())->type();
  const bool flat = type != nullptr && type->dims.size() == 1 && type->dtype == runtime::to_dtype(self.scalar_type());
  return flat ? type->dims[0] : 0;
}

// The tensor's storage as a flat tensor of so many elements, which ends with zeros if the storage has fewer. Its buffer
// is flat then, too, so that one program serves all storages of that size. By way of the host: compiles nothing.
at::Tensor flat_storage(const at::Tensor& self, int64_t numel) {
  Cell& cell = *Cell::of(*self.unsafeGetTensorImpl());
  if (flat_numel(self) != numel) {
    const auto old = static_cast<int64_t>(self.storage().nbytes() / self.dtype().itemsize());
    TORCH_CHECK(numel >= old, "flat_storage: from ", old, " elements to ", numel);
    at::Tensor padded = host_view(at::native::as_strided_tensorimpl(self, {old}, {1}, 0));
    if (old != numel) padded = at::constant_pad_nd(padded, {0, numel - old});
    cell.store(runtime::upload(padded.const_data_ptr(),
                               runtime::BufferType::intern(runtime::to_dtype(self.scalar_type()), {numel}),
                               self.device().index()));
  }
  return over(self, cell.load(), {numel}, {1});
}

// Takes another tensor's contents, which lie in its buffer as they do in this one's storage.
void adopt_(const at::Tensor& self, const at::Tensor& other) {
  runtime::BufferRef buffer = Cell::of(*other.unsafeGetTensorImpl())->load();
  TORCH_CHECK(buffer->type()->nbytes >= self.storage().nbytes(), "adopt_: too few elements");
  Cell::of(*self.unsafeGetTensorImpl())->store(std::move(buffer));
}

}  // namespace

void next_step() { g_step.fetch_add(1, std::memory_order_relaxed); }

bool run_changing(const c10::OperatorHandle& op, const exec::Form& form, const torch::jit::Stack& stack, size_t n_args,
                  exec::Results* results, std::string& why) {
  static const c10::OperatorHandle ask = c10::Dispatcher::singleton().findSchemaOrThrow("tpj::changing", "");
  if (t_asks || runtime::CellWatcher::watches_any() || flags().SIZES != "bounded" ||
      (form.row != nullptr && !form.row->options.cuts.empty()))
    return false;
  if (!ask.hasKernelForDispatchKey(c10::DispatchKey::CompositeExplicitAutograd)) return false;  // Python has ended
  std::vector<c10::IValue> arguments;
  for (size_t i = stack.size() - n_args; i < stack.size(); ++i) arguments.push_back(for_python(stack[i]));
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
      if (writes)
        results->push_back(stack[stack.size() - n_args + static_cast<size_t>(form.mutated[i])]);
      else
        results->push_back(made[i].isNone() ? at::Tensor() : same_storage(made[i].toTensor()));
    }
  }
  return true;
}

void register_changing(torch::Library& lib) {
  lib.def("changing(str operator, Any arguments, int step) -> Any");
  const auto add = [&](const char* schema, const char* name, auto* kernel) {
    lib.def(schema);
    lib.impl(name, c10::DispatchKey::CompositeExplicitAutograd, kernel);
    for (const auto key : {c10::DispatchKey::Autograd, c10::DispatchKey::ADInplaceOrView})
      lib.impl(name, key, torch::CppFunction::makeFallthrough());
  };
  add("adopt_(Tensor(a!) self, Tensor other) -> ()", "adopt_", &adopt_);
  add("flat_numel(Tensor self) -> int", "flat_numel", &flat_numel);
  add("flat_storage(Tensor self, int numel) -> Tensor", "flat_storage", &flat_storage);
  add("shown(Tensor self, int[] sizes, int[] strides) -> Tensor", "shown", &shown);
  add("whole(Tensor self, int[] size) -> Tensor?", "whole", &whole);
}

}  // namespace tpj::eager
