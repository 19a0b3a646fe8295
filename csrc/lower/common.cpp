#include "lower/common.h"

#include <cmath>

namespace tpj::lower {
namespace {

// Truncation of a float to i32 or i64; what doesn't fit (NaN too) becomes the least integer, as x86 does it.
Value truncate(Builder& b, const Value& x, DType to) {
  const double limit = to == DType::I32 ? 0x1p31 : 0x1p63;
  const Value fits = b.compare(Cmp::LT, b.abs(x), b.like(x, limit));
  return b.select(fits, b.convert(x, to), b.min_value({to, x.dims()}));
}

// Values from 2^63 on have no signed form; from 2^64 on, and NaN, nothing is defined.
Value truncate_to_u64(Builder& b, const Value& x) {
  const Value small = b.convert(truncate(b, x, DType::I64), DType::U64);
  const Value large = b.compare(Cmp::GE, x, b.like(x, 0x1p63));
  const Value fits = b.compare(Cmp::LT, x, b.like(x, 0x1p64));
  return b.select(large, b.select(fits, b.convert(x, DType::U64), b.constant(small.type, 0)), small);
}

Value float_to_integer(Builder& b, Value x, DType to) {
  if (size_of(x.dtype()) < 4) x = b.convert(x, DType::F32);
  if (to == DType::U64) return truncate_to_u64(b, x);
  const DType wide = to == DType::I64 || to == DType::U32 ? DType::I64 : DType::I32;
  return b.convert(truncate(b, x, wide), to);  // narrower integers wrap
}

}  // namespace

double greatest(DType t) {
  switch (t) {
    case DType::F16:
      return 65504;
    case DType::BF16:
      return 0x1.fep127;
    case DType::F32:
    case DType::C64:
      return std::numeric_limits<float>::max();
    default:
      return std::numeric_limits<double>::max();
  }
}

Value cast(Builder& b, const Value& x, DType to) {
  const DType from = x.dtype();
  if (from == to) return x;
  if (is_bool(to)) {
    if (is_complex(from)) return b.or_(cast(b, b.real(x), to), cast(b, b.imag(x), to));
    return b.compare(Cmp::NE, x, b.constant(x.type, 0));
  }
  if (is_complex(from) && !is_complex(to)) return cast(b, b.real(x), to);
  if (is_complex(to) && !is_complex(from)) {
    const Value re = cast(b, x, real_of(to));
    return b.complex(re, b.like(re, 0));
  }
  if (is_float(from) && is_integer(to)) return float_to_integer(b, x, to);
  // PyTorch's narrow floats are made from float32 (so float64 and wide integers round twice).
  if (is_float(to) && size_of(to) < 4 && from != DType::F32) return b.convert(b.convert(x, DType::F32), to);
  return b.convert(x, to);
}

Dims broadcast_sizes(const std::vector<Dims>& shapes) {
  size_t rank = 0;
  for (const Dims& s : shapes) rank = std::max(rank, s.size());
  Dims out(rank, 1);
  for (const Dims& s : shapes)
    for (size_t i = 0; i < s.size(); ++i)
      if (s[i] != 1) out[rank - s.size() + i] = s[i];
  return out;
}

}  // namespace tpj::lower
