// Softmax and the normalisations, with their derivatives. All of them compute in float32 for narrow floats, statistics
// included.
#include "lower/common.h"
#include "lower/row.h"

namespace tpj::lower {
namespace {

// ---- softmax: (self, dim, ...) and (grad, output, dim, ...)

struct Shifted {
  Value x, exp, sum;  // x - max(x) along the dims, its exponential, and the sum of that
};

Shifted shifted(Builder& b, const Value& x, const Dims& dims) {
  const Value low = b.sub(x, broadcast_over(b, max_over(b, x, dims), x.dims(), dims)), e = b.exp(low);
  return {low, e, sum_over(b, e, dims)};
}

// The dimension in argument i; none for a 0-d tensor.
Dims softmax_dims(Call& c, size_t i, int64_t rank) { return normalized_dims({c.integer(i)}, rank); }

Values softmax(Call& c) {
  Builder& b = c.b;
  const Value x = c.tensor(0, opmath(c.result().dtype));
  const Dims dims = softmax_dims(c, 1, x.rank());
  const Shifted s = shifted(b, x, dims);
  return {b.div(s.exp, broadcast_over(b, s.sum, x.dims(), dims))};
}

// Rows that are all -inf give 0, not NaN.
Values safe_softmax(Call& c) {
  Builder& b = c.b;
  const Value x = c.tensor(0, opmath(c.result().dtype));
  const Dims dims = softmax_dims(c, 1, x.rank());
  const Value big = max_over(b, x, dims);
  const Value masked = broadcast_over(b, b.compare(Cmp::EQ, big, b.min_value(big.type)), x.dims(), dims);
  return {b.select(masked, b.like(x, 0), softmax(c)[0])};
}

Values log_softmax(Call& c) {
  Builder& b = c.b;
  const Value x = c.tensor(0, opmath(c.result().dtype));
  const Dims dims = softmax_dims(c, 1, x.rank());
  const Shifted s = shifted(b, x, dims);
  return {b.sub(s.x, broadcast_over(b, b.log(s.sum), x.dims(), dims))};
}

// y * (g - sum(g * y))
Values softmax_backward(Call& c) {
  Builder& b = c.b;
  const DType t = opmath(c.common_dtype);
  const Value g = c.tensor(0, t), y = c.tensor(1, t);
  const Dims dims = softmax_dims(c, 2, y.rank());
  const Value sum = sum_over(b, b.mul(g, y), dims);
  return {b.mul(y, b.sub(g, broadcast_over(b, sum, y.dims(), dims)))};
}

// g - e^y * sum(g)
Values log_softmax_backward(Call& c) {
  Builder& b = c.b;
  const DType t = opmath(c.common_dtype);
  const Value g = c.tensor(0, t), y = c.tensor(1, t);
  const Dims dims = softmax_dims(c, 2, y.rank());
  return {b.sub(g, b.mul(b.exp(y), broadcast_over(b, sum_over(b, g, dims), y.dims(), dims)))};
}

// ---- shared by the normalisations

Dims dims_between(int64_t first, int64_t last) {
  Dims dims;
  for (int64_t i = first; i < last; ++i) dims.push_back(i);
  return dims;
}

// output_mask[k] of a backward.
bool wanted(Call& c, size_t mask, size_t k) { return c.ints(mask)[k] != 0; }

struct Stats {
  Value mean, var;  // without the dimensions reduced; var is the biased one
};

Stats stats(Builder& b, const Value& x, const Dims& dims) {
  const Value mean = mean_over(b, x, dims), off = b.sub(x, broadcast_over(b, mean, x.dims(), dims));
  return {mean, mean_over(b, b.mul(off, off), dims)};
}

// 1 / sqrt(var + eps), eps being number argument i.
Value inverse_std(Call& c, const Value& var, size_t eps) {
  return c.b.rsqrt(c.b.add(var, c.number(eps, var.dtype(), var.dims())));
}

// (x - mean) * rstd, mean and rstd lacking `dims` of x.
Value normalized(Builder& b, const Value& x, const Value& mean, const Value& rstd, const Dims& dims) {
  return b.mul(b.sub(x, broadcast_over(b, mean, x.dims(), dims)), broadcast_over(b, rstd, x.dims(), dims));
}

// y * weight + bias for those that are there; both lack the dimensions `dims` of y.
Value affine(Call& c, Value y, size_t weight, size_t bias, const Dims& dims) {
  Builder& b = c.b;
  if (c.has(weight)) y = b.mul(y, broadcast_over(b, c.tensor(weight, y.dtype()), y.dims(), dims));
  if (c.has(bias)) y = b.add(y, broadcast_over(b, c.tensor(bias, y.dtype()), y.dims(), dims));
  return y;
}

// The gradient through normalized(): rstd * (g - mean(g) - y * mean(g * y)), y being the normalized input.
Value normalized_backward(Builder& b, const Value& g, const Value& y, const Value& rstd, const Dims& dims) {
  const auto wide = [&](const Value& v) { return broadcast_over(b, v, g.dims(), dims); };
  const Value mean_g = wide(mean_over(b, g, dims)), mean_gy = wide(mean_over(b, b.mul(g, y), dims));
  return b.mul(wide(rstd), b.sub(b.sub(g, mean_g), b.mul(y, mean_gy)));
}

// Gradients of affine()'s weight and bias, and of its input, as output_mask asks.
struct AffineGrads {
  Value input, weight, bias;
};

AffineGrads affine_backward(Call& c, const Value& g, const Value& y, size_t weight, size_t mask, const Dims& over,
                            const Dims& lacking) {
  Builder& b = c.b;
  AffineGrads grads{g, {}, {}};
  if (c.has(weight)) grads.input = b.mul(g, broadcast_over(b, c.tensor(weight, g.dtype()), g.dims(), lacking));
  if (wanted(c, mask, 1)) grads.weight = sum_over(b, b.mul(g, y), over);
  if (wanted(c, mask, 2)) grads.bias = sum_over(b, g, over);
  return grads;
}

// ---- layer norm

// (input, normalized_shape, weight, bias, eps)
Values layer_norm(Call& c) {
  Builder& b = c.b;
  const Value x = c.tensor(0, opmath(c.type(0).dtype));
  const int64_t outer = x.rank() - static_cast<int64_t>(c.ints(1).size());
  const Dims dims = dims_between(outer, x.rank());
  const Stats s = stats(b, x, dims);
  const Value rstd = inverse_std(c, s.var, 4);
  const Value y = affine(c, normalized(b, x, s.mean, rstd, dims), 2, 3, dims_between(0, outer));
  return {y, b.reshape(s.mean, c.result_dims(1)), b.reshape(rstd, c.result_dims(2))};
}

// (grad, input, normalized_shape, mean, rstd, weight, bias, output_mask)
Values layer_norm_backward(Call& c) {
  Builder& b = c.b;
  const DType t = opmath(c.type(1).dtype);
  const Value g = c.tensor(0, t), x = c.tensor(1, t);
  const int64_t outer = x.rank() - static_cast<int64_t>(c.ints(2).size());
  const Dims inner_dims = dims_between(outer, x.rank()), outer_dims = dims_between(0, outer);
  const Dims outer_sizes(x.dims().begin(), x.dims().begin() + outer);
  const Value mean = b.reshape(c.tensor(3, t), outer_sizes), rstd = b.reshape(c.tensor(4, t), outer_sizes);
  const Value y = normalized(b, x, mean, rstd, inner_dims);
  AffineGrads grads = affine_backward(c, g, y, 5, 7, outer_dims, outer_dims);
  const Value dx = wanted(c, 7, 0) ? normalized_backward(b, grads.input, y, rstd, inner_dims) : Value{};
  return {dx, grads.weight, grads.bias};
}

// ---- batch norm

// Where the arguments of one of the many forms stand; 99: this form has none.
struct BatchNormArgs {
  size_t running_mean, running_var, momentum, eps;
};

struct BatchNorm {
  Value out, mean, invstd, running_mean, running_var;  // the running ones only if training moved them
};

// (1 - momentum) * old + momentum * now
Value moved(Call& c, size_t running, size_t momentum, const Value& now) {
  Builder& b = c.b;
  const Value old = c.tensor(running, now.dtype()), m = c.number(momentum, now.dtype(), now.dims());
  return b.add(b.mul(b.sub(b.like(m, 1), m), old), b.mul(m, now));
}

BatchNorm batch_norm(Call& c, const BatchNormArgs& at, bool training) {
  Builder& b = c.b;
  const Value x = c.tensor(0, opmath(c.type(0).dtype));
  Dims dims = dims_between(0, x.rank());
  dims.erase(dims.begin() + 1);
  BatchNorm r;
  if (training) {
    const Stats s = stats(b, x, dims);
    r.mean = s.mean;
    r.invstd = inverse_std(c, s.var, at.eps);
    const auto n = static_cast<double>(size_over(x.dims(), dims));
    if (c.has(at.running_mean)) r.running_mean = moved(c, at.running_mean, at.momentum, s.mean);
    // The running variance is the unbiased one.
    if (c.has(at.running_var))
      r.running_var = moved(c, at.running_var, at.momentum, b.mul(s.var, b.like(s.var, n / (n - 1))));
  } else {
    r.mean = c.tensor(at.running_mean, x.dtype());
    r.invstd = inverse_std(c, c.tensor(at.running_var, x.dtype()), at.eps);
  }
  r.out = affine(c, normalized(b, x, r.mean, r.invstd, dims), 1, 2, dims);
  return r;
}

// Saved statistics are empty where the meta kernel says so (in evaluation).
Value saved(Call& c, size_t k, const Value& v) {
  return c.result_dims(k) == v.dims() ? v : c.b.constant(c.result(k), 0);
}

// out, saved mean, saved 1/std, and further results that are always empty on this device (`reserve`).
Values batch_norm_results(Call& c, const BatchNorm& r, size_t count) {
  Values out{r.out, saved(c, 1, r.mean), saved(c, 2, r.invstd)};
  while (out.size() < count) out.push_back(c.b.constant(c.result(out.size()), 0));
  return out;
}

// (input, weight, bias, running_mean, running_var, training, momentum, eps)
Values native_batch_norm(Call& c) {
  const BatchNorm r = batch_norm(c, {3, 4, 6, 7}, c.flag(5));
  Values out = batch_norm_results(c, r, 3);
  out.push_back(r.running_mean);
  out.push_back(r.running_var);
  return out;
}

// The same, with the running statistics as results.
Values native_batch_norm_functional(Call& c) {
  const BatchNorm r = batch_norm(c, {3, 4, 6, 7}, c.flag(5));
  Values out = batch_norm_results(c, r, 3);
  out.push_back(r.running_mean ? r.running_mean : c.tensor(3));
  out.push_back(r.running_var ? r.running_var : c.tensor(4));
  return out;
}

// (input, weight, bias, training, momentum, eps)
Values batch_norm_no_stats(Call& c) { return batch_norm_results(c, batch_norm(c, {99, 99, 4, 5}, true), 3); }

// (input, weight, bias, running_mean, running_var, momentum, eps)
Values batch_norm_with_update(Call& c) {
  const BatchNorm r = batch_norm(c, {3, 4, 5, 6}, true);
  Values out = batch_norm_results(c, r, 4);
  out.push_back(r.running_mean);
  out.push_back(r.running_var);
  return out;
}

template <size_t results>
Values batch_norm_evaluation(Call& c) {
  return batch_norm_results(c, batch_norm(c, {3, 4, 5, 6}, false), results);
}

// (grad, input, weight, running_mean, running_var, save_mean, save_invstd, train, eps, output_mask)
Values batch_norm_backward(Call& c) {
  Builder& b = c.b;
  const DType t = opmath(c.type(1).dtype);
  const Value g = c.tensor(0, t), x = c.tensor(1, t);
  Dims dims = dims_between(0, x.rank());
  dims.erase(dims.begin() + 1);
  const bool train = c.flag(7);
  const Value mean = c.tensor(train ? 5 : 3, t);
  const Value invstd = train ? c.tensor(6, t) : inverse_std(c, c.tensor(4, t), 8);
  const Value y = normalized(b, x, mean, invstd, dims);
  const AffineGrads grads = affine_backward(c, g, y, 2, 9, dims, dims);
  Value dx;
  if (wanted(c, 9, 0))
    dx = train ? normalized_backward(b, grads.input, y, invstd, dims)
               : b.mul(grads.input, broadcast_over(b, invstd, x.dims(), dims));
  return {dx, grads.weight, grads.bias};
}

// ---- group norm: the input as [N, group, C / group, HxW]

// (input, weight, bias, N, C, HxW, group, eps)
Values group_norm(Call& c) {
  Builder& b = c.b;
  const int64_t n = c.integer(3), channels = c.integer(4), area = c.integer(5), groups = c.integer(6);
  const Value x = b.reshape(c.tensor(0, opmath(c.type(0).dtype)), {n, groups, channels / groups, area});
  const Stats s = stats(b, x, {2, 3});
  const Value rstd = inverse_std(c, s.var, 7);
  const Value y = b.reshape(normalized(b, x, s.mean, rstd, {2, 3}), {n, channels, area});
  return {b.reshape(affine(c, y, 1, 2, {0, 2}), c.result_dims()), b.reshape(s.mean, c.result_dims(1)),
          b.reshape(rstd, c.result_dims(2))};
}

// (grad, input, mean, rstd, weight, N, C, HxW, group, output_mask)
Values group_norm_backward(Call& c) {
  Builder& b = c.b;
  const DType t = opmath(c.type(1).dtype);
  const int64_t n = c.integer(5), channels = c.integer(6), area = c.integer(7), groups = c.integer(8);
  const Dims grouped{n, groups, channels / groups, area}, flat{n, channels, area};
  const Value g = b.reshape(c.tensor(0, t), flat), x = b.reshape(c.tensor(1, t), grouped);
  const Value mean = b.reshape(c.tensor(2, t), {n, groups}), rstd = b.reshape(c.tensor(3, t), {n, groups});
  const Value y = normalized(b, x, mean, rstd, {2, 3});
  const AffineGrads grads = affine_backward(c, g, b.reshape(y, flat), 4, 9, {0, 2}, {0, 2});
  Value dx;
  if (wanted(c, 9, 0))
    dx = b.reshape(normalized_backward(b, b.reshape(grads.input, grouped), y, rstd, {2, 3}), c.type(1).dims);
  return {dx, grads.weight, grads.bias};
}

}  // namespace

std::vector<Row> norm_loss_rows() {
  return {
      {"_batch_norm_no_update", batch_norm_evaluation<4>},
      {"_batch_norm_with_update", batch_norm_with_update},
      {"_batch_norm_with_update_functional", batch_norm_with_update},
      {"_log_softmax", log_softmax},
      {"_log_softmax_backward_data", log_softmax_backward},
      {"_native_batch_norm_legit", native_batch_norm},
      {"_native_batch_norm_legit.no_stats", batch_norm_no_stats},
      {"_native_batch_norm_legit_functional", native_batch_norm_functional},
      {"_native_batch_norm_legit_no_training", batch_norm_evaluation<3>},
      {"_safe_softmax", safe_softmax},
      {"_softmax", softmax},
      {"_softmax_backward_data", softmax_backward},
      {"batch_norm_backward", batch_norm_backward},
      {"native_batch_norm", native_batch_norm, {.mutates = {"running_mean", "running_var"}}},
      {"native_batch_norm_backward", batch_norm_backward},
      {"native_group_norm", group_norm},
      {"native_group_norm_backward", group_norm_backward},
      {"native_layer_norm", layer_norm},
      {"native_layer_norm_backward", layer_norm_backward},
  };
}

}  // namespace tpj::lower
