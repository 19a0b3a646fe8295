// Copies in every direction, and reading values.
#include <ATen/ATen.h>
#include <ATen/ExpandUtils.h>
#include <ATen/NativeFunctions.h>
#include <ATen/core/LegacyTypeDispatch.h>

#include <cstring>

#include "eager/changing.h"
#include "eager/kernels.h"
#include "exec/queue.h"
#include "exec/views.h"
#include "runtime/cell.h"
#include "runtime/device.h"
#include "runtime/errors.h"
#include "runtime/scalar_type.h"

namespace tpj::eager {
namespace {

using runtime::BufferRef;
using runtime::BufferType;
using runtime::Cell;

Cell& cell_of(const at::Tensor& t) { return *Cell::of(*t.unsafeGetTensorImpl()); }

exec::View view_of(const at::Tensor& t) {
  return {runtime::to_dtype(t.scalar_type()), t.sizes().vec(), t.strides().vec(), t.storage_offset()};
}

bool covers_storage(const at::Tensor& t) {
  const size_t nbytes = t.unsafeGetTensorImpl()->unsafe_storage().nbytes(), item = t.dtype().itemsize();
  return nbytes % item == 0 && exec::covers(view_of(t), static_cast<int64_t>(nbytes / item));
}

bool same_strides(const at::Tensor& a, const at::Tensor& b) {
  for (int64_t i = 0; i < a.dim(); ++i)
    if (a.size(i) != 1 && a.stride(i) != b.stride(i)) return false;
  return true;
}

// The sizes in storage order: the natural dimensions of a tensor that covers its storage.
std::vector<int64_t> natural_dims(const at::Tensor& t) {
  std::vector<int64_t> order(static_cast<size_t>(t.dim()));
  for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int64_t>(i);
  std::stable_sort(order.begin(), order.end(), [&](int64_t i, int64_t j) { return t.stride(i) > t.stride(j); });
  std::vector<int64_t> dims;
  for (int64_t i : order)
    if (t.size(i) != 1 || t.numel() == 1) dims.push_back(t.size(i));
  // Row-major tensors keep their sizes of 1: the usual case stays the usual type.
  return t.is_contiguous() ? t.sizes().vec() : dims;
}

// `t` without the lazy conjugation and negation bits, computed if they are set.
at::Tensor resolved(const at::Tensor& t) {
  at::Tensor out = t;
  if (out.is_neg()) out = at::neg(at::_neg_view(out));
  if (out.is_conj()) out = at::conj_physical(at::_conj(out));
  return out;
}

// Runs the row "copy" as aten::copy_: any strides, dtypes, broadcasting.
void copy_program(const at::Tensor& dst, const at::Tensor& src) {
  static const c10::OperatorHandle op = c10::Dispatcher::singleton().findSchemaOrThrow("aten::copy_", "");
  static OpKernel& kernel = *make_kernel(*lower::find_row("copy"), op).release();
  torch::jit::Stack stack{dst, src, false};
  kernel.call(op, stack);
}

void device_to_device(const at::Tensor& src, const at::Tensor& dst) {
  if (src.device() != dst.device()) {
    TORCH_CHECK(!exec::is_capturing(dst.device().index()), exec::refused_by_capture("to copy from another device"));
    Cell& from = cell_of(src);
    BufferRef there;
    if (const BufferRef here = from.load()) {
      there = runtime::translate([&] {
        return c10::make_intrusive<runtime::DeviceBuffer>(here->pjrt().copy_to_device(dst.device().index()),
                                                          here->type(), dst.device().index(), "copy between devices");
      });
    }
    // The same geometry over the moved base.
    at::Tensor moved = at::empty({0}, src.options().device(dst.device()));
    c10::Storage storage(c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), from.nbytes(),
                                                               Cell::make(dst.device().index(), from.nbytes(), there),
                                                               c10::GetAllocator(c10::kPrivateUse1), true));
    moved.unsafeGetTensorImpl()->set_storage_keep_dtype(std::move(storage));
    moved.unsafeGetTensorImpl()->set_sizes_and_strides(src.sizes(), src.strides(), src.storage_offset());
    return device_to_device(moved, dst);
  }
  // A whole copy shares the buffer: it is immutable, and whoever writes first gets a new one. But bytes, as a file
  // gives them, become numbers once and not in each program that reads them.
  const BufferType* held = cell_of(src).type();
  const bool is_bytes = held != nullptr && held->dtype != runtime::to_dtype(src.scalar_type());
  if (!is_bytes && src.scalar_type() == dst.scalar_type() && src.sizes() == dst.sizes() && same_strides(src, dst) &&
      covers_storage(src) && covers_storage(dst)) {
    cell_of(dst).store(cell_of(src).load());
    return;
  }
  copy_program(dst, src);
}

