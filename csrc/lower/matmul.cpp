// Products of matrices and vectors. Narrow floats multiply into float32 sums and round once.
#include "lower/common.h"
#include "lower/row.h"

namespace tpj::lower {
namespace {

Value conjugate(Builder& b, const Value& x) {
  return is_complex(x.dtype()) ? b.complex(b.real(x), b.neg(b.imag(x))) : x;
}

// Narrow floats stay narrow as operands (their products are exact in float32, and matrix units take them so).
// x of rank 2 times y of rank 2 (or 1), or of rank 3 in batches.
Value product(Builder& b, const Value& x, const Value& y) {
  TPJ_CHECK(x.dtype() == y.dtype(), "expected m1 and m2 to have the same dtype, but got: ", info(x.dtype()).name,
            " != ", info(y.dtype()).name);
  if (x.rank() == 3) return b.dot_general(x, y, {{0}, {0}, {2}, {1}}, opmath(x.dtype()));
  return b.dot_general(x, y, {{}, {}, {x.rank() - 1}, {0}}, opmath(x.dtype()));
}

// beta * self + alpha * p. With beta = 0 self is not read: its NaN do not count.
Value combine(Call& c, Value p, size_t beta, size_t alpha) {
  const DType t = p.dtype();
  if (!c.absent_or(alpha, 1)) p = c.b.mul(p, c.number(alpha, t, p.dims()));
  if (c.is(beta, 0)) return p;
  Value self = c.operand(0, t, c.result_dims());
  if (!c.absent_or(beta, 1)) self = c.b.mul(self, c.number(beta, t, p.dims()));
  return c.b.add(self, p);
}

Values matmul(Call& c) { return {product(c.b, c.tensor(0), c.tensor(1))}; }

Values add_product(Call& c) { return {combine(c, product(c.b, c.tensor(1), c.tensor(2)), 3, 4)}; }

// The sum over the batch of the products.
Values addbmm(Call& c) {
  const Value x = c.tensor(1), y = c.tensor(2);
  return {combine(c, c.b.dot_general(x, y, {{}, {}, {0, 2}, {0, 1}}, opmath(x.dtype())), 3, 4)};
}

Values addr(Call& c) {
  const DType t = opmath(c.result().dtype);
  const Dims& dims = c.result_dims();
  const Value x = c.b.broadcast_in_dim(c.tensor(1, t), dims, {0}), y = c.b.broadcast_in_dim(c.tensor(2, t), dims, {1});
  if (!is_bool(t)) return {combine(c, c.b.mul(x, y), 3, 4)};
  const Value p = c.b.and_(c.b.and_(x, y), cast(c.b, c.number(4, DType::F64, dims), t));
  if (c.is(3, 0)) return {p};
  return {c.b.or_(c.b.and_(c.operand(0, t, dims), cast(c.b, c.number(3, DType::F64, dims), t)), p)};
}

Values vdot(Call& c) { return {product(c.b, conjugate(c.b, c.tensor(0)), c.tensor(1))}; }

const Row::Options kScaled{.special = {{"beta", {0, 1}}, {"alpha", {1}}}};

}  // namespace

std::vector<Row> matmul_rows() {
  return {
      {"addbmm", addbmm, kScaled},
      {"addmm", add_product, kScaled},
      {"addmv", add_product, kScaled},
      {"addr", addr, kScaled},
      {"baddbmm", add_product, kScaled},
      {"bmm", matmul},
      {"dot", matmul},
      {"mm", matmul},
      {"mv", matmul},
      {"vdot", vdot},
  };
}

}  // namespace tpj::lower
