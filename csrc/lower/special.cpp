// Special functions: Bessel, Airy, the normal distribution's, incomplete gamma, and the parts of a float. Smooth pieces
// are Chebyshev series (special_tables.h) that fit float64; float32 programs use their first terms. What holds at
// zeros, infinities and negative numbers is what PyTorch's CPU kernels give.
#include "lower/common.h"
#include "lower/row.h"
#include "lower/special_tables.h"

#include <cmath>
#include <numbers>

namespace tpj::lower {
namespace {

using std::numbers::pi;

// A float value that knows its builder, so that formulas read as they are written.
struct Real {
  Builder* b;
  Value v;

  Real like(double c) const { return {b, b->like(v, c)}; }
  Real operator-() const { return {b, b->neg(v)}; }
};

#define TPJ_REAL_OPERATOR(op, method)                                                     \
  Real operator op(const Real& x, const Real& y) { return {x.b, x.b->method(x.v, y.v)}; } \
  [[maybe_unused]] Real operator op(const Real& x, double y) { return x op x.like(y); }   \
  [[maybe_unused]] Real operator op(double x, const Real& y) { return y.like(x) op y; }
TPJ_REAL_OPERATOR(+, add)
TPJ_REAL_OPERATOR(-, sub)
TPJ_REAL_OPERATOR(*, mul)
TPJ_REAL_OPERATOR(/, div)
#undef TPJ_REAL_OPERATOR

#define TPJ_REAL_COMPARISON(op, direction)                                                           \
  Value operator op(const Real& x, const Real& y) { return x.b->compare(Cmp::direction, x.v, y.v); } \
  [[maybe_unused]] Value operator op(const Real& x, double y) { return x op x.like(y); }
TPJ_REAL_COMPARISON(<, LT)
TPJ_REAL_COMPARISON(>, GT)
TPJ_REAL_COMPARISON(==, EQ)
#undef TPJ_REAL_COMPARISON

#define TPJ_REAL_FUNCTION(name) \
  Real name(const Real& x) { return {x.b, x.b->name(x.v)}; }
TPJ_REAL_FUNCTION(abs)
TPJ_REAL_FUNCTION(cos)
TPJ_REAL_FUNCTION(exp)
TPJ_REAL_FUNCTION(expm1)
TPJ_REAL_FUNCTION(log)
TPJ_REAL_FUNCTION(log1p)
TPJ_REAL_FUNCTION(round_even)
TPJ_REAL_FUNCTION(sin)
TPJ_REAL_FUNCTION(sqrt)
#undef TPJ_REAL_FUNCTION

Real chlo(std::string_view name, const Real& x) { return {x.b, x.b->chlo(name, {x.v})}; }
Real select(const Value& which, const Real& yes, const Real& no) { return {yes.b, yes.b->select(which, yes.v, no.v)}; }
Real select(const Value& which, double yes, const Real& no) { return select(which, no.like(yes), no); }
Real select(const Value& which, const Real& yes, double no) { return select(which, yes, yes.like(no)); }

constexpr double kInf = std::numeric_limits<double>::infinity(), kNan = std::numeric_limits<double>::quiet_NaN();

// The series at v by Clenshaw's recurrence (https://dlmf.nist.gov/3.11#E15). `slack`: how many times more error than
// that of the last bit of its greatest coefficient matters.
Real chebyshev(const Real& v, const Chebyshev& series, double slack = 1) {
  int n = series.count;
  if (v.v.dtype() != DType::F64) {
    double most = 0;
    for (int k = 0; k < n; ++k) most = std::max(most, std::abs(series.c[k]));
    while (n > 1 && std::abs(series.c[n - 1]) < most * 0x1p-28 * slack) --n;
  }
  if (n == 1) return v.like(series.c[0]);
  const Real t = (v - (series.lo + series.hi) / 2) * (2 / (series.hi - series.lo)), twice = t + t;
  Real last = v.like(series.c[n - 1]), before = v.like(0);
  for (int k = n - 2; k > 0; --k) {
    const Real next = twice * last - before + series.c[k];
    before = last;
    last = next;
  }
  return t * last - before + series.c[0];
}

// Tensor 0 as a float of at least 32 bits.
template <Real (*f)(const Real&)>
Values function(Call& c) {
  return {f({&c.b, c.tensor(0, opmath(float_type(c, 1)))}).v};
}

// ---- modified Bessel functions I and K: near 0 by what remains without the logarithm (https://dlmf.nist.gov/10.31),
// far from it by a slow function of 1 / x (10.40). Scaled: times e^-|x| (I) and e^x (K).

Real scaled_i0(const Real& x) {
  const Real size = abs(x);
  return select(size < 8, chebyshev(size, kI0Small), chebyshev(1 / size, kI0Large) / sqrt(size));
}

Real i0(const Real& x) { return exp(abs(x)) * scaled_i0(x); }
Real scaled_i1(const Real& x) { return chlo("bessel_i1e", x); }
Real i1(const Real& x) { return exp(abs(x)) * scaled_i1(x); }

template <bool scaled>
Real k0(const Real& x) {
  const Real near = chebyshev(x * x, kK0Small) - log(x * 0.5) * exp(x) * chebyshev(x, kI0Small);
  const Real far = chebyshev(1 / x, kK0Large) / sqrt(x);
  return scaled ? select(x < 2, exp(x) * near, far) : select(x < 2, near, exp(-x) * far);
}

template <bool scaled>
Real k1(const Real& x) {
  const Real near = select(x == 0, kInf, chebyshev(x * x, kK1Small) / x + log(x * 0.5) * i1(x));
  const Real far = chebyshev(1 / x, kK1Large) / sqrt(x);
  return scaled ? select(x < 2, exp(x) * near, far) : select(x < 2, near, exp(-x) * far);
}

// ---- Bessel functions J and Y: up to 8 power series in x^2 without the logarithm (https://dlmf.nist.gov/10.8), from
// there P cos w - Q sin w and P sin w + Q cos w with w = x - (2n + 1) pi / 4 (10.17). cos w and sin w by cos x and sin
// x, since a rounded w would be off by more than x is.

struct Waves {
  Real j, y;
};

Waves waves(const Real& x, const Chebyshev& p_series, const Chebyshev& q_series, bool first_order) {
  const Real v = 1 / (x * x), p = chebyshev(v, p_series), q = chebyshev(v, q_series) / x;
  const Real sine = sin(x), cosine = cos(x), sum = sine + cosine, difference = sine - cosine;
  const Real cos_w = first_order ? difference : sum, sin_w = first_order ? -sum : difference;
  const Real scale = std::sqrt(1 / pi) / sqrt(x);
  return {scale * (p * cos_w - q * sin_w), scale * (p * sin_w + q * cos_w)};
}

Real j0(const Real& x) { return select(abs(x) < 8, chebyshev(x * x, kJ0Small), waves(abs(x), kP0, kQ0, false).j); }

Real j1(const Real& x) {
  const Real far = waves(abs(x), kP1, kQ1, true).j;
  return select(abs(x) < 8, x * chebyshev(x * x, kJ1Small), select(x < 0, -far, far));
}

Real y0(const Real& x) {
  const Real near = chebyshev(x * x, kY0Small) + 2 / pi * log(x) * chebyshev(x * x, kJ0Small);
  return select(x < 8, near, waves(x, kP0, kQ0, false).y);
}

Real y1(const Real& x) {
  const Real square = x * x, j = x * chebyshev(square, kJ1Small);
  const Real near = x * chebyshev(square, kY1Small) + 2 / pi * (log(x) * j - 1 / x);
  return select(x == 0, -kInf, select(x < 8, near, waves(x, kP1, kQ1, true).y));
}

Real spherical_j0(const Real& x) { return select(x == 0, 1, select(abs(x) == kInf, 0, sin(x) / x)); }

// https://dlmf.nist.gov/9.7 beyond [-5, 2], with z = (2/3) |x|^(3/2).
Real airy_ai(const Real& x) {
  const Real size = abs(x), root = sqrt(size), z = size * root * (2.0 / 3), fourth = sqrt(root), v = 1 / (z * z);
  const Real right = exp(-z) * chebyshev(1 / z, kAiryDecay) / fourth * (0.5 / std::sqrt(pi));
  const Real sine = sin(z), cosine = cos(z), p = chebyshev(v, kAiryP), q = chebyshev(v, kAiryQ) / z;
  const Real left = (p * (sine + cosine) + q * (sine - cosine)) / fourth * std::sqrt(0.5 / pi);
  const Real near = select(x < 0, chebyshev(x, kAiryLeft), chebyshev(x, kAiryRight));
  return select(x < -5, left, select(x > 2, select(x == kInf, kNan, right), near));
}

// ---- error function and normal distribution

// e^(x^2), with the square in two parts: rounded to one, its error would be multiplied by x^2.
Real exp_square(const Real& x) {
  const Real bounded = {x.b, x.b->clamp(x.like(-30).v, x.v, x.like(30).v)};
  const Real head = round_even(bounded * 16) / 16;
  return exp(head * head) * exp((bounded - head) * (bounded + head));
}

// For x >= 0.
Real erfcx_right(const Real& x) { return chebyshev(1 / (x + 4), kErfcx) / (1 + 2 * x); }

Real erfcx(const Real& x) {
  const Real right = erfcx_right(abs(x));
  return select(x < 0, 2 * exp_square(x) - right, right);
}

Real log_ndtr(const Real& x) {
  const Real h = x * std::sqrt(0.5);
  const Real left = log(erfcx_right(abs(h)) * 0.5) - x * x * 0.5;
  return select(x < -1, left, log1p(chlo("erfc", h) * -0.5));
}

// Near 1/2 an odd function of p - 1/2; in the tails z - f(z) / z, with z = sqrt(-2 log p).
Real ndtri(const Real& p) {
  const Real y = p - 0.5, centre = y * chebyshev(y * y, kNdtriCentral);
  const Value lower = y < 0;
  const Real least = select(lower, p, 1 - p), z = sqrt(-2 * log(least));
  const Real size = z - select(z < 8, chebyshev(z, kNdtriTail), chebyshev(z, kNdtriFarTail)) / z;
  const Real tail = select(least == 0, kInf, size);
  return select(least < 0.135, select(lower, -tail, tail), centre);
}

// ---- the regularised incomplete gamma functions P and Q = 1 - P

struct Tails {
  Real series;    // sum of x^n / ((a + 1) ... (a + n)) (https://dlmf.nist.gov/8.11#E4)
  Real fraction;  // x + 1 - a + 1 (a - 1) / (x + 3 - a + 2 (a - 2) / (x + 5 - a + ...)) (https://dlmf.nist.gov/8.9#E2)
};

// Both from term n to the first: so errors of rounding shrink. Where incomplete_gamma uses them, n terms are enough for
// the last bit; elsewhere the numbers mean nothing.
Tails tails(const Real& a, const Real& x) {
  Builder& b = *a.b;
  const Type counter{a.v.dtype(), {}};
  const double n = counter.dtype == DType::F64 ? 100 : 50;
  const Real start = x + 1 - a;
  const Values done = b.while_(
      {b.constant(counter, n), a.like(1).v, (start + 2 * n).v, a.v, x.v, start.v},
      [&](const Values& s) -> Values { return {b.compare(Cmp::GT, s[0], b.constant(counter, 0))}; },
      [&](const Values& s) -> Values {
        const Real k{&b, b.broadcast_to(s[0], s[1].dims())}, a{&b, s[3]}, x{&b, s[4]}, start{&b, s[5]};
        const Real series = 1 + x / (a + k) * Real{&b, s[1]};
        const Real fraction = start + 2 * (k - 1) + k * (a - k) / Real{&b, s[2]};
        return {b.sub(s[0], b.constant(counter, 1)), series.v, fraction.v, s[3], s[4], s[5]};
      });
  return {{&b, done[1]}, {&b, done[2]}};
}

struct Regularised {
  Real p, q;
};

// For positive finite numbers. Where a is large and x near it, Temme's uniform expansion (https://dlmf.nist.gov/8.12);
// else a power series for P or a continued fraction for Q. Where both are below 1, Q has a series of its own, since it
// may be small beside P there.
Regularised incomplete_gamma(const Real& a, const Real& x) {
  Builder& b = *a.b;
  static constexpr const Chebyshev* kTemme[] = {&kTemme0, &kTemme1, &kTemme2, &kTemme3, &kTemme4,
                                                &kTemme5, &kTemme6, &kTemme7, &kTemme8, &kTemme9};
  const Real m = (x - a) / a, inverse = 1 / a, ratio = chebyshev(m, kPhi);
  const Value close = abs(m) < 0.3, uniform = b.and_(close, a > 20), small = a < 1;

  // x^a e^-x / Gamma(a + 1), by e^(-a phi) = (x / a)^a e^(a - x) or by 1 / Gamma(a + 1)
  const Real phi = select(close, m * m * ratio, m - log(x / a));
  const Real bell = exp(-a * phi) / sqrt(a * (2 * pi));
  const Real rest = a * chebyshev(a, kGammaRest), power{&b, b.pow(x.v, a.v)};
  const Real density = select(small, power * exp(-x) * (1 + rest), bell * chebyshev(inverse, kGammaStar));

  Real sum = a.like(0);
  const Real eta = m * sqrt(2 * ratio), y = eta * sqrt(a * 0.5);
  for (int k = 9; k >= 0; --k) sum = sum * inverse + chebyshev(eta, *kTemme[k], std::pow(20.0, k));
  const Real uniform_p = chlo("erfc", -y) * 0.5 - bell * sum, uniform_q = chlo("erfc", y) * 0.5 + bell * sum;

  Real term = a.like(1), alternating = a.like(0);  // sum of (-x)^n / (n! (a + n)) (https://dlmf.nist.gov/8.7#E1)
  for (int n = 1; n <= 18; ++n) {
    term = term * x * (-1.0 / n);
    alternating = alternating + term / (a + n);
  }
  const Real growth = expm1(a * log(x));
  const Real small_q = -(growth * (1 + rest) + rest) - power * (1 + rest) * a * alternating;

  const Tails tail = tails(a, x);
  const Value below = x < select(small, 1, a + 1);
  const Real p = density * tail.series, q = density * a / tail.fraction;
  return {select(uniform, uniform_p, select(below, p, 1 - q)),
          select(uniform, uniform_q, select(below, select(small, small_q, 1 - p), q))};
}

// (self, other): P(self, other), or Q.
template <bool upper>
Values igamma(Call& c) {
  Builder& b = c.b;
  const DType t = opmath(float_type(c));
  const Real a{&b, input(c, 0, t, c.result_dims())}, x{&b, input(c, 1, t, c.result_dims())};
  const Value inside = b.and_(b.and_(a > 0, b.is_finite(a.v)), b.and_(x > 0, b.is_finite(x.v)));
  const Regularised r = incomplete_gamma(select(inside, a, 1), select(inside, x, 1));
  const double low = upper ? 1 : 0, high = upper ? 0 : 1;
  const Real nan = a.like(kNan), far = select(x == kInf, high, nan);
  const Real infinite_a = select(a == kInf, select(x == kInf, nan, low), far);
  const Real zero_x = select(x == 0, low, infinite_a);
  const Real edge = select(a == 0, select(x > 0, high, nan), zero_x);
  return {select(inside, upper ? r.q : r.p, select(b.or_(a < 0, x < 0), kNan, edge)).v};
}

// Mantissa in [0.5, 1) and exponent, by the bits, so that denormals are exact too.
Values frexp(Call& c) {
  Builder& b = c.b;
  const Value x = c.tensor(0, opmath(c.type(0).dtype));
  const bool wide = x.dtype() == DType::F64;
  const int64_t digits = wide ? 52 : 23, half = wide ? 1022 : 126, width = wide ? 64 : 32;
  const Value raw = b.bitcast(x, {wide ? DType::I64 : DType::I32, x.dims()});
  const auto whole = [&](int64_t v) { return b.constant(raw.type, v); };
  const auto is = [&](Cmp direction, const Value& v, int64_t w) { return b.compare(direction, v, whole(w)); };
  const Value shift = whole(digits), sign = b.shl(b.shrl(raw, whole(width - 1)), whole(width - 1));
  const Value size = b.xor_(raw, sign), field = b.shrl(size, shift),
              zeros = b.sub(b.clz(size), whole(width - 1 - digits));
  const Value denormal = is(Cmp::EQ, field, 0);
  const Value exponent = b.sub(b.select(denormal, b.sub(whole(1), zeros), field), whole(half));
  const Value fraction = b.and_(b.select(denormal, b.shl(size, zeros), size), whole((int64_t{1} << digits) - 1));
  const Value mantissa = b.or_(b.or_(sign, fraction), whole(half << digits));
  const Value as_is = b.or_(is(Cmp::EQ, size, 0), is(Cmp::EQ, field, 2 * half + 3));
  return {b.bitcast(b.select(as_is, raw, mantissa), x.type), b.select(as_is, whole(0), exponent)};
}

}  // namespace

std::vector<Row> special_rows() {
  return {
      {"frexp.Tensor", frexp},
      {"i0", function<i0>},
      {"igamma", igamma<false>},
      {"igammac", igamma<true>},
      {"special_airy_ai", function<airy_ai>},
      {"special_bessel_j0", function<j0>},
      {"special_bessel_j1", function<j1>},
      {"special_bessel_y0", function<y0>},
      {"special_bessel_y1", function<y1>},
      {"special_erfcx", function<erfcx>},
      {"special_i0e", function<scaled_i0>},
      {"special_i1", function<i1>},
      {"special_i1e", function<scaled_i1>},
      {"special_log_ndtr", function<log_ndtr>},
      {"special_modified_bessel_i0", function<i0>},
      {"special_modified_bessel_i1", function<i1>},
      {"special_modified_bessel_k0", function<k0<false>>},
      {"special_modified_bessel_k1", function<k1<false>>},
      {"special_ndtri", function<ndtri>},
      {"special_scaled_modified_bessel_k0", function<k0<true>>},
      {"special_scaled_modified_bessel_k1", function<k1<true>>},
      {"special_spherical_bessel_j0", function<spherical_j0>},
  };
}

}  // namespace tpj::lower
