#include "eager/bounds.h"

#include <ATen/ATen.h>

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
  if (!index.defined() || index.numel() == 0) return false;
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

}  // namespace

bool suspicious_positions(lower::Positions kind, const c10::IValue* args) {
  if (!runtime::client().caps().host_visible_buffers || runtime::CellWatcher::watches_any()) return false;
  const at::Tensor& self = args[0].toTensor();
  switch (kind) {
    case lower::Positions::kNone:
      return false;
    case lower::Positions::kAlongDim: {
      const int64_t dim = args[1].toInt(), rank = self.dim();
      if (dim < -rank || dim >= rank) return false;  // the meta kernel's error
      return outside(args[2].toTensor(), {0, self.size(dim)});
    }
    case lower::Positions::kClasses: {
      const int64_t classes = self.dim() == 0 ? 1 : self.size(self.dim() == 1 ? 0 : 1);
      return outside(args[1].toTensor(), {0, classes, args[4].toInt(), true});
    }
    case lower::Positions::kFlat:
      return outside(args[1].toTensor(), {-self.numel(), self.numel()});
    case lower::Positions::kIndices: {
      const auto indices = args[1].toOptionalTensorList();
      int64_t dim = 0;
      for (const std::optional<at::Tensor> index : indices) {
        const bool given = index && index->defined();
        const bool mask = given && (index->scalar_type() == at::kBool || index->scalar_type() == at::kByte);
        if (given && !mask && dim < self.dim() && outside(*index, {-self.size(dim), self.size(dim)})) return true;
        dim += mask ? index->dim() : 1;
      }
      return false;
    }
    case lower::Positions::kRows:
      return self.dim() > 0 && outside(args[1].toTensor(), {0, self.size(0)});
    case lower::Positions::kTargets:
    case lower::Positions::kTargetLists: {
      const int64_t first = kind == lower::Positions::kTargets ? 0 : -1;
      return outside(args[1].toTensor(), {first, self.dim() == 0 ? 1 : self.size(-1)});
    }
    case lower::Positions::kUnpooled:
      return outside(args[1].toTensor(), {0, c10::multiply_integers(args[2].toIntVector())});
  }
  return false;
}

bool has_outside(const at::Tensor& index, int64_t low, int64_t high, std::optional<int64_t> also) {
  return runtime::client().caps().host_visible_buffers &&
         outside(index, {low, high, also.value_or(0), also.has_value()});
}

}  // namespace tpj::eager
