// Operators that make or reshape storages and views, and factories that need more than a row.
#include <ATen/ATen.h>
#include <ATen/EmptyTensor.h>
#include <ATen/NativeFunctions.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/native/Resize.h>
#include <c10/core/DeviceGuard.h>

#include "eager/kernels.h"
#include "runtime/device.h"
#include "runtime/scalar_type.h"

namespace tpj::eager {
namespace {

constexpr c10::DispatchKeySet kKeys(c10::DispatchKey::PrivateUse1);

c10::Device device_or_current(std::optional<c10::Device> device) {
  if (device && device->has_index()) return *device;
  return {c10::kPrivateUse1, static_cast<c10::DeviceIndex>(runtime::current_device())};
}

c10::ScalarType checked(std::optional<c10::ScalarType> dtype, std::optional<c10::Layout> layout,
                        std::optional<bool> pin_memory) {
  const c10::ScalarType t = c10::dtype_or_default(dtype);
  runtime::to_dtype(t);  // throws for what no program can hold
  TORCH_CHECK_NOT_IMPLEMENTED(c10::layout_or_default(layout) == c10::kStrided, "only strided tensors live on ",
                              runtime::config().device_name);
  TORCH_CHECK(!pin_memory.value_or(false), "Only dense CPU tensors can be pinned");
  return t;
}

at::Tensor filled_if_deterministic(at::Tensor t) {
  if (at::globalContext().deterministicAlgorithms() && at::globalContext().deterministicFillUninitializedMemory())
    at::native::fill_empty_deterministic_(t);
  return t;
}

at::Tensor empty(c10::IntArrayRef size, std::optional<c10::ScalarType> dtype, std::optional<c10::Layout> layout,
                 std::optional<c10::Device> device, std::optional<bool> pin_memory,
                 std::optional<c10::MemoryFormat> format) {
  const c10::ScalarType t = checked(dtype, layout, pin_memory);
  runtime::client();
  const c10::DeviceGuard guard(device_or_current(device));
  return filled_if_deterministic(
      at::detail::empty_generic(size, c10::GetAllocator(c10::kPrivateUse1), kKeys, t, format));
}

at::Tensor empty_strided(c10::IntArrayRef size, c10::IntArrayRef stride, std::optional<c10::ScalarType> dtype,
                         std::optional<c10::Layout> layout, std::optional<c10::Device> device,
                         std::optional<bool> pin_memory) {
  const c10::ScalarType t = checked(dtype, layout, pin_memory);
  runtime::client();
  const c10::DeviceGuard guard(device_or_current(device));
  return filled_if_deterministic(
      at::detail::empty_strided_generic(size, stride, c10::GetAllocator(c10::kPrivateUse1), kKeys, t));
}

// Grows the storage where the tensor's geometry needs it; never shrinks it.
void grow_storage(c10::TensorImpl* impl) {
  if (impl->numel() == 0) return;
  const size_t needed = at::detail::computeStorageNbytes(impl->sizes(), impl->strides(), impl->dtype().itemsize(),
                                                         static_cast<size_t>(impl->storage_offset()));
  const c10::Storage& storage = impl->unsafe_storage();
  if (storage.nbytes() >= needed) return;
  TORCH_CHECK(storage.unsafeGetStorageImpl()->resizable(), "Trying to resize storage that is not resizable");
  at::detail::getPrivateUse1Hooks().resizePrivateUse1Bytes(storage, needed);
}

const at::Tensor& resize_(const at::Tensor& self, c10::IntArrayRef size, std::optional<c10::MemoryFormat> format) {
  auto* impl = self.unsafeGetTensorImpl();
  const auto old_bytes = static_cast<int64_t>(impl->unsafe_storage().nbytes());
  // The strides stay where the sizes do.
  if (self.sizes() != size) impl->set_sizes_contiguous(size);
  if (format) {
    TORCH_CHECK(*format != c10::MemoryFormat::Preserve, "Unsupported memory format", *format);
    impl->empty_tensor_restride(*format);
  }
  grow_storage(impl);
  if (static_cast<int64_t>(impl->unsafe_storage().nbytes()) > old_bytes &&
      at::globalContext().deterministicAlgorithms() && at::globalContext().deterministicFillUninitializedMemory())
    at::native::fill_resize_deterministic_(self, old_bytes);
  return self;
}

at::Tensor& set_storage_offset(at::Tensor& self, c10::Storage source, int64_t offset, c10::IntArrayRef size,
                               c10::IntArrayRef stride) {
  at::native::checkSetStorage(self, std::move(source), offset, size, stride);
  auto* impl = self.unsafeGetTensorImpl();
  impl->set_storage_offset(offset);
  if (stride.data() == nullptr) {
    impl->set_sizes_contiguous(size);
  } else {
    impl->set_sizes_and_strides(size, stride);
  }
  grow_storage(impl);
  return self;
}

at::Tensor& set_storage(at::Tensor& self, c10::Storage source) {
  const auto n = static_cast<int64_t>(source.nbytes() / self.dtype().itemsize());
  return set_storage_offset(self, std::move(source), 0, n, {});
}

at::Tensor& set_tensor(at::Tensor& self, const at::Tensor& source) {
  if (self.is_same(source)) return self;
  return set_storage_offset(self, source.storage(), source.storage_offset(), source.sizes(), source.strides());
}

at::Tensor& set_empty(at::Tensor& self) {
  c10::Storage storage(c10::Storage::use_byte_size_t(), 0, c10::GetAllocator(c10::kPrivateUse1), true);
  return set_storage_offset(self, std::move(storage), 0, {0}, {});
}

at::Tensor as_strided(const at::Tensor& self, c10::IntArrayRef size, c10::IntArrayRef stride,
                      std::optional<int64_t> offset) {
  return at::native::as_strided_tensorimpl(self, size, stride, offset);
}

at::Tensor view(const at::Tensor& self, c10::IntArrayRef size) { return at::native::view(self, size); }

at::Tensor reshape_alias(const at::Tensor& self, c10::IntArrayRef size, c10::IntArrayRef stride) {
  return at::native::_reshape_alias(self, size, stride);
}

at::Tensor unfold(const at::Tensor& self, int64_t dim, int64_t size, int64_t step) {
  return at::native::unfold(self, dim, size, step);
}

// A sequence of n numbers, the last argument being the output. An output with n elements keeps its sizes.
struct Sequence {
  c10::OperatorHandle op;
  std::unique_ptr<OpKernel> kernel;

