#include "eager/bounds.h"

#include <ATen/ATen.h>
#include <ATen/ExpandUtils.h>

#include "eager/kernels.h"
#include "runtime/cell.h"
#include "runtime/device.h"

namespace tpj::eager {
namespace {

// Positions must be in [low, high) or equal to `also`.
struct Range {
  int64_t low, high;
  int64_t also = 0;
  bool has_also = false;

  bool holds(int64_t v) const { return (v >= low && v < high) || (has_also && v == also); }
};

template <typename T>
bool any_outside(const at::Tensor& index, const Range& range) {
  const T* data = index.const_data_ptr<T>();
  for (int64_t i = 0; i < index.numel(); ++i)
    if (!range.holds(static_cast<int64_t>(data[i]))) return true;
  return false;
}

// False also when the values cannot be seen without waiting.
bool outside(const at::Tensor& index, const Range& range) {
  if (!index.defined() || index.numel() == 0 || !runtime::client().caps().host_visible_buffers) return false;
  at::Tensor host = index;
  if (index.is_privateuseone()) {
    const runtime::BufferRef buffer = runtime::Cell::of(*index.unsafeGetTensorImpl())->load();
    if (!buffer) return false;
    buffer->settle();
    if (!buffer->is_ready()) return false;
    host = host_view(index);
  }
  host = host.contiguous();
  if (host.scalar_type() == at::kLong) return any_outside<int64_t>(host, range);
  if (host.scalar_type() == at::kInt) return any_outside<int32_t>(host, range);
  return false;  // masks, and types that the operator refuses
}

// The places of a mask, which are data: waits.
int64_t count(const at::Tensor& mask) { return mask.to(at::kBool).sum().item<int64_t>(); }

// self[:, mask] = values, the mask from dimension `dim`, with a row of values for each place: is the number another
// one?
bool wrong_number_of_rows(const at::Tensor& self, int64_t dim, const at::Tensor& mask, const at::Tensor& values) {
  const int64_t at = values.dim() - (self.dim() - mask.dim() - dim) - 1;
  return at >= 0 && at < values.dim() && values.size(at) != 1 && count(mask) != values.size(at);
}

// (self, indices[], values, ...) or, to read, (self, indices[]). Several indices with masks among them come expanded.
bool indices_outside(std::span<const c10::IValue> args) {
  const at::Tensor& self = args[0].toTensor();
  int64_t dim = 0;
  for (const std::optional<at::Tensor> index : args[1].toOptionalTensorList()) {
    const bool given = index && index->defined();
    const bool mask = given && (index->scalar_type() == at::kBool || index->scalar_type() == at::kByte);
    if (mask ? args.size() > 2 && wrong_number_of_rows(self, dim, *index, args[2].toTensor())
             : given && dim < self.dim() && outside(*index, {-self.size(dim), self.size(dim)}))
      return true;
    dim += mask ? index->dim() : 1;
  }
  return false;
}

// masked_scatter: only a source that may be too short is worth the wait.
bool has_too_few(const at::Tensor& self, const at::Tensor& mask, const at::Tensor& source) {
  const int64_t all = c10::multiply_integers(at::infer_size(self.sizes(), mask.sizes()));
  return source.numel() < all && mask.scalar_type() == at::kBool && count(mask) * (all / mask.numel()) > source.numel();
}

bool has_negative(const at::Tensor& deviations) {
  return at::isFloatingType(deviations.scalar_type()) && deviations.numel() > 0 && !deviations.min().ge(0).item<bool>();
}

}  // namespace

bool out_of_bounds(lower::Bounds kind, std::span<const c10::IValue> args) {
  if (runtime::CellWatcher::watches_any()) return false;  // nothing can be read while a step is recorded
  switch (kind) {
    case lower::Bounds::kNone:
      return false;
    case lower::Bounds::kAlongDim: {
      const at::Tensor& self = args[0].toTensor();
      const int64_t dim = args[1].toInt(), rank = self.dim();
      if (dim < -rank || dim >= rank) return false;  // the meta kernel's error
      return outside(args[2].toTensor(), {0, self.size(dim)});
    }
    case lower::Bounds::kClasses: {
      const at::Tensor& self = args[0].toTensor();
      const int64_t classes = self.dim() == 0 ? 1 : self.size(self.dim() == 1 ? 0 : 1);
      return outside(args[1].toTensor(), {0, classes, args[4].toInt(), true});
    }
    case lower::Bounds::kFlat: {
      const int64_t places = args[0].toTensor().numel();
      return outside(args[1].toTensor(), {-places, places});
    }
    case lower::Bounds::kIndices:
      return indices_outside(args);
    case lower::Bounds::kMasked:
      return has_too_few(args[0].toTensor(), args[1].toTensor(), args[2].toTensor());
    case lower::Bounds::kDeviations:
      return has_negative(args[1].toTensor());
    case lower::Bounds::kRows: {
      const at::Tensor& self = args[0].toTensor();
      return self.dim() > 0 && outside(args[1].toTensor(), {0, self.size(0)});
    }
    case lower::Bounds::kTargets:
    case lower::Bounds::kTargetLists: {
      const at::Tensor& self = args[0].toTensor();
      const int64_t first = kind == lower::Bounds::kTargets ? 0 : -1;
      return outside(args[1].toTensor(), {first, self.dim() == 0 ? 1 : self.size(-1)});
    }
    case lower::Bounds::kUnpooled:
      return outside(args[1].toTensor(), {0, c10::multiply_integers(args[2].toIntVector())});
  }
  return false;
}

bool has_outside(const at::Tensor& index, int64_t low, int64_t high, std::optional<int64_t> also) {
  return outside(index, {low, high, also.value_or(0), also.has_value()});
}

}  // namespace tpj::eager
