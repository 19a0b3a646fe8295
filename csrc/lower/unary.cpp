// Element-wise functions of one argument: rounding, signs, predicates, exponentials, trigonometry, special functions.
#include "lower/common.h"
#include "lower/row.h"

#include <cmath>

namespace tpj::lower {
namespace {

using UnaryOp = Value (Builder::*)(const Value&);

constexpr double kPi = 3.14159265358979323846264;
constexpr double kLn2 = 0.693147180559945309417232;
constexpr double kLn10 = 2.30258509299404568401799;

// Tensor 0 as a float of at least 32 bits.
Value float_input(Call& c) { return c.tensor(0, opmath(float_type(c, 1))); }

template <UnaryOp op>
Values float_function(Call& c) {
  return {(c.b.*op)(float_input(c))};
}

template <FixedString mnemonic>
Values chlo_function(Call& c) {
  return {c.b.chlo(mnemonic, {float_input(c)})};
}

// ---- rounding: integers stay as they are

Value truncate(Builder& b, const Value& x) {
  return b.select(b.compare(Cmp::LT, x, b.like(x, 0)), b.ceil(x), b.floor(x));
}

template <Value (*f)(Builder&, const Value&)>
Values rounding(Call& c) {
  const Value x = c.tensor(0);
  return {is_float(x.dtype()) ? f(c.b, x) : x};
}

Value ceil(Builder& b, const Value& x) { return b.ceil(x); }
Value floor(Builder& b, const Value& x) { return b.floor(x); }
Value round(Builder& b, const Value& x) { return b.round_even(x); }
Value fraction(Builder& b, const Value& x) { return b.sub(x, truncate(b, x)); }

// (self, decimals)
Values round_decimals(Call& c) {
  Builder& b = c.b;
  const Value x = c.tensor(0, opmath(c.type(0).dtype));
  const int64_t decimals = c.integer(1);
  if (!is_float(x.dtype()) || decimals == 0) return {is_float(x.dtype()) ? b.round_even(x) : x};
  const Value ten = b.like(x, std::pow(10.0, static_cast<double>(std::abs(decimals))));
  return {decimals > 0 ? b.div(b.round_even(b.mul(x, ten)), ten) : b.mul(b.round_even(b.div(x, ten)), ten)};
}

// ---- signs

Values absolute(Call& c) { return {c.b.abs(c.tensor(0))}; }

Values negate(Call& c) {
  const Value x = c.tensor(0);
  return {is_unsigned(x.dtype()) ? c.b.sub(c.b.like(x, 0), x) : c.b.neg(x)};
}

// -1, 0 or 1; 0 for NaN.
Values sign(Call& c) {
  Builder& b = c.b;
  const Value x = c.tensor(0);
  if (is_bool(x.dtype())) return {x};
  const Value zero = b.like(x, 0), up = b.convert(b.compare(Cmp::GT, x, zero), x.dtype());
  return {is_unsigned(x.dtype()) ? up : b.sub(up, b.convert(b.compare(Cmp::LT, x, zero), x.dtype()))};
}

// x / |x| for complex numbers.
Values sgn(Call& c) {
  Builder& b = c.b;
  const Value x = c.tensor(0);
  if (!is_complex(x.dtype())) return sign(c);
  const Value size = b.abs(x), zero = b.like(size, 0), is_zero = b.compare(Cmp::EQ, size, zero);
  return {b.select(is_zero, b.complex(zero, zero), b.complex(b.div(b.real(x), size), b.div(b.imag(x), size)))};
}

Values signbit(Call& c) {
  Builder& b = c.b;
  const Value x = c.tensor(0);
  if (is_bool(x.dtype()) || is_unsigned(x.dtype())) return {b.constant(Type{DType::Bool, x.dims()}, false)};
  if (!is_float(x.dtype())) return {b.compare(Cmp::LT, x, b.like(x, 0))};
  const DType bits = size_of(x.dtype()) == 8 ? DType::I64 : size_of(x.dtype()) == 4 ? DType::I32 : DType::I16;
  const Value v = b.bitcast(x, {bits, x.dims()});
  return {b.compare(Cmp::LT, v, b.like(v, 0))};
}

// Of a real number: 0, or pi where it is negative.
Values angle(Call& c) {
  Builder& b = c.b;
  const Value x = c.tensor(0, float_type(c, 1));
  if (is_complex(x.dtype())) return {b.atan2(b.imag(x), b.real(x))};
  const Value side = b.select(b.compare(Cmp::LT, x, b.like(x, 0)), b.like(x, kPi), b.like(x, 0));
  return {b.select(is_nan(b, x), x, side)};
}

Values conj_physical(Call& c) {
  const Value x = c.tensor(0);
  return {is_complex(x.dtype()) ? c.b.complex(c.b.real(x), c.b.neg(c.b.imag(x))) : x};
}

// ---- predicates: false for what is not a float

using Predicate = Value (*)(Builder&, const Value&);

template <Predicate p>
Values predicate(Call& c) {
  Builder& b = c.b;
  const Value x = c.tensor(0);
  if (is_complex(x.dtype())) return {b.or_(p(b, b.real(x)), p(b, b.imag(x)))};
  return {is_float(x.dtype()) ? p(b, x) : b.constant(Type{DType::Bool, x.dims()}, false)};
}

Value infinite(Builder& b, const Value& x) { return b.compare(Cmp::EQ, b.abs(x), inf_like(b, x)); }
Value plus_infinite(Builder& b, const Value& x) { return b.compare(Cmp::EQ, x, inf_like(b, x)); }
Value minus_infinite(Builder& b, const Value& x) { return b.compare(Cmp::EQ, x, b.neg(inf_like(b, x))); }

// (self, nan, posinf, neginf): by default 0 and the greatest and least finite number.
Value without_nonfinite(Call& c, const Value& x) {
  Builder& b = c.b;
  const double most = greatest(x.dtype());
  const auto given_or = [&](size_t i, double otherwise) {
    return c.has(i) ? c.number(i, x.dtype(), x.dims()) : b.like(x, otherwise);
  };
  const Value finite =
      b.select(plus_infinite(b, x), given_or(2, most), b.select(minus_infinite(b, x), given_or(3, -most), x));
  return b.select(is_nan(b, x), given_or(1, 0), finite);
}

Values nan_to_num(Call& c) {
  const Value x = c.tensor(0);
  if (is_complex(x.dtype())) return {c.b.complex(without_nonfinite(c, c.b.real(x)), without_nonfinite(c, c.b.imag(x)))};
  return {is_float(x.dtype()) ? without_nonfinite(c, x) : x};
}

// ---- powers, exponentials, logarithms

Values reciprocal(Call& c) {
  const Value x = float_input(c);
  return {c.b.div(c.b.like(x, 1), x)};
}

Values exp2(Call& c) {
  const Value x = float_input(c);
  if (is_complex(x.dtype())) return {c.b.exp(c.b.mul(x, c.b.like(x, kLn2)))};
  return {c.b.pow(c.b.like(x, 2), x)};
}

Value log_over(Call& c, double ln_base) {
  const Value x = float_input(c);
  return c.b.div(c.b.log(x), c.b.like(x, ln_base));
}

Values log2(Call& c) { return {log_over(c, kLn2)}; }
Values log10(Call& c) { return {log_over(c, kLn10)}; }

// -x log x, 0 at 0, -inf below.
Values entropy(Call& c) {
  Builder& b = c.b;
  const Value x = float_input(c), zero = b.like(x, 0);
  const Value outside = b.select(b.compare(Cmp::EQ, x, zero), zero, b.neg(inf_like(b, x)));
  return {b.select(is_nan(b, x), x, b.select(b.compare(Cmp::GT, x, zero), b.neg(b.mul(x, b.log(x))), outside))};
}

// ---- hyperbolic and inverse functions: CHLO's, where those are exact enough

// Half of e^|x| and of e^-|x|, which neither overflow early nor lose digits as e^(|x| + log(1/2)) does.
std::pair<Value, Value> half_exponentials(Builder& b, const Value& x) {
  const Value root = b.exp(b.mul(b.abs(x), b.like(x, 0.5))), half = b.like(x, 0.5);
  return {b.mul(b.mul(root, half), root), b.div(b.div(half, root), root)};
}

Values cosh(Call& c) {
  const Value x = float_input(c);
  if (is_complex(x.dtype())) return {c.b.chlo("cosh", {x})};
  const auto [up, down] = half_exponentials(c.b, x);
  return {c.b.add(up, down)};
}

// Near 0 by expm1.
Values sinh(Call& c) {
  Builder& b = c.b;
  const Value x = float_input(c);
  if (is_complex(x.dtype())) return {b.chlo("sinh", {x})};
  const auto [up, down] = half_exponentials(b, x);
  const Value size = b.sub(up, down), large = b.select(b.compare(Cmp::LT, x, b.like(x, 0)), b.neg(size), size);
  const Value e = b.expm1(x), small = b.mul(b.add(e, b.div(e, b.add(e, b.like(x, 1)))), b.like(x, 0.5));
  return {b.select(b.compare(Cmp::LT, b.abs(x), b.like(x, 1)), small, large)};
}

// atan2(x, 1), with a 1 that a compiler can't see through (0 for NaN): LLVM's vector form of atan2 with a constant 1 is
// wrong from 64 elements on, in an XLA CPU plugin (lammps-jax-pjrt-cpu 0.11.2).
Values atan(Call& c) {
  Builder& b = c.b;
  const Value x = float_input(c);
  if (is_complex(x.dtype())) return {b.chlo("atan", {x})};
  return {b.atan2(x, b.convert(b.compare(Cmp::EQ, x, x), x.dtype()))};
}

// ---- special functions

// sin(pi x) / (pi x), 1 at 0.
Values sinc(Call& c) {
  Builder& b = c.b;
  const Value x = float_input(c), y = b.mul(x, b.like(x, kPi)), zero = b.like(x, 0);
  return {b.select(b.compare(Cmp::EQ, x, zero), b.like(x, 1), b.div(b.sin(y), y))};
}

Value digamma(Builder& b, const Value& x) {
  // The pole at 0 has a sign.
  return b.select(b.compare(Cmp::EQ, x, b.like(x, 0)), b.div(b.like(x, -1), x), b.chlo("digamma", {x}));
}

Values digamma(Call& c) { return {digamma(c.b, float_input(c))}; }

Value integer_power(Builder& b, const Value& x, int64_t n) {
  Value p = x;
  for (int64_t i = 1; i < n; ++i) p = b.mul(p, x);
  return p;
}

// sum over k >= 0 of (x + k)^-s for an integer s > 1: the first terms, then Euler and Maclaurin's formula for the rest,
// as Cephes and SciPy do it (https://dlmf.nist.gov/25.11#E5). For x > -kTerms; 0 and negative integers give infinity.
Value hurwitz_zeta(Builder& b, const Value& x, int64_t s) {
  constexpr int kTerms = 16;
  // B_2k / (2k)!
  constexpr double kCoefficients[] = {1.0 / 12, -1.0 / 720, 1.0 / 30240, -1.0 / 1209600, 1.0 / 47900160};
  const Value one = b.like(x, 1);
  Value sum = b.like(x, 0);
  for (int k = 0; k < kTerms; ++k) sum = b.add(sum, integer_power(b, b.div(one, b.add(x, b.like(x, k))), s));
  const Value inverse = b.div(one, b.add(x, b.like(x, kTerms))), square = b.mul(inverse, inverse);
  const Value power = integer_power(b, inverse, s);
  sum = b.add(sum, b.div(integer_power(b, inverse, s - 1), b.like(x, static_cast<double>(s - 1))));
  sum = b.add(sum, b.mul(power, b.like(x, 0.5)));
  Value term = b.mul(power, inverse);
  double factor = static_cast<double>(s);
  for (int k = 0; k < 5; ++k) {
    sum = b.add(sum, b.mul(term, b.like(x, factor * kCoefficients[k])));
    term = b.mul(term, square);
    factor *= static_cast<double>((s + 2 * k + 1) * (s + 2 * k + 2));
  }
  return sum;
}

// (n, self): (-1)^(n + 1) n! zeta(n + 1, x). Of trigamma, the left half by reflection.
template <size_t self, size_t order>
Values polygamma(Call& c) {
  Builder& b = c.b;
  const Value x = c.tensor(self, opmath(float_type(c, 0)));
  const int64_t n = c.integer(order);
  if (n == 0) return {digamma(b, x)};
  if (n == 1) {
    const Value left = b.compare(Cmp::LT, x, b.like(x, 0.5)), sine = b.sin(b.mul(x, b.like(x, kPi)));
    const Value right = hurwitz_zeta(b, b.select(left, b.sub(b.like(x, 1), x), x), 2);
    return {b.select(left, b.sub(b.div(b.like(x, kPi * kPi), b.mul(sine, sine)), right), right)};
  }
  return {b.mul(hurwitz_zeta(b, x, n + 1), b.like(x, (n % 2 ? 1 : -1) * std::tgamma(static_cast<double>(n) + 1)))};
}

}  // namespace

std::vector<Row> unary_rows() {
  return {
      {"_conj_physical", conj_physical},
      {"abs", absolute},
      {"acos", chlo_function<"acos">},
      {"acosh", chlo_function<"acosh">},
      {"angle", angle},
      {"asin", chlo_function<"asin">},
      {"asinh", chlo_function<"asinh">},
      {"atan", atan},
      {"atanh", chlo_function<"atanh">},
      {"ceil", rounding<ceil>},
      {"conj_physical.out", conj_physical},
      {"conj_physical_", conj_physical},
      {"cos", float_function<&Builder::cos>},
      {"cosh", cosh},
      {"digamma", digamma},
      {"erf", chlo_function<"erf">},
      {"erfc", chlo_function<"erfc">},
      {"erfinv", chlo_function<"erf_inv">},
      {"exp", float_function<&Builder::exp>},
      {"exp2", exp2},
      {"expm1", float_function<&Builder::expm1>},
      {"floor", rounding<floor>},
      {"frac", rounding<fraction>},
      {"isinf", predicate<infinite>},
      {"isnan", predicate<is_nan>},
      {"isneginf", predicate<minus_infinite>},
      {"isposinf", predicate<plus_infinite>},
      {"lgamma", chlo_function<"lgamma">},
      {"log", float_function<&Builder::log>},
      {"log10", log10},
      {"log1p", float_function<&Builder::log1p>},
      {"log2", log2},
      {"nan_to_num", nan_to_num},
      {"neg", negate},
      {"polygamma", polygamma<1, 0>},
      {"polygamma_", polygamma<0, 1>},
      {"reciprocal", reciprocal},
      {"round", rounding<round>},
      {"round.decimals", round_decimals},
      {"rsqrt", float_function<&Builder::rsqrt>},
      {"sgn", sgn},
      {"sigmoid", float_function<&Builder::logistic>},
      {"sign", sign},
      {"signbit", signbit},
      {"sin", float_function<&Builder::sin>},
      {"sinc", sinc},
      {"sinh", sinh},
      {"special_entr", entropy},
      {"sqrt", float_function<&Builder::sqrt>},
      {"tan", float_function<&Builder::tan>},
      {"tanh", float_function<&Builder::tanh>},
      {"trunc", rounding<truncate>},
  };
}

}  // namespace tpj::lower
