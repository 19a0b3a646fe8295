// Distances of all pairs of rows in the p-norm, and their gradients.
#include "lower/common.h"
#include "lower/indexing.h"
#include "lower/row.h"

namespace tpj::lower {

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Argument p, of which 0, 1, 2 and infinity make other programs.
struct Norm {
  std::optional<double> known;
  std::function<Value(const Value& like)> p;
  bool is(double v) const { return known == v; }
};

Norm norm_of(Call& c, size_t i) {
  return {c.known(i), [&c, i](const Value& like) { return c.number(i, like.dtype(), like.dims()); }};
}

const Row::Options kNorms{.special = {{"p", {0, 1, 2, kInfinity}}}};

// The norm over the last dimension.
Value norm(Builder& b, const Value& difference, const Norm& n) {
  const Dims last{difference.rank() - 1};
  const Value x = b.abs(difference), zero = b.like(x, 0);
  if (n.is(0)) return sum_over(b, b.convert(b.compare(Cmp::NE, x, zero), x.dtype()), last);
  if (n.is(1)) return sum_over(b, x, last);
  if (n.is(2)) return b.sqrt(sum_over(b, b.mul(x, x), last));
  if (n.is(kInfinity)) return b.reduce1(x, b.scalar(x.dtype(), 0), last, &Builder::max);
  const Value sum = sum_over(b, b.pow(x, n.p(x)), last);
  return b.pow(sum, b.div(b.like(sum, 1), n.p(sum)));
}

// grad * d norm / d difference, with `grad` and `distance` lacking the last dimension. 0 where the distance is.
Value norm_backward(Builder& b, const Value& grad, const Value& difference, const Value& distance, const Norm& n) {
  const auto wide = [&](const Value& v) { return broadcast_over(b, v, difference.dims(), {difference.rank() - 1}); };
  const Value g = wide(grad), d = wide(distance), zero = b.like(g, 0), x = b.abs(difference);
  if (n.is(0)) return zero;
  if (n.is(1)) return b.mul(g, b.sign(difference));
  if (n.is(kInfinity)) return b.select(b.compare(Cmp::EQ, x, d), b.mul(g, b.sign(difference)), zero);
  const Value at_zero = b.compare(Cmp::EQ, d, zero);
  if (n.is(2)) return b.select(at_zero, zero, b.div(b.mul(g, difference), d));
  const Value exponent = b.sub(n.p(g), b.like(g, 1));
  const Value slope = b.div(b.mul(b.mul(b.sign(difference), b.pow(x, exponent)), g), b.pow(d, exponent));
  // Below 1 the slope at 0 has no bound.
  const Value flat = b.and_(b.compare(Cmp::EQ, x, zero), b.compare(Cmp::LT, exponent, zero));
  return b.select(b.or_(at_zero, flat), zero, slope);
}

// [batch..., P, R, M]: row i of x minus row j of y.
Value differences(Builder& b, const Value& x, const Value& y, const Dims& batch) {
  const int64_t p = x.dim(x.rank() - 2), r = y.dim(y.rank() - 2), m = x.dim(x.rank() - 1);
  const auto rank = static_cast<int64_t>(batch.size());
  const auto spread = [&](const Value& v, int64_t rows, int64_t rows_at) {
    Dims wide = batch, map, all = batch;
    wide.insert(wide.end(), {rows, m});
    all.insert(all.end(), {p, r, m});
    for (int64_t d = 0; d < rank; ++d) map.push_back(d);
    map.insert(map.end(), {rank + rows_at, rank + 2});
    return b.broadcast_in_dim(b.broadcast_to(v, wide), all, map);
  };
  return b.sub(spread(x, p, 0), spread(y, r, 1));
}

// _cdist_forward: (x1, x2, p, compute_mode)
Values cdist(Call& c) {
  Builder& b = c.b;
  const DType t = opmath(c.result().dtype);
  const Dims& out = c.result_dims();
  if (c.result().numel() == 0) return {b.constant(c.result(), 0)};
  return {norm(b, differences(b, c.tensor(0, t), c.tensor(1, t), Dims(out.begin(), out.end() - 2)), norm_of(c, 2))};
}

// _cdist_backward: (grad, x1, x2, p, cdist), the gradient of x1.
Values cdist_backward(Call& c) {
  Builder& b = c.b;
  const DType t = opmath(c.result().dtype);
  if (c.type(0).numel() == 0 || c.result().numel() == 0) return {b.constant(c.result(), 0)};
  const Value grad = c.tensor(0, t);
  const Dims batch(grad.dims().begin(), grad.dims().end() - 2);
  const Value d = differences(b, c.tensor(1, t), c.tensor(2, t), batch);
  const Value slopes = norm_backward(b, grad, d, c.tensor(4, t), norm_of(c, 3));
  const Value sum = sum_over(b, slopes, {d.rank() - 2});
  // Dimensions that were broadcast.
  const Dims& out = c.result_dims();
  const int64_t lead = sum.rank() - static_cast<int64_t>(out.size());
  Dims over;
  for (int64_t i = 0; i < sum.rank(); ++i)
    if (i < lead || (out[static_cast<size_t>(i - lead)] == 1 && sum.dim(i) != 1)) over.push_back(i);
  return {b.reshape(sum_over(b, sum, over), out)};
}

// ---- pdist: the pairs i < j of one list of n rows, row after row

// Place of the pair (i, i + 1): i (2n - i - 1) / 2.
Value first_pair(Builder& b, const Value& i, int64_t n) {
  const Value rest = b.sub(b.constant(i.type, 2 * n - 1), i);
  return b.div(b.mul(i, rest), b.constant(i.type, 2));
}

// (i, j) of every pair.
std::pair<Value, Value> pairs(Builder& b, int64_t n) {
  const Type line{DType::I64, {n * (n - 1) / 2}};
  const Value k = b.iota(line, 0), one = b.constant(line, 1);
  // The greatest i whose first pair is not after k: the root of a quadratic, corrected for rounding.
  const Value x = b.convert(k, DType::F64), m = b.like(x, static_cast<double>(2 * n - 1));
  const Value root = b.sqrt(b.sub(b.mul(m, m), b.mul(x, b.like(x, 8))));
  Value i = b.convert(b.mul(b.sub(m, root), b.like(x, 0.5)), DType::I64);
  i = b.sub(i, b.convert(b.compare(Cmp::GT, first_pair(b, i, n), k), DType::I64));
  i = b.add(i, b.convert(b.compare(Cmp::LE, first_pair(b, b.add(i, one), n), k), DType::I64));
  return {i, b.add(b.add(i, one), b.sub(k, first_pair(b, i, n)))};
}

// _pdist_forward: (self, p)
Values pdist(Call& c) {
  Builder& b = c.b;
  const Value x = c.tensor(0, opmath(c.result().dtype));
  if (c.result().numel() == 0) return {b.constant(c.result(), 0)};
  const auto [i, j] = pairs(b, x.dim(0));
  const Value d = b.sub(read_at(b, x, {{i}, {0}, 0}), read_at(b, x, {{j}, {0}, 0}));
  return {x.dim(1) == 0 ? b.constant(c.result(), 0) : norm(b, d, norm_of(c, 1))};
}

// _pdist_backward: (grad, self, p, pdist), as of the whole symmetric matrix of distances.
Values pdist_backward(Call& c) {
  Builder& b = c.b;
  const DType t = opmath(c.result().dtype);
  const Value x = c.tensor(1, t);
  const int64_t n = x.dim(0);
  if (n < 2 || c.result().numel() == 0) return {b.constant(c.result(), 0)};
  const Type square{DType::I64, {n, n}};
  const Value i = b.iota(square, 0), j = b.iota(square, 1), low = b.min(i, j), high = b.max(i, j);
  const Value diagonal = b.compare(Cmp::EQ, i, j);
  Value at = b.add(first_pair(b, low, n), b.sub(b.sub(high, low), b.constant(square, 1)));
  at = b.select(diagonal, b.constant(square, 0), at);
  const auto matrix = [&](size_t arg) {
    const Value v = read_at(b, c.tensor(arg, t), {{at}, {0}, 0});
    return b.select(diagonal, b.like(v, 0), v);
  };
  const Value slopes = norm_backward(b, matrix(0), differences(b, x, x, {}), matrix(3), norm_of(c, 2));
  return {sum_over(b, slopes, {1})};
}

}  // namespace

std::vector<Row> distance_rows() {
  return {
      {"_cdist_backward", cdist_backward, kNorms},
      {"_cdist_forward", cdist, kNorms},
      {"_pdist_backward", pdist_backward, kNorms},
      {"_pdist_forward", pdist, kNorms},
  };
}

}  // namespace tpj::lower
