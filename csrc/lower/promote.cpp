#include "lower/promote.h"

namespace tpj::lower {
namespace {

int category(DType t) { return is_complex(t) ? 3 : is_float(t) ? 2 : is_integer(t) ? 1 : 0; }

DType promote_integers(DType a, DType b) {
  const bool ua = is_unsigned(a), ub = is_unsigned(b);
  if (ua == ub) return size_of(a) >= size_of(b) ? a : b;
  const DType s = ua ? b : a, u = ua ? a : b;
  if (size_of(s) > size_of(u)) return s;
  // A signed type that holds both; PyTorch knows this for uint8 only and refuses the wider ones before they get here.
  return size_of(u) == 1 ? DType::I16 : size_of(u) == 2 ? DType::I32 : DType::I64;
}

DType promote_floats(DType a, DType b) {
  if (size_of(a) == size_of(b)) return size_of(a) == 2 ? DType::F32 : a;  // float16 with bfloat16
  return size_of(a) > size_of(b) ? a : b;
}

}  // namespace

DType promote(DType a, DType b) {
  if (a == b) return a;
  if (category(a) != category(b)) {
    const DType high = category(a) > category(b) ? a : b, low = category(a) > category(b) ? b : a;
    // complex<f32> with f64 is complex<f64>.
    return is_complex(high) && low == DType::F64 ? DType::C128 : high;
  }
  switch (category(a)) {
    case 3:
      return DType::C128;
    case 2:
      return promote_floats(a, b);
    case 1:
      return promote_integers(a, b);
    default:
      return a;
  }
}

DType result_type(const std::vector<Type>& tensors) {
  std::optional<DType> sized, scalars;
  for (const Type& t : tensors) {
    std::optional<DType>& kind = t.dims.empty() ? scalars : sized;
    kind = kind ? promote(*kind, t.dtype) : t.dtype;
  }
  if (!sized || !scalars) return sized ? *sized : scalars.value_or(DType::F32);
  if (category(*scalars) <= category(*sized)) return *sized;
  // A float keeps its width when a 0-d complex number meets it.
  return is_float(*sized) ? complex_of(*sized) : *scalars;
}

DType promote_number(DType tensor, NumberKind number) {
  if (static_cast<int>(number) <= category(tensor)) return tensor;
  switch (number) {
    case NumberKind::kInt:
      return DType::I64;
    case NumberKind::kFloat:
      return DType::F32;
    case NumberKind::kComplex:
      return tensor == DType::F64 ? DType::C128 : DType::C64;
    default:
      return tensor;
  }
}

}  // namespace tpj::lower
