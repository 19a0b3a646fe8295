// Small steps that several families share.
#pragma once

#include <algorithm>
#include <limits>

#include "lower/promote.h"

namespace tpj::lower {

// A string literal as a template argument, for lowerings that differ in one name.
template <size_t N>
struct FixedString {
  char text[N];
  constexpr FixedString(const char (&s)[N]) { std::copy_n(s, N, text); }
  constexpr operator std::string_view() const { return {text, N - 1}; }
};

// x as PyTorch's Tensor.to converts on x86: to bool is "not 0", complex to real drops the imaginary part, floats
// truncate towards zero, narrower integers wrap; a float outside int32 (for int64: outside int64) and NaN give the
// least integer before wrapping, so 300.0 is uint8 44 and -1.0 is 255.
Value cast(Builder& b, const Value& x, DType to);

inline bool is_number(const Call& c, size_t i) { return i < c.arg_count() && c.arg(i).kind == Arg::Kind::kNumber; }

// Argument i, a tensor or a number, as a value of that dtype and size: one lowering serves op.Tensor and op.Scalar.
inline Value input(const Call& c, size_t i, DType dtype, const Dims& dims) {
  if (is_number(c, i)) return c.number(i, dtype, dims);
  const Value x = c.tensor(i);
  // XLA turns x * convert(bool) into a select, which loses 0 * inf = NaN; x * select(bool, 1, 0) it leaves alone.
  if (is_bool(x.dtype()) && is_float(dtype)) {
    const Type type{dtype, x.dims()};
    return c.b.broadcast_to(c.b.select(x, c.b.constant(type, 1), c.b.constant(type, 0)), dims);
  }
  return c.operand(i, dtype, dims);
}

// PyTorch's common dtype of the tensors and those of the first `n` arguments that are numbers.
inline DType common_type(const Call& c, size_t n = 2) {
  DType t = c.common_dtype;
  for (size_t i = 0; i < std::min(n, c.arg_count()); ++i)
    if (is_number(c, i)) t = promote_number(t, c.number_kind(i));
  return t;
}

// The same for operators that turn integers into floats (of the default dtype, which the meta kernel knows).
inline DType float_type(const Call& c, size_t n = 2) {
  const DType t = common_type(c, n);
  if (is_float(t) || is_complex(t)) return t;
  return c.result_count() > 0 && is_float(c.result().dtype) ? c.result().dtype : DType::F32;
}

// The greatest finite number of a floating-point type, or of a complex type's parts.
double greatest(DType t);

inline Value inf_like(Builder& b, const Value& x) { return b.like(x, std::numeric_limits<double>::infinity()); }
inline Value nan_like(Builder& b, const Value& x) { return b.like(x, std::numeric_limits<double>::quiet_NaN()); }
inline Value is_nan(Builder& b, const Value& x) { return b.compare(Cmp::NE, x, x); }

// `dims` without negative entries; all dimensions when empty.
inline Dims normalized_dims(Dims dims, int64_t rank) {
  if (dims.empty())
    for (int64_t i = 0; i < rank; ++i) dims.push_back(i);
  for (int64_t& d : dims) d += d < 0 ? rank : 0;
  // PyTorch lets a 0-d tensor be reduced over dim 0 or -1.
  if (rank == 0) dims.clear();
  std::sort(dims.begin(), dims.end());
  return dims;
}

inline int64_t normalized_dim(int64_t dim, int64_t rank) { return dim < 0 ? dim + rank : dim; }

// The same of a dimension from which one element is taken; PyTorch's meta kernels let one without elements pass.
inline int64_t dim_with_elements(int64_t dim, const Value& x) {
  const int64_t d = normalized_dim(dim, x.rank());
  if (x.dim(d) == 0) fail(ErrorKind::kIndex, str("Expected reduction dim ", d, " to have non-zero size."));
  return d;
}

// Sizes that PyTorch's broadcasting gives.
Dims broadcast_sizes(const std::vector<Dims>& shapes);

inline int64_t size_over(const Dims& sizes, const Dims& dims) {
  int64_t n = 1;
  for (int64_t d : dims) n *= sizes[static_cast<size_t>(d)];
  return n;
}

// Repeats a value that lacks the dimensions `dims` of `sizes` along them: undoes a reduction without keepdim.
inline Value broadcast_over(Builder& b, const Value& x, const Dims& sizes, const Dims& dims) {
  Dims map;
  for (int64_t i = 0; i < static_cast<int64_t>(sizes.size()); ++i)
    if (std::find(dims.begin(), dims.end(), i) == dims.end()) map.push_back(i);
  return b.broadcast_in_dim(x, sizes, map);
}

inline Value sum_over(Builder& b, const Value& x, const Dims& dims) {
  return dims.empty() ? x : b.reduce1(x, b.scalar(x.dtype(), 0), dims, &Builder::add);
}

inline Value max_over(Builder& b, const Value& x, const Dims& dims) {
  return dims.empty() ? x : b.reduce1(x, b.min_value({x.dtype(), {}}), dims, &Builder::max);
}

// The mean of 0 elements is NaN, as in PyTorch.
inline Value mean_over(Builder& b, const Value& x, const Dims& dims) {
  const Value s = sum_over(b, x, dims);
  return b.div(s, b.like(s, static_cast<double>(size_over(x.dims(), dims))));
}

}  // namespace tpj::lower
