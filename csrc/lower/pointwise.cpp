// Element-wise operators of two or three arguments: arithmetic, comparison, logic, selection. They compute in PyTorch's
// opmath type; where a schema has a Tensor and a Scalar form, one function serves both.
#include "lower/common.h"
#include "lower/row.h"

namespace tpj::lower {
namespace {

using BinaryOp = Value (Builder::*)(const Value&, const Value&);

struct Pair {
  Value x, y;
};

// Arguments 0 and 1 in dtype `t`, broadcast to the result's size.
Pair pair(Call& c, DType t) { return {input(c, 0, t, c.result_dims()), input(c, 1, t, c.result_dims())}; }

// alpha * x, or x when alpha is exactly 1 (a special value, so the key tells them apart).
Value scaled(Call& c, Value x, size_t alpha) {
  TPJ_CHECK(!is_bool(x.dtype()) || !c.has(alpha) || c.number_kind(alpha) <= NumberKind::kInt, "alpha of ", c.name(),
            " is no integer");
  return c.absent_or(alpha, 1) ? x : c.b.mul(x, c.number(alpha, x.dtype(), x.dims()));
}

// ---- arithmetic

Values add(Call& c) {
  const auto [x, y] = pair(c, opmath(common_type(c)));
  // bool + bool is or.
  if (is_bool(x.dtype())) return {c.b.or_(x, c.absent_or(2, 1) ? y : c.b.and_(y, c.number(2, DType::Bool, y.dims())))};
  return {c.b.add(x, scaled(c, y, 2))};
}

Values sub(Call& c) {
  const auto [x, y] = pair(c, opmath(common_type(c)));
  return {c.b.sub(x, scaled(c, y, 2))};
}

Values rsub(Call& c) {
  const auto [x, y] = pair(c, opmath(common_type(c)));
  return {c.b.sub(y, scaled(c, x, 2))};
}

// x * y; bool: and.
Values mul(Call& c) {
  const auto [x, y] = pair(c, opmath(common_type(c)));
  return {is_bool(x.dtype()) ? c.b.and_(x, y) : c.b.mul(x, y)};
}

// Integer division by zero gives 0, where PyTorch's CPU raises: a program has no way to raise.
Value zero_where_divisor_is_zero(Builder& b, const Value& y, const Value& quotient) {
  return b.select(b.compare(Cmp::EQ, y, b.like(y, 0)), b.like(quotient, 0), quotient);
}

Value differ_in_sign(Builder& b, const Value& x, const Value& y) {
  const Value zero = b.like(x, 0);
  return b.compare(Cmp::NE, b.compare(Cmp::LT, x, zero), b.compare(Cmp::LT, y, zero));
}

Value nonzero(Builder& b, const Value& x) { return b.compare(Cmp::NE, x, b.like(x, 0)); }

Value truncate(Builder& b, const Value& x) {
  return b.select(b.compare(Cmp::LT, x, b.like(x, 0)), b.ceil(x), b.floor(x));
}

Value trunc_div(Builder& b, const Value& x, const Value& y) {
  if (is_float(x.dtype())) return truncate(b, b.div(x, y));
  return zero_where_divisor_is_zero(b, y, b.div(x, y));
}

Value with_sign_of(Builder& b, const Value& magnitude, const Value& sign);

// Floor of the exact quotient, by way of the exact remainder: the rounded quotient may be one too high.
Value floor_div_float(Builder& b, const Value& x, const Value& y) {
  const Value zero = b.like(x, 0), one = b.like(x, 1);
  const Value rem = b.rem(x, y), quotient = b.div(x, y);
  Value div = b.div(b.sub(x, rem), y);
  div = b.select(b.and_(nonzero(b, rem), differ_in_sign(b, rem, y)), b.sub(div, one), div);
  const Value low = b.floor(div);
  const Value rounded = b.select(b.compare(Cmp::GT, b.sub(div, low), b.like(x, 0.5)), b.add(low, one), low);
  const Value result = b.select(nonzero(b, div), rounded, with_sign_of(b, zero, quotient));
  return b.select(b.compare(Cmp::EQ, y, zero), quotient, result);
}

Value floor_div(Builder& b, const Value& x, const Value& y) {
  if (is_float(x.dtype())) return floor_div_float(b, x, y);
  if (is_unsigned(x.dtype())) return trunc_div(b, x, y);
  const Value quotient = b.div(x, y), rem = b.sub(x, b.mul(quotient, y));
  const Value inexact = b.and_(nonzero(b, rem), differ_in_sign(b, rem, y));
  return zero_where_divisor_is_zero(b, y, b.sub(quotient, b.convert(inexact, x.dtype())));
}

Values div(Call& c) {
  const auto [x, y] = pair(c, opmath(float_type(c)));
  return {c.b.div(x, y)};
}

Values div_mode(Call& c) {
  if (!c.has(2)) return div(c);
  const auto [x, y] = pair(c, opmath(common_type(c)));
  return {c.string(2) == "floor" ? floor_div(c.b, x, y) : trunc_div(c.b, x, y)};
}

Values floor_divide(Call& c) {
  const auto [x, y] = pair(c, opmath(common_type(c)));
  return {floor_div(c.b, x, y)};
}

// C's fmod: the sign of the dividend.
Values fmod(Call& c) {
  const auto [x, y] = pair(c, opmath(common_type(c)));
  const Value rem = c.b.rem(x, y);
  return {is_float(x.dtype()) ? rem : zero_where_divisor_is_zero(c.b, y, rem)};
}

// Python's %: the sign of the divisor.
Values remainder(Call& c) {
  const auto [x, y] = pair(c, opmath(common_type(c)));
  Builder& b = c.b;
  const Value rem = b.rem(x, y);
  if (is_unsigned(x.dtype())) return {zero_where_divisor_is_zero(b, y, rem)};
  const Value moved = b.select(b.and_(nonzero(b, rem), differ_in_sign(b, rem, y)), b.add(rem, y), rem);
  return {is_float(x.dtype()) ? moved : zero_where_divisor_is_zero(b, y, moved)};
}

// Exponents that PyTorch's CPU kernel computes without pow; std::nullopt-like empty Value: none of them.
Value easy_power(Call& c, const Value& x) {
  Builder& b = c.b;
  if (c.is(1, 0)) return b.like(x, 1);
  if (c.is(1, 1)) return x;
  if (c.is(1, 2)) return b.mul(x, x);
  if (c.is(1, 3)) return b.mul(b.mul(x, x), x);
  if (is_integer(x.dtype())) return {};
  if (c.is(1, 0.5)) return b.sqrt(x);
  if (c.is(1, -0.5)) return b.rsqrt(x);
  if (c.is(1, -1)) return b.div(b.like(x, 1), x);
  if (c.is(1, -2)) return b.div(b.like(x, 1), b.mul(x, x));
  return {};
}

Value any_nonzero(Builder& b, const Value& x) {
  const Value hit = nonzero(b, x);
  return hit.rank() == 0
             ? hit
             : b.reduce1(hit, b.constant({DType::Bool, {}}, false), normalized_dims({}, x.rank()), &Builder::or_);
}

// By squaring, wrapping around; XLA's own reads only the low 6 bits of an exponent. A negative exponent gives 0, but of
// 1 and -1 the sign that the parity asks for.
Value integer_power(Builder& b, const Value& x, const Value& y) {
  const Value zero = b.like(x, 0), one = b.like(x, 1);
  const auto odd = [&](const Value& v) { return b.compare(Cmp::NE, b.and_(v, b.like(v, 1)), b.like(v, 0)); };
  const Value negative = b.compare(Cmp::LT, y, zero), exponent = b.select(negative, zero, y);
  const auto unfinished = [&](const Values& v) { return Values{any_nonzero(b, v[2])}; };
  const auto step = [&](const Values& v) {  // result, square, bits of the exponent that are left
    return Values{b.select(odd(v[2]), b.mul(v[0], v[1]), v[0]), b.mul(v[1], v[1]), b.shrl(v[2], b.like(v[2], 1))};
  };
  const Value p = b.while_({one, x, exponent}, unfinished, step)[0];
  if (is_unsigned(x.dtype())) return p;
  const Value minus_one = b.sub(zero, one), unit = b.select(odd(y), x, one);
  const Value inverse = b.select(b.or_(b.compare(Cmp::EQ, x, one), b.compare(Cmp::EQ, x, minus_one)), unit, zero);
  return b.select(negative, inverse, p);
}

Value power(Builder& b, const Value& x, const Value& y) {
  if (is_bool(x.dtype())) return b.or_(x, b.not_(y));
  if (is_integer(x.dtype())) return integer_power(b, x, y);
  const Value p = b.pow(x, y);
  if (is_complex(x.dtype())) {
    // By way of log(0), x = 0 would give NaN.
    const Value zero = b.like(x, 0), re = b.real(y);
    const Value vanishes = b.and_(b.compare(Cmp::EQ, x, zero), b.compare(Cmp::GT, re, b.like(re, 0)));
    return b.select(b.compare(Cmp::EQ, y, zero), b.like(x, 1), b.select(vanishes, zero, p));
  }
  // 1 ** NaN and NaN ** 0 are 1 (IEEE 754, 9.2.1), which not every compiler's power knows.
  const Value one = b.like(x, 1);
  return b.select(b.or_(b.compare(Cmp::EQ, x, one), b.compare(Cmp::EQ, y, b.like(y, 0))), one, p);
}

Values pow(Call& c) {
  const DType t = opmath(common_type(c));
  if (is_number(c, 1) && c.known(1) && !is_bool(t)) {
    const Value x = c.operand(0, t, c.result_dims());
    if (const Value easy = easy_power(c, x)) return {easy};
  }
  const auto [x, y] = pair(c, t);
  return {power(c.b, x, y)};
}

// self + value * t1 * t2
Values addcmul(Call& c) {
  const DType t = opmath(c.common_dtype);
  const Dims& dims = c.result_dims();
  const Value product = c.b.mul(scaled(c, c.operand(1, t, dims), 3), c.operand(2, t, dims));
  return {c.b.add(c.operand(0, t, dims), product)};
}

// self + value * t1 / t2
Values addcdiv(Call& c) {
  const DType t = opmath(c.common_dtype);
  const Dims& dims = c.result_dims();
  const Value quotient = c.b.div(scaled(c, c.operand(1, t, dims), 3), c.operand(2, t, dims));
  return {c.b.add(c.operand(0, t, dims), quotient)};
}

// start + w * (end - start) for |w| < 1/2, else end - (end - start) * (1 - w): exact at both ends.
Values lerp(Call& c) {
  Builder& b = c.b;
  const DType t = opmath(common_type(c, 3));
  const Dims& dims = c.result_dims();
  const Value start = c.operand(0, t, dims), end = c.operand(1, t, dims);
  const Value w = is_number(c, 2) ? c.scalar(2, t) : c.operand(2, t, dims);
  const Value size = b.abs(w);
  const Value near = b.compare(Cmp::LT, size, b.like(size, 0.5));
  const Value weight = b.broadcast_to(b.select(near, w, b.sub(w, b.like(w, 1))), dims);
  return {b.add(b.select(near, start, end), b.mul(weight, b.sub(end, start)))};
}

// ---- comparison and extremes

// In the common type itself: a number is rounded to bfloat16 before it is compared with one.
template <Cmp direction>
Values compare(Call& c) {
  const auto [x, y] = pair(c, common_type(c));
  return {c.b.compare(direction, x, y)};
}

template <BinaryOp op, BinaryOp of_bool>
Values extreme(Call& c) {
  const auto [x, y] = pair(c, common_type(c));
  return {is_bool(x.dtype()) ? (c.b.*of_bool)(x, y) : (c.b.*op)(x, y)};
}

// Ignores a NaN when the other is a number.
template <BinaryOp op, BinaryOp of_bool>
Values extreme_number(Call& c) {
  Builder& b = c.b;
  const auto [x, y] = pair(c, common_type(c));
  if (is_bool(x.dtype())) return {(b.*of_bool)(x, y)};
  if (!is_float(x.dtype())) return {(b.*op)(x, y)};
  return {b.select(is_nan(b, x), y, b.select(is_nan(b, y), x, (b.*op)(x, y)))};
}

// min(max(x, low), high): the upper bound wins. x itself where it is within (-0 stays -0) or NaN; a NaN bound gives
// NaN.
Value clamped(Call& c, Value x, size_t low, size_t high) {
  const auto bounded = [&](size_t bound, Cmp within) {
    const Value limit = input(c, bound, x.dtype(), x.dims());
    x = c.b.select(c.b.or_(c.b.compare(within, x, limit), c.b.compare(Cmp::NE, x, x)), x, limit);
  };
  if (c.has(low)) bounded(low, Cmp::GE);
  if (c.has(high)) bounded(high, Cmp::LE);
  return x;
}

constexpr size_t kNoBound = 99;

template <size_t low, size_t high>
Values clamp(Call& c) {
  return {clamped(c, c.operand(0, c.result().dtype, c.result_dims()), low, high)};
}

// ---- logic and bits

template <BinaryOp op>
Values logical(Call& c) {
  const auto [x, y] = pair(c, DType::Bool);
  return {(c.b.*op)(x, y)};
}

Values logical_not(Call& c) { return {c.b.not_(c.tensor(0, DType::Bool))}; }

template <BinaryOp op>
Values bitwise(Call& c) {
  const auto [x, y] = pair(c, common_type(c));
  return {(c.b.*op)(x, y)};
}

Values bitwise_not(Call& c) { return {c.b.not_(c.tensor(0))}; }

// Shifts by the width or more (negative ones too, read as unsigned) leave nothing but the sign, here as in PyTorch.
Values right_shift(Call& c) {
  const auto [x, y] = pair(c, common_type(c));
  return {is_unsigned(x.dtype()) ? c.b.shrl(x, y) : c.b.shra(x, y)};
}

// ---- selection and filling

Values where(Call& c) {
  const DType t = c.result().dtype;
  const Dims& dims = c.result_dims();
  return {c.b.select(c.operand(0, DType::Bool, dims), input(c, 1, t, dims), input(c, 2, t, dims))};
}

// (self, mask, value), value a number or a 0-d tensor.
Values masked_fill(Call& c) {
  const DType t = c.result().dtype;
  const Dims& dims = c.result_dims();
  return {c.b.select(c.operand(1, DType::Bool, dims), input(c, 2, t, dims), c.operand(0, t, dims))};
}

Values fill(Call& c) { return {input(c, 1, c.result().dtype, c.result_dims())}; }

Values zero(Call& c) { return {c.b.constant(c.result(), 0)}; }

// ---- two-argument functions

// The integer type of the same width, to look at a float's bits.
DType bits_of(DType t) { return size_of(t) == 8 ? DType::I64 : size_of(t) == 4 ? DType::I32 : DType::I16; }

Value sign_bit(Builder& b, const Value& x) {
  const Value bits = b.bitcast(x, {bits_of(x.dtype()), x.dims()});
  return b.compare(Cmp::LT, bits, b.like(bits, 0));
}

Value with_sign_of(Builder& b, const Value& magnitude, const Value& sign) {
  const Value size = b.abs(magnitude);
  return b.select(sign_bit(b, sign), b.neg(size), size);
}

Values copysign(Call& c) {
  const auto [x, y] = pair(c, float_type(c));
  return {with_sign_of(c.b, x, y)};
}

Values atan2(Call& c) {
  const auto [x, y] = pair(c, opmath(float_type(c)));
  return {c.b.atan2(x, y)};
}

// Scaled by the greater, so that squares neither overflow nor vanish.
Values hypot(Call& c) {
  Builder& b = c.b;
  const auto [x, y] = pair(c, opmath(common_type(c)));
  const Value ax = b.abs(x), ay = b.abs(y), zero = b.like(x, 0), inf = inf_like(b, x);
  const Value big = b.max(ax, ay), ratio = b.div(b.min(ax, ay), big);
  const Value length = b.mul(big, b.sqrt(b.add(b.like(x, 1), b.mul(ratio, ratio))));
  const Value infinite = b.or_(b.compare(Cmp::EQ, ax, inf), b.compare(Cmp::EQ, ay, inf));
  return {b.select(infinite, inf, b.select(b.compare(Cmp::EQ, big, zero), zero, length))};
}

// log(e^x + e^y) = max + log1p(e^-|x - y|), and the same in base 2.
template <bool base2>
Values logaddexp(Call& c) {
  Builder& b = c.b;
  const auto [x, y] = pair(c, opmath(float_type(c)));
  constexpr double kLn2 = 0.693147180559945309417232;
  if (is_complex(x.dtype())) {
    const Value first = b.compare(Cmp::GE, b.real(x), b.real(y));
    const Value big = b.select(first, x, y), small = b.select(first, y, x);
    const Value one = b.complex_constant(x.type, 1, 0);
    return {b.add(big, b.log(b.add(one, b.exp(b.sub(small, big)))))};
  }
  const Value big = b.max(x, y), gap = b.neg(b.abs(b.sub(x, y)));
  const Value tail =
      base2 ? b.div(b.log1p(b.exp(b.mul(gap, b.like(gap, kLn2)))), b.like(gap, kLn2)) : b.log1p(b.exp(gap));
  // Equal infinities: their difference would be NaN.
  const Value same_inf = b.and_(b.compare(Cmp::EQ, x, y), b.compare(Cmp::EQ, b.abs(x), inf_like(b, x)));
  return {b.select(same_inf, x, b.add(big, tail))};
}

// x * log(y), 0 where x is 0 unless y is NaN.
template <Value (Builder::*log)(const Value&)>
Values x_times_log(Call& c) {
  Builder& b = c.b;
  const auto [x, y] = pair(c, opmath(float_type(c)));
  const Value zero = b.like(x, 0), product = b.mul(x, (b.*log)(y));
  return {b.select(is_nan(b, y), y, b.select(b.compare(Cmp::EQ, x, zero), zero, product))};
}

// Hurwitz zeta: infinite at x = 1 and where q is 0 or a negative integer, undefined for x < 1 and for fractional powers
// of negative numbers.
Values zeta(Call& c) {
  Builder& b = c.b;
  const auto [x, q] = pair(c, opmath(float_type(c)));
  const Value one = b.like(x, 1), inf = inf_like(b, x), nan = nan_like(b, x), z = b.chlo("zeta", {x, q});
  const Value at_pole =
      b.select(b.compare(Cmp::EQ, q, b.floor(q)), inf, b.select(b.compare(Cmp::NE, x, b.floor(x)), nan, z));
  const Value defined = b.select(b.compare(Cmp::LE, q, b.like(q, 0)), at_pole, z);
  return {b.select(b.compare(Cmp::EQ, x, one), inf, b.select(b.compare(Cmp::GT, x, one), defined, nan))};
}

Values heaviside(Call& c) {
  Builder& b = c.b;
  const auto [x, y] = pair(c, common_type(c));
  if (is_bool(x.dtype())) return {b.or_(x, y)};
  const Value zero = b.like(x, 0), one = b.like(x, 1);
  // A NaN counts as negative.
  return {b.select(b.compare(Cmp::EQ, x, zero), y, b.select(b.compare(Cmp::GT, x, zero), one, zero))};
}

// One step towards y: a float's bits are ordered like its magnitude.
Values nextafter(Call& c) {
  Builder& b = c.b;
  const auto [x, y] = pair(c, common_type(c));
  const DType t = x.dtype();
  const Type bits_type{bits_of(t), x.dims()};
  const Value bits = b.bitcast(x, bits_type), one = b.constant(bits_type, 1);
  const Value grows = b.compare(Cmp::EQ, b.compare(Cmp::LT, x, y), b.compare(Cmp::GT, x, b.like(x, 0)));
  const Value moved = b.bitcast(b.select(grows, b.add(bits, one), b.sub(bits, one)), x.type);
  const Value smallest = with_sign_of(b, b.bitcast(one, x.type), y);
  Value out = b.select(b.compare(Cmp::EQ, bits, b.constant(bits_type, 0)), smallest, moved);
  out = b.select(b.compare(Cmp::EQ, b.bitcast(b.neg(x), bits_type), b.constant(bits_type, 0)), smallest, out);
  out = b.select(b.compare(Cmp::EQ, x, y), y, out);
  return {b.select(b.or_(is_nan(b, x), is_nan(b, y)), nan_like(b, x), out)};
}

// Euclid's algorithm on magnitudes, until every element is done.
Value greatest_common_divisor(Builder& b, const Value& x, const Value& y) {
  const auto unfinished = [&](const Values& v) { return Values{any_nonzero(b, v[1])}; };
  const auto step = [&](const Values& v) {
    const Value zero = b.like(v[1], 0), done = b.compare(Cmp::EQ, v[1], zero);
    const Value divisor = b.select(done, b.like(v[1], 1), v[1]);
    return Values{b.select(done, v[0], v[1]), b.select(done, zero, b.rem(v[0], divisor))};
  };
  return b.while_({b.abs(x), b.abs(y)}, unfinished, step)[0];
}

Values gcd(Call& c) {
  const auto [x, y] = pair(c, common_type(c));
  return {greatest_common_divisor(c.b, x, y)};
}

// Narrow integers are multiplied as int32, and wrap after the absolute value.
Values lcm(Call& c) {
  Builder& b = c.b;
  const DType t = common_type(c);
  const auto [x, y] = pair(c, size_of(t) < 4 ? DType::I32 : t);
  const Value g = greatest_common_divisor(b, x, y), zero = b.like(g, 0), none = b.compare(Cmp::EQ, g, zero);
  return {b.select(none, zero, b.abs(b.mul(b.div(x, b.select(none, b.like(g, 1), g)), y)))};
}

// ---- complex

Values complex(Call& c) {
  const DType t = real_of(c.result().dtype);
  TPJ_CHECK(c.type(0).dtype == c.type(1).dtype, "complex: a real part of ", info(c.type(0).dtype).name,
            ", an imaginary part of ", info(c.type(1).dtype).name);
  return {c.b.complex(c.operand(0, t, c.result_dims()), c.operand(1, t, c.result_dims()))};
}

Values polar(Call& c) {
  Builder& b = c.b;
  const DType t = real_of(c.result().dtype);
  const Value r = c.operand(0, t, c.result_dims()), angle = c.operand(1, t, c.result_dims());
  return {b.complex(b.mul(r, b.cos(angle)), b.mul(r, b.sin(angle)))};
}

// The values of a number for which add, sub and their like become simpler.
Row::Options alpha() { return {.special = {{"alpha", {1}}}}; }
Row::Options value() { return {.special = {{"value", {1}}}}; }

bool integers(const GivenNumber& number, DType t) {
  return number.given && number.kind <= NumberKind::kInt && !is_float(t) && !is_complex(t);
}

bool integer_by_zero(std::span<const GivenNumber> args, DType t) { return integers(args[1], t) && args[1].value == 0; }

bool integer_to_negative(std::span<const GivenNumber> args, DType t) {
  return integers(args[1], t) && args[1].value < 0;
}

}  // namespace

std::vector<Row> pointwise_rows() {
  constexpr auto max = extreme<&Builder::max, &Builder::or_>, min = extreme<&Builder::min, &Builder::and_>;
  return {
      {"__lshift__.Scalar", bitwise<&Builder::shl>},
      {"__lshift__.Tensor", bitwise<&Builder::shl>},
      {"__rshift__.Scalar", right_shift},
      {"__rshift__.Tensor", right_shift},
      {"add.Scalar", add, alpha()},
      {"add.Tensor", add, alpha()},
      {"addcdiv", addcdiv, value()},
      {"addcmul", addcmul, value()},
      {"atan2", atan2},
      {"bitwise_and.Scalar", bitwise<&Builder::and_>},
      {"bitwise_and.Tensor", bitwise<&Builder::and_>},
      {"bitwise_left_shift.Tensor", bitwise<&Builder::shl>},
      {"bitwise_left_shift.Tensor_Scalar", bitwise<&Builder::shl>},
      {"bitwise_not", bitwise_not},
      {"bitwise_or.Scalar", bitwise<&Builder::or_>},
      {"bitwise_or.Tensor", bitwise<&Builder::or_>},
      {"bitwise_right_shift.Tensor", right_shift},
      {"bitwise_right_shift.Tensor_Scalar", right_shift},
      {"bitwise_xor.Scalar", bitwise<&Builder::xor_>},
      {"bitwise_xor.Tensor", bitwise<&Builder::xor_>},
      {"clamp", clamp<1, 2>},
      {"clamp.Tensor", clamp<1, 2>},
      {"clamp_max", clamp<kNoBound, 1>},
      {"clamp_max.Tensor", clamp<kNoBound, 1>},
      {"clamp_min", clamp<1, kNoBound>},
      {"clamp_min.Tensor", clamp<1, kNoBound>},
      {"complex", complex},
      {"copysign.Scalar", copysign},
      {"copysign.Tensor", copysign},
      {"div.Scalar", div},
      {"div.Tensor", div},
      {"div.Tensor_mode", div_mode, {.refuses = integer_by_zero}},
      {"eq.Scalar", compare<Cmp::EQ>},
      {"eq.Tensor", compare<Cmp::EQ>},
      {"fill.Scalar", fill, {.may_overlap = true}},
      {"fill.Tensor", fill, {.may_overlap = true}},
      {"floor_divide", floor_divide, {.refuses = integer_by_zero}},
      {"floor_divide.Scalar", floor_divide, {.refuses = integer_by_zero}},
      {"floor_divide_.Tensor", floor_divide, {.refuses = integer_by_zero}},
      {"fmax", extreme_number<&Builder::max, &Builder::or_>},
      {"fmin", extreme_number<&Builder::min, &Builder::and_>},
      {"fmod.Scalar", fmod, {.refuses = integer_by_zero}},
      {"fmod.Tensor", fmod, {.refuses = integer_by_zero}},
      {"gcd", gcd},
      {"ge.Scalar", compare<Cmp::GE>},
      {"ge.Tensor", compare<Cmp::GE>},
      {"gt.Scalar", compare<Cmp::GT>},
      {"gt.Tensor", compare<Cmp::GT>},
      {"heaviside", heaviside},
      {"hypot", hypot},
      {"lcm", lcm},
      {"le.Scalar", compare<Cmp::LE>},
      {"le.Tensor", compare<Cmp::LE>},
      {"lerp.Scalar", lerp},
      {"lerp.Tensor", lerp},
      {"logaddexp", logaddexp<false>},
      {"logaddexp2", logaddexp<true>},
      {"logical_and", logical<&Builder::and_>},
      {"logical_not", logical_not},
      {"logical_or", logical<&Builder::or_>},
      {"logical_xor", logical<&Builder::xor_>},
      {"lt.Scalar", compare<Cmp::LT>},
      {"lt.Tensor", compare<Cmp::LT>},
      {"masked_fill.Scalar", masked_fill, {.may_overlap = true}},
      {"masked_fill.Tensor", masked_fill, {.may_overlap = true}},
      {"maximum", max},
      {"minimum", min},
      {"mul.Scalar", mul},
      {"mul.Tensor", mul},
      {"ne.Scalar", compare<Cmp::NE>},
      {"ne.Tensor", compare<Cmp::NE>},
      {"nextafter", nextafter},
      {"polar", polar},
      {"pow.Scalar", pow},
      {"pow.Tensor_Scalar",
       pow,
       {.special = {{"exponent", {0, 0.5, 1, 2, 3, -0.5, -1, -2}}}, .refuses = integer_to_negative}},
      {"pow.Tensor_Tensor", pow},
      {"remainder.Scalar", remainder, {.refuses = integer_by_zero}},
      {"remainder.Scalar_Tensor", remainder},
      {"remainder.Tensor", remainder, {.refuses = integer_by_zero}},
      {"rsub.Scalar", rsub, alpha()},
      {"rsub.Tensor", rsub, alpha()},
      {"special_xlog1py", x_times_log<&Builder::log1p>},
      {"special_zeta", zeta},
      {"sub.Scalar", sub, alpha()},
      {"sub.Tensor", sub, alpha()},
      {"where.self", where},
      {"xlogy.Scalar_Other", x_times_log<&Builder::log>},
      {"xlogy.Scalar_Self", x_times_log<&Builder::log>},
      {"xlogy.Tensor", x_times_log<&Builder::log>},
      {"zero", zero, {.may_overlap = true}},
  };
}

}  // namespace tpj::lower