  Sequence(const char* name, const char* overload)
      : op(c10::Dispatcher::singleton().findSchemaOrThrow(name, overload)),
        kernel(make_kernel(*lower::find_row(std::string(name).substr(6) + "." + overload), op)) {}

  void fill(torch::jit::Stack arguments, int64_t n) {
    at::Tensor out = arguments.back().toTensor();
    if (n >= 0 && out.numel() != n) out.resize_({n});
    const bool shaped = n >= 0 && out.dim() != 1;
    if (shaped) arguments.back() = at::empty({n}, out.options());
    torch::jit::Stack stack = arguments;
    kernel->call(op, stack);
    if (shaped) out.copy_(arguments.back().toTensor().view(out.sizes()));
  }
};

// The size depends on the numbers, which are no part of a key.
at::Tensor& arange(const at::Scalar& start, const at::Scalar& end, const at::Scalar& step, at::Tensor& out) {
  at::Tensor meta = at::empty({0}, out.options().device(at::kMeta));
  at::arange_out(meta, start, end, step);
  static Sequence& sequence = *new Sequence("aten::arange", "start_out");
  sequence.fill({start, end, step, out}, meta.numel());
  return out;
}

at::Tensor& linspace(const at::Scalar& start, const at::Scalar& end, int64_t steps, at::Tensor& out) {
  static Sequence& sequence = *new Sequence("aten::linspace", "out");
  sequence.fill({start, end, steps, out}, steps);
  return out;
}

at::Tensor& logspace(const at::Scalar& start, const at::Scalar& end, int64_t steps, double base, at::Tensor& out) {
  static Sequence& sequence = *new Sequence("aten::logspace", "out");
  sequence.fill({start, end, steps, base, out}, steps);
  return out;
}

// PyTorch has a kernel for each kind of device behind its own function, which still does what needs none: errors, and
// lengths below 2. (https://en.wikipedia.org/wiki/Kaiser_window)
at::Tensor kaiser_window(int64_t length, bool periodic, double beta, std::optional<at::ScalarType> dtype,
                         std::optional<at::Layout> layout, std::optional<at::Device> device, std::optional<bool> pin) {
  const at::ScalarType type = dtype.value_or(c10::typeMetaToScalarType(at::get_default_dtype()));
  if (length < 2 || !at::isFloatingType(type) || layout.value_or(at::kStrided) != at::kStrided)
    return at::native::kaiser_window(length, periodic, beta, dtype, layout, device, pin);
  const at::ScalarType wide = type == at::kDouble ? at::kDouble : at::kFloat;
  const double middle = static_cast<double>(periodic ? length : length - 1) / 2;
  const at::Tensor place = at::arange(length, wide, layout, device, pin).sub_(middle).div_(middle);
  return at::i0(place.square_().neg_().add_(1).sqrt_().mul_(beta))
      .div_(at::i0(at::scalar_tensor(beta, place.options())))
      .to(type);
}

at::Tensor kaiser_window_periodic(int64_t length, bool periodic, std::optional<at::ScalarType> dtype,
                                  std::optional<at::Layout> layout, std::optional<at::Device> device,
                                  std::optional<bool> pin) {
  return kaiser_window(length, periodic, 12.0, dtype, layout, device, pin);
}

at::Tensor kaiser_window_default(int64_t length, std::optional<at::ScalarType> dtype, std::optional<at::Layout> layout,
                                 std::optional<at::Device> device, std::optional<bool> pin) {
  return kaiser_window(length, true, 12.0, dtype, layout, device, pin);
}

// Module.to() keeps the identity of parameters (tied weights) when this says yes; our tensors are plain TensorImpls.
bool has_compatible_shallow_copy_type(const at::Tensor& self, const at::Tensor& from) {
  const auto plain = [](const at::Tensor& t) {
    return t.layout() == c10::kStrided && (t.is_cpu() || t.is_privateuseone());
  };
  return plain(self) && plain(from);
}

// Work is ordered per device and buffers are counted: nothing to record.
void record_stream(at::Tensor&, c10::Stream) {}

}  // namespace

void register_storage_ops(torch::Library& lib) {
  lib.impl("_has_compatible_shallow_copy_type", &has_compatible_shallow_copy_type);
  lib.impl("_reshape_alias", &reshape_alias);
  lib.impl("arange.start_out", &arange);
  lib.impl("as_strided", &as_strided);
  lib.impl("empty.memory_format", &empty);
  lib.impl("empty_strided", &empty_strided);
  lib.impl("is_set_to", &at::native::is_set_to);
  lib.impl("kaiser_window", &kaiser_window_default);
  lib.impl("kaiser_window.beta", &kaiser_window);
  lib.impl("kaiser_window.periodic", &kaiser_window_periodic);
  lib.impl("linspace.out", &linspace);
  lib.impl("logspace.out", &logspace);
  lib.impl("record_stream", &record_stream);
  lib.impl("resize_", &resize_);
  lib.impl("set_", &set_empty);
  lib.impl("set_.source_Storage", &set_storage);
  lib.impl("set_.source_Storage_storage_offset", &set_storage_offset);
  lib.impl("set_.source_Tensor", &set_tensor);
  lib.impl("unfold", &unfold);
  lib.impl("view", &view);
  lib.impl("view_as_complex", &at::native::view_as_complex);
  lib.impl("view_as_real", &at::native::view_as_real);
}

}  // namespace tpj::eager