void host_to_device(const at::Tensor& src, const at::Tensor& dst) {
  if (!covers_storage(dst)) {
    const at::Tensor staged = at::empty(src.sizes(), dst.options());
    host_to_device(src, staged);
    return copy_program(dst, staged);
  }
  TORCH_CHECK(!exec::is_capturing(dst.device().index()), exec::refused_by_capture("to copy from the CPU"));
  at::Tensor host = src.to(dst.scalar_type()).resolve_conj().resolve_neg();
  if (host.sizes() != dst.sizes() || !same_strides(host, dst) || !host.is_non_overlapping_and_dense()) {
    const at::Tensor laid_out = at::empty_strided(dst.sizes(), dst.strides(), host.options());
    laid_out.copy_(host);
    host = laid_out;
  }
  const BufferType* type = BufferType::intern(runtime::to_dtype(dst.scalar_type()), natural_dims(dst));
  runtime::translate([&] { check_dtype(runtime::client().caps().limits(), type->dtype); });
  cell_of(dst).store(runtime::upload(host.const_data_ptr(), type, dst.device().index()));
  if (dst.numel() > 1) next_step();  // a batch, no number
}

}  // namespace

at::Tensor host_view(const at::Tensor& src) {
  next_step();
  const BufferRef buffer = cell_of(src).load();
  const at::TensorOptions options = at::TensorOptions().dtype(src.scalar_type()).device(at::kCPU);
  const size_t item = src.dtype().itemsize();
  const size_t reach =
      at::detail::computeStorageNbytes(src.sizes(), src.strides(), item, static_cast<size_t>(src.storage_offset()));
  if (!buffer || src.numel() == 0) return at::zeros(src.sizes(), options);
  if (runtime::client().caps().host_visible_buffers && reach <= buffer->type()->nbytes) {
    auto* data = const_cast<char*>(static_cast<const char*>(buffer->host_data())) +
                 static_cast<size_t>(src.storage_offset()) * item;
    return at::from_blob(data, src.sizes(), src.strides(), [buffer](void*) {}, options);
  }
  // A small view of a large base is packed on the device first.
  if (4 * static_cast<size_t>(src.numel()) * item < buffer->type()->nbytes) {
    const at::Tensor packed = at::empty(src.sizes(), src.options());
    copy_program(packed, src);
    return host_view(packed);
  }
  const size_t nbytes = std::max(reach, buffer->type()->nbytes);
  const at::Tensor bytes = at::zeros({static_cast<int64_t>(nbytes)}, options.dtype(at::kByte));
  runtime::translate([&] {
    buffer->await();
    buffer->pjrt().to_host(bytes.mutable_data_ptr(), buffer->type()->nbytes);
  });
  auto* data = static_cast<char*>(bytes.mutable_data_ptr()) + static_cast<size_t>(src.storage_offset()) * item;
  return at::from_blob(data, src.sizes(), src.strides(), [bytes](void*) {}, options);
}

