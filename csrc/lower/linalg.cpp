// Triangular systems and Cholesky's factorisation, of batches of matrices.
#include "lower/linalg.h"

#include <cmath>

#include "lower/common.h"
#include "lower/row.h"

namespace tpj::lower {

Value splat(Builder& b, const Type& type, double v) {
  return is_complex(type.dtype) ? b.complex_constant(type, v, 0) : b.constant(type, v);
}

Value conjugate(Builder& b, const Value& x) {
  return is_complex(x.dtype()) ? b.complex(b.real(x), b.neg(b.imag(x))) : x;
}

Value adjoint(Builder& b, const Value& x) {
  Dims swap;
  for (int64_t i = 0; i < x.rank(); ++i) swap.push_back(i);
  std::swap(swap[swap.size() - 1], swap[swap.size() - 2]);
  return conjugate(b, b.transpose(x, swap));
}

Value in_type_of(Builder& b, const Value& like, const Value& real) {
  return is_complex(like.dtype()) ? b.complex(real, b.like(real, 0)) : real;
}

Value as_batch(Builder& b, const Value& x) {
  const int64_t m = x.dim(x.rank() - 2), n = x.dim(x.rank() - 1);
  return b.reshape(x, {x.type.numel() / (m * n), m, n});
}

Value with_batch_of(Builder& b, const Value& x, const Dims& like) {
  Dims dims(like.begin(), like.end() - 2);
  dims.insert(dims.end(), x.dims().end() - 2, x.dims().end());
  return b.broadcast_to(x, dims);
}

Value identity(Builder& b, const Type& type) {
  const Type at{DType::I32, type.dims};
  const int64_t rank = static_cast<int64_t>(type.dims.size());
  const Value equal = b.compare(Cmp::EQ, b.iota(at, rank - 2), b.iota(at, rank - 1));
  return b.select(equal, splat(b, type, 1), splat(b, type, 0));
}

Value upper_triangle(Builder& b, const Value& x) {
  const Type at{DType::I32, x.dims()};
  const Value upper = b.compare(Cmp::LE, b.iota(at, x.rank() - 2), b.iota(at, x.rank() - 1));
  return b.select(upper, x, splat(b, x.type, 0));
}

Value diagonal(Builder& b, const Value& x) {
  const int64_t k = std::min(x.dim(1), x.dim(2));
  const Value square = b.slice(x, {0, 0, 0}, {x.dim(0), k, k}, {1, 1, 1});
  const Type at{DType::I32, square.dims()};
  const Value equal = b.compare(Cmp::EQ, b.iota(at, 1), b.iota(at, 2));
  return b.reshape(sum_along(b, b.select(equal, square, splat(b, square.type, 0)), 2), {x.dim(0), k});
}

Value sum_along(Builder& b, const Value& x, int64_t dim) {
  Dims kept = x.dims();
  kept[static_cast<size_t>(dim)] = 1;
  return b.reshape(b.reduce1(x, splat(b, {x.dtype(), {}}, 0), {dim}, &Builder::add), kept);
}

Value columns(Builder& b, const Value& x, int64_t from, int64_t to) { return b.slice_dim(x, x.rank() - 1, from, to); }

Value index(Builder& b, int64_t i) { return b.constant({DType::I32, {}}, i); }

Values repeat(Builder& b, int64_t n, const Values& state,
              const std::function<Values(const Value& i, const Values& state)>& body) {
  Values all = state;
  all.insert(all.begin(), index(b, 0));
  Values done = b.while_(
      all, [&](const Values& s) -> Values { return {b.compare(Cmp::LT, s[0], index(b, n))}; },
      [&](const Values& s) {
        Values next = body(s[0], Values(s.begin() + 1, s.end()));
        next.insert(next.begin(), b.add(s[0], index(b, 1)));
        return next;
      });
  done.erase(done.begin());
  return done;
}

namespace {

struct Factor {
  Value lower, info;  // [batch, n, n]; int32 [batch]: 0, or the order of the first leading minor that is not positive
};

// Column by column: the pivot's root, the column below divided by it, and its product with itself taken off what is
// to the right (right-looking; Golub and Van Loan, Matrix Computations, 4.2.5).
Factor cholesky(Builder& b, const Value& x) {
  const int64_t batch = x.dim(0), n = x.dim(1);
  const Type column{x.dtype(), {batch, n, 1}}, rows{DType::I32, {batch, n, 1}};
  const Value zero = index(b, 0);
  const Values done =
      repeat(b, n, {x, b.constant({DType::I32, {batch}}, int64_t{0})}, [&](const Value& i, const Values& s) -> Values {
        const Value col = b.dynamic_slice(s[0], {zero, zero, i}, {batch, n, 1});
        Value pivot = b.dynamic_slice(col, {zero, i, zero}, {batch, 1, 1});
        if (is_complex(x.dtype())) pivot = b.real(pivot);
        const Value bad = b.not_(b.compare(Cmp::GT, pivot, b.like(pivot, 0)));
        const Value root = b.broadcast_to(in_type_of(b, x, b.sqrt(pivot)), column.dims);
        const Value at = b.broadcast_to(i, rows.dims), row = b.iota(rows, 1), none = splat(b, column, 0);
        const Value below = b.select(b.compare(Cmp::GT, row, at), b.div(col, root), none);
        const Value l = b.select(b.compare(Cmp::EQ, row, at), root, below);
        const Value product = b.dot_general(below, adjoint(b, below), {{0}, {0}, {2}, {1}}, x.dtype());
        const Value next = b.dynamic_update_slice(b.sub(s[0], product), l, {zero, zero, i});
        const Value order = b.broadcast_to(b.add(i, index(b, 1)), {batch});
        const Value first = b.and_(b.reshape(bad, {batch}), b.compare(Cmp::EQ, s[1], b.like(s[1], 0)));
        return {next, b.select(first, order, s[1])};
      });
  return {done[0], done[1]};
}

// (self, upper, check_errors): the caller reads `info` and raises.
Values cholesky_ex(Call& c) {
  Builder& b = c.b;
  const Value x = c.tensor(0);
  const int64_t n = x.dims().back();
  if (x.type.numel() == 0) return {x, b.constant(c.result(1), 0)};
  const bool upper = c.flag(1);
  const Value triangle = upper ? adjoint(b, x) : x;
  const Factor f = cholesky(b, b.reshape(triangle, {x.type.numel() / (n * n), n, n}));
  const Value l = b.reshape(f.lower, x.dims());
  return {upper ? adjoint(b, l) : l, b.reshape(f.info, c.result_dims(1))};
}

// (A, B, upper, left, unitriangular)
Values solve_triangular(Call& c) {
  Builder& b = c.b;
  const Dims& dims = c.result_dims();
  if (c.result().numel() == 0) return {b.constant(c.result(), 0)};
  const Value a = with_batch_of(b, c.tensor(0), dims), rhs = with_batch_of(b, c.tensor(1), dims);
  return {b.triangular_solve(a, rhs, c.arg_count() <= 3 || c.flag(3), !c.flag(2), c.flag(4), "NO_TRANSPOSE")};
}

// (B, A, upper, transpose, unitriangular): also gives A back.
Values triangular_solve(Call& c) {
  Builder& b = c.b;
  const Dims& dims = c.result_dims();
  const Value a = b.broadcast_to(c.tensor(1), c.result_dims(1));
  if (c.result().numel() == 0) return {b.constant(c.result(), 0), a};
  const Value rhs = with_batch_of(b, c.tensor(0), dims);
  return {b.triangular_solve(a, rhs, true, !c.flag(2), c.flag(4), c.flag(3) ? "TRANSPOSE" : "NO_TRANSPOSE"), a};
}

// The system whose matrix has the Cholesky factor `l`.
Value solve_factored(Builder& b, const Value& l, const Value& rhs, bool upper) {
  const Value y = b.triangular_solve(l, rhs, true, !upper, false, upper ? "ADJOINT" : "NO_TRANSPOSE");
  return b.triangular_solve(l, y, true, !upper, false, upper ? "NO_TRANSPOSE" : "ADJOINT");
}

// (B, L, upper)
Values cholesky_solve(Call& c) {
  Builder& b = c.b;
  if (c.result().numel() == 0) return {b.constant(c.result(), 0)};
  const Dims& dims = c.result_dims();
  return {solve_factored(b, with_batch_of(b, c.tensor(1), dims), with_batch_of(b, c.tensor(0), dims), c.flag(2))};
}

// (L, upper)
Values cholesky_inverse(Call& c) {
  Builder& b = c.b;
  const Value l = c.tensor(0);
  if (l.type.numel() == 0) return {l};
  return {solve_factored(b, l, identity(b, l.type), c.flag(1))};
}

// exp(A) by scaling and squaring: the Taylor series of A / 2^s, whose 1-norm is at most 1, to the power of 2^s. Terms
// up to A^11 / 11! (A^19 / 19! in float64) leave less than rounding does; they are summed in powers of A^4 (Paterson
// and Stockmeyer 1973).
Values matrix_exp(Call& c) {
  Builder& b = c.b;
  if (c.result().numel() == 0) return {splat(b, c.result(), 0)};
  const Value x = as_batch(b, c.tensor(0, opmath(c.result().dtype)));
  const Value norm = max_over(b, sum_along(b, b.abs(x), 1), {1, 2});
  const Value doublings = b.ceil(b.div(b.log(norm), b.like(norm, std::log(2.0))));
  const Value times =
      b.select(b.and_(b.is_finite(norm), b.compare(Cmp::GT, norm, b.like(norm, 1))), doublings, b.like(norm, 0));
  const auto per_matrix = [&](const Value& v) { return b.broadcast_in_dim(in_type_of(b, x, v), x.dims(), {0}); };
  const Value a = b.mul(x, per_matrix(b.pow(b.like(norm, 2), b.neg(times))));
  const auto product = [&](const Value& y, const Value& z) {
    return b.dot_general(y, z, {{0}, {0}, {2}, {1}}, x.dtype());
  };
  Values powers{identity(b, x.type), a};
  for (int i = 2; i <= 4; ++i) powers.push_back(product(powers.back(), a));
  const int groups = real_of(x.dtype()) == DType::F64 ? 5 : 3;
  Value sum;
  for (int g = groups - 1; g >= 0; --g) {
    Value part;
    for (int i = 0; i < 4; ++i) {
      const Value term = b.mul(powers[static_cast<size_t>(i)], splat(b, x.type, 1 / std::tgamma(4 * g + i + 1)));
      part = i == 0 ? term : b.add(part, term);
    }
    sum = g == groups - 1 ? part : b.add(part, product(sum, powers[4]));
  }
  const Values done = b.while_(
      {b.like(norm, 0), sum},
      [&](const Values& s) -> Values {
        const Value more = b.compare(Cmp::LT, s[0], times);
        return {b.reduce1(more, b.constant({DType::Bool, {}}, false), {0}, &Builder::or_)};
      },
      [&](const Values& s) -> Values {
        const Value more = b.compare(Cmp::LT, s[0], times);
        const Value next = b.select(b.broadcast_in_dim(more, x.dims(), {0}), product(s[1], s[1]), s[1]);
        return {b.add(s[0], b.like(norm, 1)), next};
      });
  return {b.reshape(done[1], c.result_dims())};
}

}  // namespace

std::vector<Row> linalg_rows() {
  return {
      {"_cholesky_solve_helper", cholesky_solve},    {"cholesky_inverse", cholesky_inverse},
      {"linalg_cholesky_ex", cholesky_ex},           {"linalg_matrix_exp", matrix_exp},
      {"linalg_solve_triangular", solve_triangular}, {"triangular_solve", triangular_solve},
  };
}

}  // namespace tpj::lower
