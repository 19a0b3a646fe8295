// Loss functions and their derivatives. Reduction: 0 none, 1 mean, 2 sum.
#include "lower/common.h"
#include "lower/indexing.h"
#include "lower/row.h"
#include "lower/scan.h"

namespace tpj::lower {

std::vector<Row> distance_rows();

namespace {

constexpr int64_t kMean = 1;

Value at(Call& c, size_t i, const Dims& dims) { return c.operand(i, opmath(c.common_dtype), dims); }

Value half(Builder& b, const Value& x) { return b.mul(x, b.like(x, 0.5)); }

// The loss of each element, reduced as integer argument `reduction` says.
Values reduced(Call& c, const Value& loss, size_t reduction) {
  const int64_t how = c.integer_or(reduction, kMean);
  if (how == 0) return {loss};
  const Dims all = normalized_dims({}, loss.rank());
  return {how == kMean ? mean_over(c.b, loss, all) : sum_over(c.b, loss, all)};
}

// The incoming gradient at the result's size, divided by the number of elements for the mean.
Value spread_grad(Call& c, size_t reduction) {
  const Value g = at(c, 0, c.result_dims());
  if (c.integer(reduction) != kMean) return g;
  return c.b.div(g, c.b.like(g, static_cast<double>(g.type.numel())));
}

Value difference(Call& c, size_t x, size_t y) {
  const Dims dims = broadcast_sizes({c.type(x).dims, c.type(y).dims});
  return c.b.sub(at(c, x, dims), at(c, y, dims));
}

// ---- regression: (self, target, reduction, ...) and (grad, self, target, reduction, ...)

Values mse_loss(Call& c) {
  const Value d = difference(c, 0, 1);
  return reduced(c, c.b.mul(d, d), 2);
}

Values mse_loss_backward(Call& c) {
  const Value d = difference(c, 1, 2);
  return {c.b.mul(c.b.mul(d, c.b.like(d, 2)), spread_grad(c, 3))};
}

// z^2 / (2 beta) below beta, z - beta/2 above.
Values smooth_l1_loss(Call& c) {
  Builder& b = c.b;
  const Value z = b.abs(difference(c, 0, 1)), beta = c.number(3, z.dtype(), z.dims());
  const Value loss = b.select(b.compare(Cmp::LT, z, beta), b.div(half(b, b.mul(z, z)), beta), b.sub(z, half(b, beta)));
  return reduced(c, loss, 2);
}

Values smooth_l1_loss_backward(Call& c) {
  Builder& b = c.b;
  const Value d = difference(c, 1, 2), beta = c.number(4, d.dtype(), d.dims()), one = b.like(d, 1);
  const Value slope = b.select(b.compare(Cmp::LE, d, b.neg(beta)), b.neg(one),
                               b.select(b.compare(Cmp::GE, d, beta), one, b.div(d, beta)));
  return {b.mul(slope, spread_grad(c, 3))};
}

// z^2 / 2 up to delta, delta * (z - delta/2) above.
Values huber_loss(Call& c) {
  Builder& b = c.b;
  const Value z = b.abs(difference(c, 0, 1)), delta = c.number(3, z.dtype(), z.dims());
  const Value loss =
      b.select(b.compare(Cmp::LE, z, delta), half(b, b.mul(z, z)), b.mul(delta, b.sub(z, half(b, delta))));
  return reduced(c, loss, 2);
}

Values huber_loss_backward(Call& c) {
  Builder& b = c.b;
  const Value d = difference(c, 1, 2), delta = c.number(4, d.dtype(), d.dims());
  return {b.mul(b.min(b.max(d, b.neg(delta)), delta), spread_grad(c, 3))};
}

// ---- two classes

// weight[i] * loss, when there is a weight.
Value weighted(Call& c, const Value& loss, size_t weight) {
  return c.has(weight) ? c.b.mul(loss, at(c, weight, loss.dims())) : loss;
}

// (self, target, weight, reduction); logarithms are kept above -100.
Values binary_cross_entropy(Call& c) {
  Builder& b = c.b;
  const Value x = at(c, 0, c.type(0).dims), y = at(c, 1, x.dims()), floor = b.like(x, -100);
  const Value log_x = b.max(b.log(x), floor), log_rest = b.max(b.log1p(b.neg(x)), floor);
  const Value loss = b.sub(b.mul(b.sub(y, b.like(y, 1)), log_rest), b.mul(y, log_x));
  return reduced(c, weighted(c, loss, 2), 3);
}

// (grad, self, target, weight, reduction)
Values binary_cross_entropy_backward(Call& c) {
  Builder& b = c.b;
  const Value x = at(c, 1, c.result_dims()), y = at(c, 2, x.dims());
  const Value slope = b.div(b.sub(x, y), b.max(b.mul(b.sub(b.like(x, 1), x), x), b.like(x, 1e-12)));
  return {weighted(c, b.mul(spread_grad(c, 4), slope), 3)};
}

// (self, target, weight, pos_weight, reduction): (1 - y) x + w log(1 + e^-x), w = 1 + (pos_weight - 1) y.
Values binary_cross_entropy_with_logits(Call& c) {
  Builder& b = c.b;
  const Value x = at(c, 0, c.type(0).dims), y = at(c, 1, x.dims()), one = b.like(x, 1);
  Value soft = b.add(b.log1p(b.exp(b.neg(b.abs(x)))), b.max(b.neg(x), b.like(x, 0)));
  if (c.has(3)) soft = b.mul(soft, b.add(b.mul(b.sub(at(c, 3, x.dims()), one), y), one));
  return reduced(c, weighted(c, b.add(b.mul(b.sub(one, y), x), soft), 2), 4);
}

// (self, target, reduction): log(1 + e^(-x y))
Values soft_margin_loss(Call& c) {
  Builder& b = c.b;
  const Dims dims = broadcast_sizes({c.type(0).dims, c.type(1).dims});
  return reduced(c, b.log1p(b.exp(b.neg(b.mul(at(c, 0, dims), at(c, 1, dims))))), 2);
}

Values soft_margin_loss_backward(Call& c) {
  Builder& b = c.b;
  const Value x = at(c, 1, c.result_dims()), y = at(c, 2, x.dims());
  return {b.mul(b.neg(b.mul(y, b.logistic(b.neg(b.mul(x, y))))), spread_grad(c, 3))};
}

// ---- negative log likelihood: input [C], [N, C] or [N, C, spatial...], target without the C

int64_t class_dim(const Type& input) { return input.rank() == 1 ? 0 : 1; }

struct Target {
  Value index;    // i64, 0 where ignored
  Value ignored;  // Bool
};

Target read_target(Call& c, size_t target, size_t ignore_index) {
  Builder& b = c.b;
  const Value t = c.tensor(target, DType::I64),
              ignored = b.compare(Cmp::EQ, t, b.like(t, static_cast<double>(c.integer(ignore_index))));
  return {b.select(ignored, b.like(t, 0), t), ignored};
}

// x[..., index, ...] along `dim`, every other dimension matched with one of the index.
Value pick(Builder& b, const Value& x, const Value& index, int64_t dim) {
  if (index.type.numel() == 0) return b.constant({x.dtype(), index.dims()}, 0);
  hlo::GatherDims d;
  for (int64_t i = 0; i < x.rank(); ++i)
    if (i != dim) d.operand_batching.push_back(i);
  for (int64_t i = 0; i < index.rank(); ++i) d.indices_batching.push_back(i);
  d.collapsed = d.start_index_map = {dim};
  d.index_vector_dim = index.rank();
  d.slice_sizes = Dims(x.dims().size(), 1);
  Dims column = index.dims();
  column.push_back(1);
  return b.gather(x, b.reshape(index, column), d, index.dims());
}

// The class weight of each target, 0 where ignored.
Value target_weights(Call& c, const Target& t, size_t weight, DType dtype) {
  Builder& b = c.b;
  const Type type{dtype, t.index.dims()};
  Value w = b.constant(type, 1);
  if (c.has(weight)) {
    hlo::GatherDims d;
    d.collapsed = d.start_index_map = {0};
    d.index_vector_dim = t.index.rank();
    d.slice_sizes = {1};
    Dims column = type.dims;
    column.push_back(1);
    w = b.gather(c.tensor(weight, dtype), b.reshape(t.index, column), d, type.dims);
  }
  return b.select(t.ignored, b.constant(type, 0), w);
}

// (self, target, weight, reduction, ignore_index) -> (loss, the sum of the weights that counted)
Values nll_loss(Call& c) {
  Builder& b = c.b;
  const DType dtype = opmath(c.type(0).dtype);
  const Target t = read_target(c, 1, 4);
  const Value x = c.tensor(0, dtype);
  const Value w = target_weights(c, t, 2, dtype);
  const Value picked = pick(b, x, t.index, class_dim(x.type));
  // Selected, not multiplied: an ignored infinity must not become NaN.
  const Value loss = b.select(t.ignored, b.like(w, 0), b.neg(b.mul(picked, w)));
  const int64_t reduction = c.integer(3);
  if (reduction == 0 && t.index.rank() > 0) return {loss, b.constant(c.result(1), 0)};
  const Dims all = normalized_dims({}, loss.rank());
  const Value sum = sum_over(b, loss, all), total = sum_over(b, w, all);
  return {reduction == kMean ? b.div(sum, total) : sum, total};
}

// (grad, self, target, weight, reduction, ignore_index, total_weight)
Values nll_loss_backward(Call& c) {
  Builder& b = c.b;
  const DType dtype = opmath(c.type(1).dtype);
  const Type out{dtype, c.result_dims()};
  const int64_t dim = class_dim(out);
  const Target t = read_target(c, 2, 5);
  const Value w = target_weights(c, t, 3, dtype);
  Value g = c.tensor(0, dtype);
  if (c.integer(4) == kMean) g = b.div(g, c.tensor(6, dtype));
  g = b.neg(b.mul(b.broadcast_to(g, w.dims()), w));
  const DType narrow = out.dims[static_cast<size_t>(dim)] < (int64_t{1} << 31) ? DType::I32 : DType::I64;
  const Value hit = b.compare(Cmp::EQ, b.iota({narrow, out.dims}, dim),
                              broadcast_over(b, b.convert(t.index, narrow), out.dims, {dim}));
  const Value counts = b.and_(hit, broadcast_over(b, b.not_(t.ignored), out.dims, {dim}));
  return {b.select(counts, broadcast_over(b, g, out.dims, {dim}), b.constant(out, 0))};
}

// ---- margins between classes: input [N, C] or [C]

// A [C] input as [1, C].
Value by_rows(Builder& b, const Value& x) { return x.rank() < 2 ? b.reshape(x, {1, x.type.numel()}) : x; }

// The losses [N] reduced to the result's sizes.
Value reduced_rows(Call& c, const Value& loss, size_t reduction) {
  return c.b.reshape(reduced(c, loss, reduction)[0], c.result_dims());
}

// (self, target, p, margin, weight, reduction): sum over the other classes of w_t max(0, margin - x_t + x_j)^p / C
Values multi_margin_loss(Call& c) {
  Builder& b = c.b;
  const DType dtype = opmath(c.type(0).dtype);
  TPJ_CHECK(c.is(2, 1) || c.is(2, 2), "multi_margin_loss: only p of 1 and 2");
  const Value x = by_rows(b, c.tensor(0, dtype));
  if (x.type.numel() == 0) return {b.constant(c.result(), 0)};
  const Value t = b.reshape(c.tensor(1, DType::I64), {x.dim(0)});
  const Value own = b.broadcast_in_dim(pick(b, x, t, 1), x.dims(), {0}), zero = b.like(x, 0);
  Value h = b.max(b.add(b.sub(x, own), c.number(3, dtype, x.dims())), zero);
  if (c.is(2, 2)) h = b.mul(h, h);
  const Value is_own = b.compare(Cmp::EQ, b.iota({DType::I64, x.dims()}, 1), b.broadcast_in_dim(t, x.dims(), {0}));
  Value loss = mean_over(b, b.select(is_own, zero, h), {1});
  if (c.has(4)) loss = b.mul(loss, target_weights(c, {t, b.constant({DType::Bool, t.dims()}, false)}, 4, dtype));
  return {reduced_rows(c, loss, 5)};
}

// (self, target, reduction) -> (loss, which classes are targets): the targets of a row end at the first -1. Sum over
// targets t and other classes j of max(0, 1 - x_t + x_j) / C
Values multilabel_margin_loss(Call& c) {
  Builder& b = c.b;
  const DType dtype = opmath(c.type(0).dtype);
  const Value x = by_rows(b, c.tensor(0, dtype)), t = by_rows(b, c.tensor(1, DType::I64));
  if (x.type.numel() == 0) return {b.constant(c.result(0), 0), b.constant(c.result(1), 0)};
  const int64_t n = x.dim(0), classes = x.dim(1);
  const Value listed = running(b, b.convert(b.compare(Cmp::GE, t, b.constant(t.type, 0)), DType::I32), 1, &Builder::min,
                               b.constant({DType::I32, {}}, 1));
  const Value is_listed = b.compare(Cmp::EQ, listed, b.constant(listed.type, 1));
  const Value at = b.select(is_listed, positions(b, t, classes), b.constant({DType::I32, t.dims()}, -1));
  const Value is_target = write_along(b, b.constant({DType::Bool, x.dims()}, false), 1, at,
                                      b.constant({DType::Bool, at.dims()}, true), replace());
  const Dims all{n, classes, classes};  // row, target, class
  const auto wide = [&](const Value& v, int64_t dim) { return b.broadcast_in_dim(v, all, {0, dim}); };
  const Value own = wide(read_along(b, x, 1, at), 1), zero = b.constant({dtype, all}, 0);
  const Value h = b.max(b.add(b.sub(wide(x, 2), own), b.like(zero, 1)), zero);
  const Value counts = b.and_(wide(is_listed, 1), b.not_(wide(is_target, 2)));
  const Value sum = sum_over(b, b.select(counts, h, zero), {1, 2});
  const Value loss = b.div(sum, b.like(sum, static_cast<double>(classes)));
  return {reduced_rows(c, loss, 2), b.reshape(is_target, c.result_dims(1))};
}

}  // namespace

std::vector<Row> loss_rows() {
  std::vector<Row> all{
      {"binary_cross_entropy", binary_cross_entropy},
      {"binary_cross_entropy_backward", binary_cross_entropy_backward},
      {"binary_cross_entropy_with_logits", binary_cross_entropy_with_logits},
      {"huber_loss", huber_loss, {.refuses = [](auto args, DType) { return !(args[3].value > 0); }}},
      {"huber_loss_backward", huber_loss_backward},
      {"mse_loss", mse_loss},
      {"mse_loss_backward", mse_loss_backward},
      {"multi_margin_loss", multi_margin_loss, {.special = {{"p", {1, 2}}}, .bounds = Bounds::kTargets}},
      {"multilabel_margin_loss_forward", multilabel_margin_loss, {.bounds = Bounds::kTargetLists}},
      {"nll_loss2d_backward", nll_loss_backward},
      {"nll_loss2d_forward", nll_loss, {.bounds = Bounds::kClasses}},
      {"nll_loss_backward", nll_loss_backward},
      {"nll_loss_forward", nll_loss, {.bounds = Bounds::kClasses}},
      {"smooth_l1_loss", smooth_l1_loss, {.refuses = [](auto args, DType) { return !(args[3].value >= 0); }}},
      {"smooth_l1_loss_backward", smooth_l1_loss_backward},
      {"soft_margin_loss", soft_margin_loss},
      {"soft_margin_loss_backward", soft_margin_loss_backward},
  };
  const std::vector<Row> more = distance_rows();
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

}  // namespace tpj::lower
