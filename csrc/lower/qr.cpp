// Householder's QR decomposition and products with its Q.
#include "lower/common.h"
#include "lower/linalg.h"
#include "lower/row.h"

namespace tpj::lower {
namespace {

// The reflector's vector from column i of the packed form: 0 above row i, 1 there.
Value reflector(Builder& b, const Value& packed, const Value& i) {
  const int64_t batch = packed.dim(0), m = packed.dim(1);
  const Value zero = index(b, 0), col = b.dynamic_slice(packed, {zero, zero, i}, {batch, m, 1});
  const Type at{DType::I32, col.dims()};
  const Value row = b.iota(at, 1), here = b.broadcast_to(i, at.dims);
  const Value below = b.select(b.compare(Cmp::GT, row, here), col, splat(b, col.type, 0));
  return b.select(b.compare(Cmp::EQ, row, here), splat(b, col.type, 1), below);
}

// x - factor v (v^H x)
Value reflected(Builder& b, const Value& x, const Value& v, const Value& factor) {
  const Value w = b.dot_general(conjugate(b, v), x, {{0}, {0}, {1}, {1}}, x.dtype());
  const Value scaled = b.mul(v, b.broadcast_to(factor, v.dims()));
  return b.sub(x, b.mul(b.broadcast_to(scaled, x.dims()), b.broadcast_to(w, x.dims())));
}

}  // namespace

// Golub and Van Loan, Matrix Computations, 5.1.3 and 5.2.2, with LAPACK's signs: the diagonal of R is real, and its
// sign is against that of what it was made from.
Reflectors householder(Builder& b, const Value& x) {
  const int64_t batch = x.dim(0), m = x.dim(1), n = x.dim(2), k = std::min(m, n);
  const Type column{DType::I32, {batch, m, 1}}, row{DType::I32, {batch, 1, n}};
  const Value zero = index(b, 0), rows = b.iota(column, 1), cols = b.iota(row, 2);
  const Values done =
      repeat(b, k, {x, splat(b, {x.dtype(), {batch, k}}, 0)}, [&](const Value& i, const Values& s) -> Values {
        const Value at = b.broadcast_to(i, column.dims), below = b.compare(Cmp::GT, rows, at);
        const Value col = b.dynamic_slice(s[0], {zero, zero, i}, {batch, m, 1});
        const Value alpha = b.dynamic_slice(col, {zero, i, zero}, {batch, 1, 1});
        const Value size = b.abs(col), none = b.like(size, 0);
        const auto most = [&](const Value& v) { return b.reshape(max_over(b, v, {1, 2}), {batch, 1, 1}); };
        const Value tail = most(b.select(below, size, none));
        const Value open = b.select(b.compare(Cmp::GE, rows, at), size, none);
        const Value scale = most(open);
        const Value unit = b.div(open, b.broadcast_to(scale, open.dims()));
        const Value norm = b.mul(scale, b.sqrt(sum_along(b, b.mul(unit, unit), 1)));

        const bool complex = is_complex(x.dtype());
        const Value re = complex ? b.real(alpha) : alpha;
        Value trivial = b.compare(Cmp::EQ, tail, b.like(tail, 0));
        if (complex) trivial = b.and_(trivial, b.compare(Cmp::EQ, b.imag(alpha), b.like(re, 0)));
        const Value beta = b.select(b.compare(Cmp::GE, re, b.like(re, 0)), b.neg(norm), norm);
        Value tau = b.div(b.sub(beta, re), beta);
        if (complex) tau = b.complex(tau, b.neg(b.div(b.imag(alpha), beta)));
        tau = b.select(trivial, splat(b, tau.type, 0), tau);

        const Value head = in_type_of(b, x, b.select(trivial, re, beta));
        const Value divisor = b.sub(alpha, in_type_of(b, x, beta));
        const Value v_below =
            b.select(b.broadcast_to(trivial, column.dims), col, b.div(col, b.broadcast_to(divisor, col.dims())));
        const Value none_of_x = splat(b, col.type, 0);
        const Value is_head = b.compare(Cmp::EQ, rows, at);
        const Value v = b.select(is_head, splat(b, col.type, 1), b.select(below, v_below, none_of_x));
        const Value packed = b.select(is_head, b.broadcast_to(head, col.dims()), b.select(below, v_below, col));
        const Values made = b.barrier({v, packed, tau});
        const Value right = b.broadcast_to(b.compare(Cmp::GT, cols, b.broadcast_to(i, row.dims)), x.dims());
        const Value next = b.select(right, reflected(b, s[0], made[0], conjugate(b, made[2])), s[0]);
        return {b.dynamic_update_slice(next, made[1], {zero, zero, i}),
                b.dynamic_update_slice(s[1], b.reshape(made[2], {batch, 1}), {zero, i})};
      });
  return {done[0], done[1]};
}

Value apply_reflectors(Builder& b, const Reflectors& r, const Value& x, bool adjoint) {
  const int64_t batch = x.dim(0), k = r.tau.dim(1);
  return repeat(b, k, {x}, [&](const Value& step, const Values& s) -> Values {
    const Value i = adjoint ? step : b.sub(index(b, k - 1), step);
    const Value tau = b.reshape(b.dynamic_slice(r.tau, {index(b, 0), i}, {batch, 1}), {batch, 1, 1});
    return {reflected(b, s[0], reflector(b, r.packed, i), adjoint ? conjugate(b, tau) : tau)};
  })[0];
}

namespace {

Reflectors given(Call& c, size_t packed, size_t tau) {
  const Value v = as_batch(c.b, c.tensor(packed)), t = c.tensor(tau);
  return {v, c.b.reshape(t, {v.dim(0), t.dims().back()})};
}

// (self): the packed reflectors and tau, which PyTorch has no meta kernel for.
Values geqrf(Call& c) {
  Builder& b = c.b;
  const Type& x = c.type(0);
  const size_t rank = x.dims.size();
  TPJ_CHECK(rank >= 2 && (is_float(x.dtype) || is_complex(x.dtype)) && size_of(real_of(x.dtype)) >= 4,
            "geqrf: no matrices of floating-point numbers");
  Dims of_tau(x.dims.begin(), x.dims.end() - 1);
  of_tau.back() = std::min(x.dims[rank - 2], x.dims[rank - 1]);
  if (x.numel() == 0) return {c.tensor(0), splat(b, {x.dtype, of_tau}, 0)};
  const Reflectors r = householder(b, as_batch(b, c.tensor(0)));
  return {b.reshape(r.packed, x.dims), b.reshape(r.tau, of_tau)};
}

// (input, tau): the first columns of Q.
Values householder_product(Call& c) {
  Builder& b = c.b;
  if (c.result().numel() == 0) return {splat(b, c.result(), 0)};
  if (c.type(1).numel() == 0) return {identity(b, c.result())};
  const Reflectors r = given(c, 0, 1);
  return {b.reshape(apply_reflectors(b, r, identity(b, r.packed.type), false), c.result_dims())};
}

// (input, tau, other, left, transpose): Q other, Q^H other, other Q or other Q^H.
Values ormqr(Call& c) {
  Builder& b = c.b;
  if (c.result().numel() == 0 || c.type(1).numel() == 0) return {c.tensor(2)};
  const Reflectors r = given(c, 0, 1);
  const bool left = c.arg_count() <= 3 || c.flag(3), transpose = c.flag(4);
  const Value x = as_batch(b, c.tensor(2));
  const Value y =
      left ? apply_reflectors(b, r, x, transpose) : adjoint(b, apply_reflectors(b, r, adjoint(b, x), !transpose));
  return {b.reshape(y, c.result_dims())};
}

// (A, mode): Q and R; "complete" has a square Q, "r" none.
Values qr(Call& c) {
  Builder& b = c.b;
  const bool has_q = c.string(1) != "r";
  const Type& q = c.result(0);
  const Type& r = c.result(1);
  Values out{splat(b, q, 0), splat(b, r, 0)};
  if (c.type(0).numel() == 0) {
    if (has_q && q.numel() != 0) out[0] = identity(b, q);
    return out;
  }
  const Reflectors h = householder(b, as_batch(b, c.tensor(0)));
  const int64_t rank = static_cast<int64_t>(r.dims.size());
  const Value rows = b.slice_dim(h.packed, 1, 0, r.dims[static_cast<size_t>(rank - 2)]);
  out[1] = b.reshape(upper_triangle(b, rows), r.dims);
  if (has_q) {
    const Type eye{q.dtype, {h.packed.dim(0), h.packed.dim(1), q.dims.back()}};
    out[0] = b.reshape(apply_reflectors(b, h, identity(b, eye), false), q.dims);
  }
  return out;
}

}  // namespace

std::vector<Row> qr_rows() {
  return {
      {"geqrf", geqrf, {.asks_meta = false}},
      {"linalg_householder_product", householder_product},
      {"linalg_qr", qr},
      {"ormqr", ormqr},
  };
}

}  // namespace tpj::lower
