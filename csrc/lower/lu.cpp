// LU factorisation with partial pivoting, and what is computed from it.
#include "lower/common.h"
#include "lower/linalg.h"
#include "lower/row.h"

namespace tpj::lower {
namespace {

struct Lu {
  Value packed, pivots, info;  // [batch, m, n]; int32 [batch, min(m, n)] from 1; int32 [batch]
};

// What LAPACK's search for a pivot compares.
Value magnitude(Builder& b, const Value& x) {
  return is_complex(x.dtype()) ? b.add(b.abs(b.real(x)), b.abs(b.imag(x))) : b.abs(x);
}

// Column by column: the row with the greatest element comes up, the column below is divided by it, and the product of
// the two taken off what remains (right-looking; Golub and Van Loan, Matrix Computations, 3.4.1).
Lu factorise(Builder& b, const Value& x, bool pivot) {
  const int64_t batch = x.dim(0), m = x.dim(1), n = x.dim(2), k = std::min(m, n);
  const Type column{DType::I32, {batch, m, 1}}, row{DType::I32, {batch, 1, n}};
  const Value zero = index(b, 0), rows = b.iota(column, 1), cols = b.iota(row, 2);
  const Values done = repeat(
      b, k, {x, b.constant({DType::I32, {batch, k}}, 0), b.constant({DType::I32, {batch}}, 0)},
      [&](const Value& i, const Values& s) -> Values {
        const Value at = b.broadcast_to(i, column.dims), one_at = b.broadcast_to(i, {batch, 1, 1});
        Value chosen = one_at;
        if (pivot) {
          const Value size = magnitude(b, b.dynamic_slice(s[0], {zero, zero, i}, {batch, m, 1}));
          const Value open = b.select(b.compare(Cmp::GE, rows, at), size, b.like(size, -1));
          const Value most = b.broadcast_in_dim(max_over(b, open, {1, 2}), column.dims, {0});
          const Value found = b.select(b.compare(Cmp::EQ, open, most), rows, b.like(rows, static_cast<double>(m)));
          const Value first = b.reshape(b.reduce1(found, index(b, m), {1, 2}, &Builder::min), {batch, 1, 1});
          // None is equal to NaN.
          chosen = b.select(b.compare(Cmp::LT, first, b.constant(first.type, m)), first, one_at);
        }
        const Value is_chosen = b.broadcast_to(b.compare(Cmp::EQ, rows, b.broadcast_to(chosen, column.dims)), x.dims());
        const Value best = sum_along(b, b.select(is_chosen, s[0], splat(b, x.type, 0)), 1);
        const Value here = b.dynamic_slice(s[0], {zero, i, zero}, {batch, 1, n});
        Value a = b.select(is_chosen, b.broadcast_to(here, x.dims()), s[0]);
        a = b.dynamic_update_slice(a, best, {zero, i, zero});

        const Value head = b.dynamic_slice(best, {zero, zero, i}, {batch, 1, 1});
        const Value col = b.dynamic_slice(a, {zero, zero, i}, {batch, m, 1});
        const Value singular = b.compare(Cmp::EQ, head, splat(b, head.type, 0));
        const Value below = b.compare(Cmp::GT, rows, at);
        const Value ratio =
            b.select(b.broadcast_to(singular, column.dims), col, b.div(col, b.broadcast_to(head, column.dims)));
        const Value l = b.select(below, ratio, col);
        const Value right = b.compare(Cmp::GT, cols, b.broadcast_to(i, row.dims));
        const Value rest = b.and_(b.broadcast_to(below, x.dims()), b.broadcast_to(right, x.dims()));
        const Value product = b.mul(b.broadcast_to(l, x.dims()), b.broadcast_to(best, x.dims()));
        a = b.dynamic_update_slice(b.select(rest, b.sub(a, product), a), l, {zero, zero, i});

        const Value one = index(b, 1);
        const Value from_one = b.add(b.reshape(chosen, {batch, 1}), b.broadcast_to(one, {batch, 1}));
        const Value first_singular = b.and_(b.reshape(singular, {batch}), b.compare(Cmp::EQ, s[2], b.like(s[2], 0)));
        return {a, b.dynamic_update_slice(s[1], from_one, {zero, i}),
                b.select(first_singular, b.broadcast_to(b.add(i, one), {batch}), s[2])};
      });
  return {done[0], done[1], done[2]};
}

// [batch, m]: row i of L U is row order[i] of A; `inverse`: row i of A is row order[i] of L U.
Value row_order(Builder& b, const Value& pivots, int64_t m, bool inverse) {
  const int64_t batch = pivots.dim(0), k = pivots.dim(1);
  const Type type{DType::I32, {batch, m}};
  const Value zero = index(b, 0), at = b.iota(type, 1);
  return repeat(b, k, {at}, [&](const Value& step, const Values& s) -> Values {
    const Value i = inverse ? b.sub(index(b, k - 1), step) : step;
    const Value other = b.sub(b.dynamic_slice(pivots, {zero, i}, {batch, 1}), b.constant({DType::I32, {batch, 1}}, 1));
    const Value is_other = b.compare(Cmp::EQ, at, b.broadcast_to(other, type.dims));
    const Value there = sum_along(b, b.select(is_other, s[0], b.like(s[0], 0)), 1);
    const Value here = b.dynamic_slice(s[0], {zero, i}, {batch, 1});
    return {b.dynamic_update_slice(b.select(is_other, b.broadcast_to(here, type.dims), s[0]), there, {zero, i})};
  })[0];
}

Value rows_in(Builder& b, const Value& x, const Value& order) {
  hlo::GatherDims g;
  g.offset = {2};
  g.collapsed = g.start_index_map = {1};
  g.operand_batching = g.indices_batching = {0};
  g.index_vector_dim = 2;
  g.slice_sizes = {1, 1, x.dim(2)};
  return b.gather(x, order, g, x.dims());
}

// X with A X = rhs, or A^H X = rhs, for A = P L U; all of one batch.
Value solve(Builder& b, const Value& lu, const Value& pivots, const Value& rhs, bool adjoint) {
  const int64_t n = lu.dim(1);
  if (adjoint) {
    const Value y = b.triangular_solve(lu, rhs, true, false, false, "ADJOINT");
    return rows_in(b, b.triangular_solve(lu, y, true, true, true, "ADJOINT"), row_order(b, pivots, n, true));
  }
  const Value y =
      b.triangular_solve(lu, rows_in(b, rhs, row_order(b, pivots, n, false)), true, true, true, "NO_TRANSPOSE");
  return b.triangular_solve(lu, y, true, false, false, "NO_TRANSPOSE");
}

// The same for X A = rhs when not `left`.
Value solve_on(Builder& b, const Value& lu, const Value& pivots, const Value& rhs, bool left, bool adj) {
  return left ? solve(b, lu, pivots, rhs, adj) : adjoint(b, solve(b, lu, pivots, adjoint(b, rhs), !adj));
}

// For a determinant PyTorch keeps the factors of A^T where that spares its CPU kernels a copy; its derivative relies on
// it.
Lu kept_factors(Call& c) {
  const Value x = as_batch(c.b, c.tensor(0));
  const bool transposed = c.arg(0).contiguous && !is_complex(x.dtype());
  return factorise(c.b, transposed ? adjoint(c.b, x) : x, true);
}

Values all_empty(Call& c) {
  Values out;
  for (size_t k = 0; k < c.result_count(); ++k) out.push_back(splat(c.b, c.result(k), 0));
  return out;
}

// The results of a call, in their sizes.
Values shaped(Call& c, Values values) {
  for (size_t k = 0; k < values.size(); ++k) values[k] = c.b.reshape(values[k], c.result_dims(k));
  return values;
}

// (A, pivot, check_errors)
Values lu_factor_ex(Call& c) {
  if (c.type(0).numel() == 0) return all_empty(c);
  const Lu f = factorise(c.b, as_batch(c.b, c.tensor(0)), c.flag(1));
  return shaped(c, {f.packed, f.pivots, f.info});
}

Value unit_lower(Builder& b, const Value& packed, int64_t k) {
  const Value l = columns(b, packed, 0, k);
  return b.add(b.sub(l, upper_triangle(b, l)), identity(b, l.type));
}

Value upper(Builder& b, const Value& packed, int64_t k) {
  return upper_triangle(b, b.slice_dim(packed, packed.rank() - 2, 0, k));
}

// P of P L U, a matrix.
Value permutation(Builder& b, const Value& pivots, int64_t m, DType dtype) {
  const Value order = row_order(b, pivots, m, false);
  const Type at{DType::I32, {pivots.dim(0), m, m}};
  return b.convert(b.compare(Cmp::EQ, b.broadcast_in_dim(order, at.dims, {0, 2}), b.iota(at, 1)), dtype);
}

Value real_or_complex(Builder& b, const Value& x, DType dtype) { return is_complex(dtype) ? cast(b, x, dtype) : x; }

// (LU, pivots, unpack_data, unpack_pivots)
Values lu_unpack(Call& c) {
  Builder& b = c.b;
  const Dims& dims = c.type(0).dims;
  const int64_t m = dims[dims.size() - 2], n = dims.back(), k = std::min(m, n);
  Values out = all_empty(c);
  if (c.flag(3) && c.result(0).numel() != 0 && c.type(1).numel() != 0) {
    const Value pivots = b.reshape(c.tensor(1), {c.type(1).numel() / k, k});
    const Value p = permutation(b, pivots, m, real_of(c.result(0).dtype));
    out[0] = b.reshape(real_or_complex(b, p, c.result(0).dtype), c.result_dims(0));
  } else if (c.flag(3) && c.result(0).numel() != 0) {
    out[0] = identity(b, c.result(0));
  }
  if (c.flag(2)) {
    const Value lu = c.tensor(0);
    if (c.result(1).numel() != 0) out[1] = unit_lower(b, lu, k);
    if (c.result(2).numel() != 0) out[2] = upper(b, lu, k);
  }
  return out;
}

// (A, pivot)
Values linalg_lu(Call& c) {
  Builder& b = c.b;
  const Dims& dims = c.type(0).dims;
  const int64_t m = dims[dims.size() - 2], n = dims.back(), k = std::min(m, n);
  Values out = all_empty(c);
  const bool pivot = c.flag(1);
  if (c.type(0).numel() == 0) {
    if (pivot && c.result(0).numel() != 0) out[0] = identity(b, c.result(0));
    return out;
  }
  const Lu f = factorise(b, as_batch(b, c.tensor(0)), pivot);
  if (pivot) {
    const Value p = permutation(b, f.pivots, m, real_of(c.result(0).dtype));
    out[0] = b.reshape(real_or_complex(b, p, c.result(0).dtype), c.result_dims(0));
  }
  out[1] = b.reshape(unit_lower(b, f.packed, k), c.result_dims(1));
  out[2] = b.reshape(upper(b, f.packed, k), c.result_dims(2));
  return out;
}

// (LU, pivots, B, left, adjoint); batches broadcast.
Values lu_solve(Call& c) {
  Builder& b = c.b;
  if (c.result().numel() == 0) return all_empty(c);
  const Dims& dims = c.result_dims();
  const int64_t n = c.type(0).dims.back();
  const Value lu = as_batch(b, with_batch_of(b, c.tensor(0), dims)),
              rhs = as_batch(b, with_batch_of(b, c.tensor(2), dims));
  Dims of_pivots(dims.begin(), dims.end() - 1);
  of_pivots.back() = n;
  const Value pivots = b.reshape(b.broadcast_to(c.tensor(1), of_pivots), {lu.dim(0), n});
  return shaped(c, {solve_on(b, lu, pivots, rhs, c.flag(3), c.flag(4))});
}

// Whether the number of exchanges is odd.
Value is_odd(Builder& b, const Value& pivots) {
  const Value place = b.add(b.iota(pivots.type, 1), b.constant(pivots.type, 1));
  const Value count = sum_over(b, b.convert(b.compare(Cmp::NE, pivots, place), DType::I32), {1});
  return b.compare(Cmp::EQ, b.and_(count, b.like(count, 1)), b.like(count, 1));
}

Value product(Builder& b, const Value& x) { return b.reduce1(x, splat(b, {x.dtype(), {}}, 1), {1}, &Builder::mul); }

// (A): the determinant, and the factors for its derivative.
Values det(Call& c) {
  Builder& b = c.b;
  Values out = all_empty(c);
  out[0] = splat(b, c.result(0), 1);
  if (c.type(0).numel() == 0) return out;
  const Lu f = kept_factors(c);
  const Value d = product(b, diagonal(b, f.packed));
  return shaped(c, {b.select(is_odd(b, f.pivots), b.neg(d), d), f.packed, f.pivots});
}

// (A): sign and logarithm of the determinant's absolute value, and the factors.
Values slogdet(Call& c) {
  Builder& b = c.b;
  Values out = all_empty(c);
  out[0] = splat(b, c.result(0), 1);
  if (c.type(0).numel() == 0) return out;
  const Lu f = kept_factors(c);
  const Value d = diagonal(b, f.packed), sign = product(b, b.sign(d));
  return shaped(
      c, {b.select(is_odd(b, f.pivots), b.neg(sign), sign), sum_over(b, b.log(b.abs(d)), {1}), f.packed, f.pivots});
}

// (A, check_errors)
Values inv_ex(Call& c) {
  Builder& b = c.b;
  if (c.type(0).numel() == 0) return all_empty(c);
  const Lu f = factorise(b, as_batch(b, c.tensor(0)), true);
  return shaped(c, {solve(b, f.packed, f.pivots, identity(b, f.packed.type), false), f.info});
}

// (A, B, left, check_errors): B may be a batch of vectors. Gives the factors, too.
Values solve_ex(Call& c) {
  Builder& b = c.b;
  const Dims& a = c.type(0).dims;
  Dims dims = c.result_dims();
  Values out = all_empty(c);
  if (c.type(0).numel() == 0) return out;
  const Lu f = factorise(b, as_batch(b, c.tensor(0)), true);
  for (size_t k = 1; k < 4; ++k) out[k] = b.reshape(k == 1 ? f.packed : k == 2 ? f.pivots : f.info, c.result_dims(k));
  if (c.result().numel() == 0) return out;
  Value rhs = c.tensor(1);
  const bool vector = rhs.rank() == 1 || (rhs.rank() + 1 == static_cast<int64_t>(a.size()) &&
                                          std::equal(rhs.dims().begin(), rhs.dims().end(), a.begin()));
  if (vector) {
    Dims as_matrix = rhs.dims();
    as_matrix.push_back(1);
    rhs = b.reshape(rhs, as_matrix);
    dims.push_back(1);
  }
  const int64_t n = a.back();
  Dims of_pivots(dims.begin(), dims.end() - 1);
  of_pivots.back() = n;
  const Value lu = as_batch(b, with_batch_of(b, out[1], dims));
  const Value pivots = b.reshape(b.broadcast_to(out[2], of_pivots), {lu.dim(0), n});
  const Value x = solve_on(b, lu, pivots, as_batch(b, with_batch_of(b, rhs, dims)), c.flag(2), false);
  out[0] = b.reshape(x, c.result_dims());
  return out;
}

}  // namespace

std::vector<Row> lu_rows() {
  return {
      {"_linalg_det", det},          {"_linalg_slogdet", slogdet}, {"_linalg_solve_ex", solve_ex},
      {"linalg_inv_ex", inv_ex},     {"linalg_lu", linalg_lu},     {"linalg_lu_factor_ex", lu_factor_ex},
      {"linalg_lu_solve", lu_solve}, {"lu_unpack", lu_unpack},
  };
}

}  // namespace tpj::lower