namespace {

at::Tensor copy_from(const at::Tensor& self, const at::Tensor& dst, bool) {
  // PyTorch's own text for sizes that do not broadcast.
  if (self.sizes() != dst.sizes()) {
    const auto wide = at::infer_size_dimvector(dst.sizes(), self.sizes());
    TORCH_CHECK(c10::IntArrayRef(wide) == dst.sizes(), "output with shape ", dst.sizes(),
                " doesn't match the broadcast shape ", c10::IntArrayRef(wide));
  }
  if (dst.numel() == 0 || self.is_same(dst)) return dst;
  if (dst.is_neg() || dst.is_conj()) {
    // Writing x through a conjugated view writes conj(x) below it.
    const at::Tensor plain = dst.is_neg() ? at::_neg_view(dst) : at::_conj(dst);
    plain.copy_(dst.is_neg() ? at::neg(self) : at::conj_physical(self));
    return dst;
  }
  if (self.is_privateuseone() && dst.is_privateuseone()) {
    device_to_device(resolved(self), dst);
  } else if (self.is_cpu()) {
    host_to_device(self.dim() == dst.dim() && self.sizes() == dst.sizes() ? self : self.expand(dst.sizes()), dst);
  } else if (dst.is_cpu()) {
    at::Tensor host = host_view(self.is_neg() ? at::_neg_view(self) : self.is_conj() ? at::_conj(self) : self);
    if (self.is_neg() && self.is_conj())
      host = host_view(at::_conj(at::_neg_view(self))).neg().conj_physical();
    else if (self.is_neg())
      host = host.neg();
    else if (self.is_conj())
      host = host.conj_physical();
    dst.copy_(host.expand(dst.sizes()));
  } else {
    // Another accelerator on either side: by way of the CPU.
    dst.copy_(self.cpu());
  }
  return dst;
}

at::Tensor copy_from_and_resize(const at::Tensor& self, const at::Tensor& dst) {
  if (self.sizes() != dst.sizes()) dst.resize_(self.sizes());
  return copy_from(self, dst, false);
}

at::Scalar local_scalar_dense(const at::Tensor& self) {
  next_step();
  TORCH_CHECK(self.numel() == 1, "a Tensor with ", self.numel(), " elements cannot be converted to Scalar");
  const auto* impl = self.unsafeGetTensorImpl();
  const BufferRef buffer = Cell::of(*impl)->load();
  const size_t at = static_cast<size_t>(impl->storage_offset()) * impl->dtype().itemsize();
  if (buffer && runtime::client().caps().host_visible_buffers &&
      at + impl->dtype().itemsize() <= buffer->type()->nbytes) {
    const char* data = static_cast<const char*>(buffer->host_data()) + at;
    switch (self.scalar_type()) {
#define X(name, hlo, size, kind, pjrt, torch)                      \
  case c10::ScalarType::torch: {                                   \
    c10::impl::ScalarTypeToCPPTypeT<c10::ScalarType::torch> value; \
    std::memcpy(&value, data, sizeof value);                       \
    return value;                                                  \
  }
      TPJ_DTYPES(X)
#undef X
      default:
        break;
    }
  }
  return host_view(self).clone().item();
}

bool equal(const at::Tensor& self, const at::Tensor& other) {
  TORCH_CHECK(self.device() == other.device() && self.dtype() == other.dtype(),
              "Expected all tensors to be on the same device, but found at least two devices, ", self.device(), " and ",
              other.device(), "!");
  if (self.sizes() != other.sizes()) return false;
  return self.numel() == 0 || at::eq(self, other).all().item<bool>();
}

}  // namespace

void register_copy_ops(torch::Library& lib) {
  lib.impl("_copy_from", &copy_from);
  lib.impl("_copy_from_and_resize", &copy_from_and_resize);
  lib.impl("_local_scalar_dense", &local_scalar_dense);
  lib.impl("equal", &equal);
  // The copy resolves lazy conjugation and negation itself; without this a read of such a view would recurse.
  static auto& keep = *new std::vector<torch::Library>;
  for (const auto key : {c10::DispatchKey::Conjugate, c10::DispatchKey::Negative}) {
    keep.emplace_back(torch::Library::IMPL, "aten", key, __FILE__, __LINE__);
    keep.back().impl("_copy_from", torch::CppFunction::makeFallthrough());
  }
}

}  // namespace tpj::eager
