// Orthogonal polynomials of degree n at x, by their three-term recurrences (https://dlmf.nist.gov/18.9); both are
// tensors. Degrees below 0 give 0, as in PyTorch.
#include "lower/common.h"
#include "lower/row.h"

namespace tpj::lower {
namespace {

struct Degree {
  Value whole;  // int64
  Value real;   // in the dtype of x
  Value even;
};

// next = a(k) q - b(k) p, for k = 1 ... n - 1, from p = 1 and q = the polynomial of degree 1.
using Next = Value (*)(Builder&, const Value& x, const Value& k, const Value& q, const Value& p);

// Where `skip` is set the result does not matter, so that it needs no steps.
Value recurrence(Builder& b, const Value& x, const Value& first, const Degree& n, const Value& skip, Next next) {
  const Type scalar{DType::I64, {}};
  const Value zero = b.constant(scalar, int64_t{0}), one = b.like(x, 1);
  const Value steps = b.select(skip, b.constant(n.whole.type, int64_t{0}), n.whole);
  Dims all;
  for (int64_t i = 0; i < x.rank(); ++i) all.push_back(i);
  const Value most = all.empty() ? steps : b.reduce1(steps, zero, all, &Builder::max);
  const Values done = b.while_(
      {b.constant(scalar, int64_t{1}), most, steps, x, one, first},
      [&](const Values& s) -> Values { return {b.compare(Cmp::LT, s[0], s[1])}; },
      [&](const Values& s) -> Values {
        const Value active = b.compare(Cmp::LT, b.broadcast_to(s[0], s[2].dims()), s[2]);
        const Value k = b.broadcast_to(b.convert(s[0], s[3].dtype()), s[3].dims());
        const Value r = next(b, s[3], k, s[5], s[4]);
        return {b.add(s[0], b.constant(scalar, int64_t{1})),
                s[1],
                s[2],
                s[3],
                b.select(active, s[5], s[4]),
                b.select(active, r, s[5])};
      });
  return b.select(b.compare(Cmp::LT, n.whole, b.constant(n.whole.type, int64_t{1})), one, done[5]);
}

struct Polynomial {
  Value x;
  Degree n;
};

Polynomial arguments(Call& c) {
  Builder& b = c.b;
  const DType t = opmath(float_type(c));
  const Value x = input(c, 0, t, c.result_dims()), n = input(c, 1, t, c.result_dims());
  const Value whole = cast(b, n, DType::I64), bit = b.and_(whole, b.constant(whole.type, int64_t{1}));
  return {x, {whole, b.convert(whole, t), b.compare(Cmp::EQ, bit, b.constant(whole.type, int64_t{0}))}};
}

Value no_degree(Builder& b, const Degree& n, const Value& p) {
  return b.select(b.compare(Cmp::LT, n.whole, b.constant(n.whole.type, int64_t{0})), b.like(p, 0), p);
}

Value signed_by(Builder& b, const Value& positive, const Value& v) { return b.select(positive, v, b.neg(v)); }

// ---- Chebyshev polynomials, of four kinds. Inside of (-1, 1) high degrees come from the trigonometric form.

enum class Kind { kT, kU, kV, kW };

Value at_one(Builder& b, Kind kind, const Degree& n) {
  const Value one = b.like(n.real, 1);
  if (kind == Kind::kU) return b.add(n.real, one);
  return kind == Kind::kW ? b.add(b.add(n.real, n.real), one) : one;
}

Value at_minus_one(Builder& b, Kind kind, const Degree& n) {
  const Value one = b.like(n.real, 1);
  if (kind == Kind::kU) return signed_by(b, n.even, b.add(n.real, one));
  return signed_by(b, n.even, kind == Kind::kV ? b.add(b.add(n.real, n.real), one) : one);
}

Value trigonometric(Builder& b, Kind kind, const Value& x, const Degree& n) {
  const Value angle = b.chlo("acos", {x}), half = b.mul(angle, b.like(x, 0.5));
  const Value shifted = b.mul(b.add(n.real, b.like(x, 0.5)), angle);
  switch (kind) {
    case Kind::kT:
      return b.cos(b.mul(n.real, angle));
    case Kind::kU:
      return b.div(b.sin(b.mul(b.add(n.real, b.like(x, 1)), angle)), b.sin(angle));
    case Kind::kV:
      return b.div(b.cos(shifted), b.cos(half));
    case Kind::kW:
      return b.div(b.sin(shifted), b.sin(half));
  }
  return x;
}

template <Kind kind, bool shifted>
Values chebyshev(Call& c) {
  Builder& b = c.b;
  auto [x, n] = arguments(c);
  const Value one = b.like(x, 1);
  if (shifted) x = b.sub(b.add(x, x), one);
  const Value twice = b.add(x, x);
  const Value first = kind == Kind::kT   ? x
                      : kind == Kind::kU ? twice
                      : kind == Kind::kV ? b.sub(twice, one)
                                         : b.add(twice, one);
  constexpr int64_t kDirect = kind == Kind::kT || shifted ? 6 : 8;  // PyTorch's choice: the highest by recurrence
  const Value inside =
      b.and_(b.compare(Cmp::LT, b.abs(x), one), b.compare(Cmp::GT, n.whole, b.constant(n.whole.type, kDirect)));
  const Value edge = b.compare(Cmp::EQ, b.abs(x), one);
  const Value p = recurrence(b, x, first, n, b.or_(inside, edge),
                             [](Builder& b, const Value& x, const Value&, const Value& q, const Value& p) {
                               return b.sub(b.mul(b.add(x, x), q), p);
                             });
  const Value ends = b.select(b.compare(Cmp::GT, x, b.like(x, 0)), at_one(b, kind, n), at_minus_one(b, kind, n));
  return {no_degree(b, n, b.select(edge, ends, b.select(inside, trigonometric(b, kind, x, n), p)))};
}

// ---- Hermite, of the physicists (H) and the probabilists (He). Beyond a degree PyTorch gives NaN.

template <bool physicists>
Values hermite(Call& c) {
  Builder& b = c.b;
  const auto [x, n] = arguments(c);
  const int64_t limit = x.dtype() == DType::F64 ? 512 : 128;
  const Value high = b.compare(Cmp::GT, n.whole, b.constant(n.whole.type, limit));
  const Value p = recurrence(b, x, physicists ? b.add(x, x) : x, n, high,
                             [](Builder& b, const Value& x, const Value& k, const Value& q, const Value& p) {
                               const Value scale = physicists ? b.add(x, x) : x, step = physicists ? b.add(k, k) : k;
                               return b.sub(b.mul(scale, q), b.mul(step, p));
                             });
  return {no_degree(b, n, b.select(high, nan_like(b, x), p))};
}

Values laguerre(Call& c) {
  Builder& b = c.b;
  const auto [x, n] = arguments(c);
  const Value one = b.like(x, 1), origin = b.compare(Cmp::EQ, x, b.like(x, 0));
  const Value p = recurrence(b, x, b.sub(one, x), n, origin,
                             [](Builder& b, const Value& x, const Value& k, const Value& q, const Value& p) {
                               const Value one = b.like(x, 1), scale = b.add(b.add(k, k), b.sub(one, x));
                               return b.div(b.sub(b.mul(scale, q), b.mul(k, p)), b.add(k, one));
                             });
  return {no_degree(b, n, b.select(origin, one, p))};
}

Values legendre(Call& c) {
  Builder& b = c.b;
  const auto [x, n] = arguments(c);
  const Value one = b.like(x, 1), edge = b.compare(Cmp::EQ, b.abs(x), one);
  const Value p =
      recurrence(b, x, x, n, edge, [](Builder& b, const Value& x, const Value& k, const Value& q, const Value& p) {
        const Value one = b.like(x, 1), scale = b.mul(b.add(b.add(k, k), one), x);
        return b.div(b.sub(b.mul(scale, q), b.mul(k, p)), b.add(k, one));
      });
  const Value positive = b.or_(b.compare(Cmp::GT, x, b.like(x, 0)), n.even);
  return {no_degree(b, n, b.select(edge, signed_by(b, positive, one), p))};
}

}  // namespace

std::vector<Row> polynomial_rows() {
  return {
      {"special_chebyshev_polynomial_t", chebyshev<Kind::kT, false>},
      {"special_chebyshev_polynomial_u", chebyshev<Kind::kU, false>},
      {"special_chebyshev_polynomial_v", chebyshev<Kind::kV, false>},
      {"special_chebyshev_polynomial_w", chebyshev<Kind::kW, false>},
      {"special_hermite_polynomial_h", hermite<true>},
      {"special_hermite_polynomial_he", hermite<false>},
      {"special_laguerre_polynomial_l", laguerre},
      {"special_legendre_polynomial_p", legendre},
      {"special_shifted_chebyshev_polynomial_t", chebyshev<Kind::kT, true>},
      {"special_shifted_chebyshev_polynomial_u", chebyshev<Kind::kU, true>},
      {"special_shifted_chebyshev_polynomial_v", chebyshev<Kind::kV, true>},
      {"special_shifted_chebyshev_polynomial_w", chebyshev<Kind::kW, true>},
  };
}

}  // namespace tpj::lower
