// Triangular systems and Cholesky's factorisation, of batches of matrices.
#include "lower/common.h"
#include "lower/row.h"

namespace tpj::lower {
namespace {

Value conjugate_transpose(Builder& b, const Value& x) {
  Dims swap;
  for (int64_t i = 0; i < x.rank(); ++i) swap.push_back(i);
  std::swap(swap[swap.size() - 1], swap[swap.size() - 2]);
  const Value y = b.transpose(x, swap);
  return is_complex(y.dtype()) ? b.complex(b.real(y), b.neg(b.imag(y))) : y;
}

// Batches broadcast to those of `like`, the last two dimensions kept.
Value with_batch_of(Builder& b, const Value& x, const Dims& like) {
  Dims dims(like.begin(), like.end() - 2);
  dims.insert(dims.end(), x.dims().end() - 2, x.dims().end());
  return b.broadcast_to(x, dims);
}

Value splat(Builder& b, const Type& type, double v) {
  return is_complex(type.dtype) ? b.complex_constant(type, v, 0) : b.constant(type, v);
}

struct Factor {
  Value lower, info;  // [batch, n, n]; int32 [batch]: 0, or the order of the first leading minor that is not positive
};

// Column by column: the pivot's root, the column below divided by it, and its product with itself taken off what is
// to the right (right-looking; Golub and Van Loan, Matrix Computations, 4.2.5).
Factor cholesky(Builder& b, const Value& x) {
  const int64_t batch = x.dim(0), n = x.dim(1);
  const Type scalar{DType::I32, {}}, column{x.dtype(), {batch, n, 1}}, rows{DType::I32, {batch, n, 1}};
  const Value zero = b.constant(scalar, int64_t{0});
  const Values done = b.while_(
      {zero, x, b.constant({DType::I32, {batch}}, int64_t{0})},
      [&](const Values& s) -> Values { return {b.compare(Cmp::LT, s[0], b.constant(scalar, n))}; },
      [&](const Values& s) -> Values {
        const Value& i = s[0];
        const Value col = b.dynamic_slice(s[1], {zero, zero, i}, {batch, n, 1});
        Value diagonal = b.dynamic_slice(col, {zero, i, zero}, {batch, 1, 1});
        if (is_complex(x.dtype())) diagonal = b.real(diagonal);
        const Value bad = b.not_(b.compare(Cmp::GT, diagonal, b.like(diagonal, 0)));
        Value root = b.sqrt(diagonal);
        if (is_complex(x.dtype())) root = b.complex(root, b.like(root, 0));
        const Value pivot = b.broadcast_in_dim(root, column.dims, {0, 1, 2});
        const Value at = b.broadcast_to(i, rows.dims), row = b.iota(rows, 1), none = splat(b, column, 0);
        const Value below = b.select(b.compare(Cmp::GT, row, at), b.div(col, pivot), none);
        const Value l = b.select(b.compare(Cmp::EQ, row, at), pivot, below);
        const Value product = b.dot_general(below, conjugate_transpose(b, below), {{0}, {0}, {2}, {1}}, x.dtype());
        const Value next = b.dynamic_update_slice(b.sub(s[1], product), l, {zero, zero, i});
        const Value order = b.broadcast_to(b.add(i, b.constant(scalar, int64_t{1})), {batch});
        const Value first = b.and_(b.reshape(bad, {batch}), b.compare(Cmp::EQ, s[2], b.like(s[2], 0)));
        return {b.add(i, b.constant(scalar, int64_t{1})), next, b.select(first, order, s[2])};
      });
  return {done[1], done[2]};
}

// (self, upper, check_errors): the caller reads `info` and raises.
Values cholesky_ex(Call& c) {
  Builder& b = c.b;
  const Value x = c.tensor(0);
  const int64_t n = x.dims().back();
  if (x.type.numel() == 0) return {x, b.constant(c.result(1), 0)};
  const bool upper = c.flag(1);
  const Value triangle = upper ? conjugate_transpose(b, x) : x;
  const Factor f = cholesky(b, b.reshape(triangle, {x.type.numel() / (n * n), n, n}));
  const Value l = b.reshape(f.lower, x.dims());
  return {upper ? conjugate_transpose(b, l) : l, b.reshape(f.info, c.result_dims(1))};
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
  const Type index{DType::I32, l.dims()};
  const Value diagonal = b.compare(Cmp::EQ, b.iota(index, l.rank() - 2), b.iota(index, l.rank() - 1));
  return {solve_factored(b, l, b.select(diagonal, splat(b, l.type, 1), splat(b, l.type, 0)), c.flag(1))};
}

}  // namespace

std::vector<Row> linalg_rows() {
  return {
      {"_cholesky_solve_helper", cholesky_solve}, {"cholesky_inverse", cholesky_inverse},
      {"linalg_cholesky_ex", cholesky_ex},        {"linalg_solve_triangular", solve_triangular},
      {"triangular_solve", triangular_solve},
  };
}

}  // namespace tpj::lower
