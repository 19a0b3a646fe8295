// The list forms of operators, each made of the functional row applied to every element, and the fused optimizers: one
// program for the whole list of parameters.
#include "lower/common.h"
#include "lower/row.h"

namespace tpj::lower {
namespace {

// ---- list forms

// Argument `a` as element k sees it: lists give their k-th item, all else is shared.
Arg element(const Arg& a, size_t k) {
  return a.kind == Arg::Kind::kTensors || a.kind == Arg::Kind::kNumbers ? a.items[k] : a;
}

using ElementArgs = std::vector<Arg> (*)(Call&, size_t k);

std::vector<Arg> same_args(Call& c, size_t k) {
  std::vector<Arg> args;
  for (size_t i = 0; i < c.arg_count(); ++i) args.push_back(element(c.arg(i), k));
  return args;
}

// (self, ord, dtype) -> (self, ord, dim, keepdim, dtype)
std::vector<Arg> norm_args(Call& c, size_t k) { return {element(c.arg(0), k), c.arg(1), {}, {}, c.arg(2)}; }

// Applies the row of that name to every element of the lists.
template <FixedString row, ElementArgs element_args = same_args>
Values each(Call& c) {
  const Row* functional = find_row(row);
  TPJ_ASSERT(functional, "no row is named ", std::string_view(row));
  Values out;
  for (size_t k = 0; k < c.result_count(); ++k) {
    std::vector<Arg> args = element_args(c, k);
    std::vector<Type> tensors;
    for (const Arg& a : args)
      if (a.kind == Arg::Kind::kTensor) tensors.push_back(a.type);
    Call one(c.b, row, std::move(args), {c.result(k)}, result_type(tensors));
    out.push_back(functional->lower(one)[0]);
  }
  return out;
}

// The tensors of list argument i at the results' sizes.
template <size_t list>
Values copies(Call& c) {
  Values out;
  for (size_t k = 0; k < c.result_count(); ++k)
    out.push_back(c.b.broadcast_to(cast(c.b, c.tensor_at(list, k), c.result(k).dtype), c.result_dims(k)));
  return out;
}

// ---- optimizers

// A number argument, or a 0-d tensor standing for one.
Value number(Call& c, size_t i, DType t) { return is_number(c, i) ? c.scalar(i, t) : c.b.reshape(c.tensor(i, t), {}); }

// 1 - x in float64 before it is rounded: 1 - 0.999 in float32 would be off by 3e-5.
Value one_minus(Call& c, size_t i, DType t) {
  const Value x = c.scalar(i, DType::F64);
  return c.b.convert(c.b.sub(c.b.like(x, 1), x), t);
}

// What all optimizers do with a list of parameters: arguments 0 (parameters) and 1 (gradients), the positions of the
// others.
struct Optimizer {
  size_t weight_decay, maximize, grad_scale, found_inf;
};

class Step {
 public:
  Step(Call& c, const Optimizer& at, size_t k) : b(c.b), t(opmath(c.type_at(0, k).dtype)), c_(c), at_(at), k_(k) {
    param = tensor(0);
    grad = tensor(1);
    if (c.has(at.grad_scale)) grad = unscaled = b.div(grad, wide(number(c, at.grad_scale, t)));
    if (c.flag(at.maximize)) grad = b.neg(grad);
  }

  Value tensor(size_t list) const { return b.convert(c_.tensor_at(list, k_), t); }
  Value wide(const Value& x) const { return b.broadcast_to(x, param.dims()); }
  Value scaled(const Value& x, const Value& factor) const { return b.mul(x, wide(factor)); }
  bool decays() const { return !c_.is(at_.weight_decay, 0); }
  void decay_grad() {
    if (decays()) grad = b.add(grad, scaled(param, number(c_, at_.weight_decay, t)));
  }

  // `now`, or what stands in that list where a gradient was not finite and the step is skipped.
  Value unless_skipped(size_t list, const Value& now) const {
    if (!c_.has(at_.found_inf)) return now;
    const Value found = number(c_, at_.found_inf, DType::F32);
    return b.select(b.compare(Cmp::EQ, found, b.like(found, 1)), tensor(list), now);
  }

  Builder& b;
  DType t;                      // computed in
  Value param, grad, unscaled;  // unscaled: the gradient to be stored, if it changed

 private:
  Call& c_;
  Optimizer at_;
  size_t k_;
};

// Per-list results, flattened in order.
Values flattened(const std::vector<Values>& lists) {
  Values out;
  for (const Values& l : lists) out.insert(out.end(), l.begin(), l.end());
  return out;
}

// 1 - beta^step as -expm1(step * log1p(-(1 - beta))), which keeps its digits when beta is close to 1.
Value bias_correction(Builder& b, const Value& one_minus_beta, const Value& step) {
  return b.neg(b.expm1(b.mul(step, b.log1p(b.neg(one_minus_beta)))));
}

enum class Decay { kIntoGradient, kDecoupled };  // Adam, AdamW

// (self, grads, exp_avgs, exp_avg_sqs, max_exp_avg_sqs, state_steps, lr, beta1, beta2, weight_decay, eps, amsgrad,
// maximize, grad_scale, found_inf): https://arxiv.org/abs/1412.6980, https://arxiv.org/abs/1711.05101
template <Decay decay>
Values adam(Call& c) {
  Builder& b = c.b;
  const bool amsgrad = c.flag(11);
  const size_t count = c.count(0);
  Values params(count), grads(count), avgs(count), squares(count), maxima(c.count(4));
  for (size_t k = 0; k < count; ++k) {
    Step s(c, {9, 12, 13, 14}, k);
    const DType t = s.t;
    const Value lr = number(c, 6, t), slow1 = one_minus(c, 7, t), slow2 = one_minus(c, 8, t);
    const Value step = b.reshape(b.convert(c.tensor_at(5, k), t), {});
    if (s.decays() && decay == Decay::kDecoupled) {
      const Value kept = b.sub(b.like(lr, 1), b.mul(lr, c.scalar(9, t)));
      s.param = s.scaled(s.param, kept);
    } else {
      s.decay_grad();
    }
    const Value old_avg = s.tensor(2), avg = b.add(old_avg, s.scaled(b.sub(s.grad, old_avg), slow1));
    const Value square = b.add(s.scaled(s.tensor(3), c.scalar(8, t)), b.mul(s.scaled(s.grad, slow2), s.grad));
    Value spread = square;
    if (amsgrad) {
      spread = b.max(s.tensor(4), square);
      maxima[k] = s.unless_skipped(4, spread);
    }
    const Value root2 = b.sqrt(bias_correction(b, slow2, step)), size = b.div(lr, bias_correction(b, slow1, step));
    const Value denominator = b.add(b.div(b.sqrt(spread), s.wide(root2)), s.wide(c.scalar(10, t)));
    params[k] = s.unless_skipped(0, b.sub(s.param, b.div(s.scaled(avg, size), denominator)));
    avgs[k] = s.unless_skipped(2, avg);
    squares[k] = s.unless_skipped(3, square);
    if (s.unscaled) grads[k] = s.unless_skipped(1, s.unscaled);
  }
  return flattened({params, grads, avgs, squares, maxima});
}

// (self, grads, momentum_buffers, weight_decay, momentum, lr, dampening, nesterov, maximize, is_first_step, grad_scale,
// found_inf)
Values sgd(Call& c) {
  Builder& b = c.b;
  const bool momentum = !c.is(4, 0), nesterov = c.flag(7), first = c.flag(9);
  const size_t count = c.count(0);
  Values params(count), grads(count), buffers(c.count(2));
  for (size_t k = 0; k < count; ++k) {
    Step s(c, {3, 8, 10, 11}, k);
    const DType t = s.t;
    s.decay_grad();
    if (momentum && !buffers.empty()) {
      Value buffer = s.grad;
      if (!first) buffer = b.add(s.scaled(s.tensor(2), c.scalar(4, t)), s.scaled(s.grad, one_minus(c, 6, t)));
      buffers[k] = s.unless_skipped(2, buffer);
      s.grad = nesterov ? b.add(s.grad, s.scaled(buffer, c.scalar(4, t))) : buffer;
    }
    params[k] = s.unless_skipped(0, b.sub(s.param, s.scaled(s.grad, number(c, 5, t))));
    if (s.unscaled) grads[k] = s.unless_skipped(1, s.unscaled);
  }
  return flattened({params, grads, buffers});
}

// (self, grads, state_sums, state_steps, lr, lr_decay, weight_decay, eps, maximize, grad_scale, found_inf). The steps
// count as mutated in the form whose lr is a number, though they are not.
template <bool steps_too>
Values adagrad(Call& c) {
  Builder& b = c.b;
  const size_t count = c.count(0);
  Values params(count), grads(count), sums(count), steps(steps_too ? count : 0);
  for (size_t k = 0; k < count; ++k) {
    Step s(c, {6, 8, 9, 10}, k);
    const DType t = s.t;
    s.decay_grad();
    const Value step = b.reshape(b.convert(c.tensor_at(3, k), t), {}), one = b.like(step, 1);
    const Value lr = b.div(number(c, 4, t), b.add(one, b.mul(b.sub(step, one), c.scalar(5, t))));
    const Value sum = b.add(s.tensor(2), b.mul(s.grad, s.grad));
    const Value denominator = b.add(b.sqrt(sum), s.wide(c.scalar(7, t)));
    params[k] = s.unless_skipped(0, b.sub(s.param, b.div(s.scaled(s.grad, lr), denominator)));
    sums[k] = s.unless_skipped(2, sum);
    if (s.unscaled) grads[k] = s.unless_skipped(1, s.unscaled);
  }
  return flattened({params, grads, sums, steps});
}

// ---- automatic mixed precision

// (self, found_inf, inv_scale): every tensor times inv_scale; found_inf becomes 1 when one held an infinity or a NaN.
Values unscale(Call& c) {
  Builder& b = c.b;
  Values out;
  Value bad = b.compare(Cmp::NE, b.reshape(c.tensor(1), {}), b.scalar(c.type(1).dtype, 0));
  for (size_t k = 0; k < c.count(0); ++k) {
    const Value x = b.convert(c.tensor_at(0, k), opmath(c.type_at(0, k).dtype));
    const Value infinite = b.not_(b.is_finite(x));
    const Value any =
        b.reduce1(infinite, b.constant({DType::Bool, {}}, false), normalized_dims({}, x.rank()), &Builder::or_);
    bad = b.or_(bad, any);
    out.push_back(b.mul(x, b.broadcast_to(b.reshape(c.tensor(2, x.dtype()), {}), x.dims())));
  }
  out.push_back(b.reshape(b.convert(bad, c.type(1).dtype), c.type(1).dims));
  return out;
}

// (scale, growth_tracker, found_inf, growth, backoff, interval): down after an infinity, up after `interval` steps
// without one.
Values update_scale(Call& c) {
  Builder& b = c.b;
  const Value scale = c.tensor(0), tracker = c.tensor(1), found = b.reshape(c.tensor(2), scale.dims());
  const auto times = [&](size_t i) { return b.mul(scale, c.number(i, scale.dtype(), scale.dims())); };
  const Value bad = b.compare(Cmp::NE, found, b.like(found, 0)), next = b.add(tracker, b.like(tracker, 1));
  const Value bad_tracker = b.reshape(bad, tracker.dims());
  const Value due = b.compare(Cmp::EQ, next, b.constant(next.type, c.integer(5))), grown = times(3);
  const Value grows = b.and_(b.reshape(due, scale.dims()), b.is_finite(grown));
  return {b.select(bad, times(4), b.select(grows, grown, scale)),
          b.select(b.or_(bad_tracker, due), b.like(tracker, 0), next)};
}

Row::Options alpha() { return {.special = {{"alpha", {1}}}}; }
Row::Options value() { return {.special = {{"value", {1}}}}; }
Row::Options weight_decay() { return {.special = {{"weight_decay", {0}}}}; }

}  // namespace

std::vector<Row> foreach_optim_rows() {
  constexpr double kInf = std::numeric_limits<double>::infinity();
  const Row::Options sgd_options{.special = {{"weight_decay", {0}}, {"momentum", {0}}}};
  return {
      {"_amp_foreach_non_finite_check_and_unscale", unscale},
      {"_amp_update_scale", update_scale},
      {"_foreach_abs", each<"abs">},
      {"_foreach_acos", each<"acos">},
      {"_foreach_add.List", each<"add.Tensor">, alpha()},
      {"_foreach_add.Scalar", each<"add.Tensor">},
      {"_foreach_add.ScalarList", each<"add.Tensor">},
      {"_foreach_add.Tensor", each<"add.Tensor">, alpha()},
      {"_foreach_addcdiv.Scalar", each<"addcdiv">, value()},
      {"_foreach_addcdiv.ScalarList", each<"addcdiv">},
      {"_foreach_addcmul.Scalar", each<"addcmul">, value()},
      {"_foreach_addcmul.ScalarList", each<"addcmul">},
      {"_foreach_asin", each<"asin">},
      {"_foreach_atan", each<"atan">},
      {"_foreach_ceil", each<"ceil">},
      {"_foreach_clamp_max.List", each<"clamp_max.Tensor">},
      {"_foreach_clamp_max.Scalar", each<"clamp_max">},
      {"_foreach_clamp_max.ScalarList", each<"clamp_max">},
      {"_foreach_clamp_min.List", each<"clamp_min.Tensor">},
      {"_foreach_clamp_min.Scalar", each<"clamp_min">},
      {"_foreach_clamp_min.ScalarList", each<"clamp_min">},
      {"_foreach_clone", copies<0>},
      {"_foreach_copy", copies<1>},
      {"_foreach_cos", each<"cos">},
      {"_foreach_cosh", each<"cosh">},
      {"_foreach_div.List", each<"div.Tensor">},
      {"_foreach_div.Scalar", each<"div.Tensor">},
      {"_foreach_div.ScalarList", each<"div.Tensor">},
      {"_foreach_div.Tensor", each<"div.Tensor">},
      {"_foreach_erf", each<"erf">},
      {"_foreach_erfc", each<"erfc">},
      {"_foreach_exp", each<"exp">},
      {"_foreach_expm1", each<"expm1">},
      {"_foreach_floor", each<"floor">},
      {"_foreach_frac", each<"frac">},
      {"_foreach_lerp.List", each<"lerp.Tensor">},
      {"_foreach_lerp.Scalar", each<"lerp.Scalar">},
      {"_foreach_lerp.ScalarList", each<"lerp.Scalar">},
      {"_foreach_lgamma", each<"lgamma">},
      {"_foreach_log", each<"log">},
      {"_foreach_log10", each<"log10">},
      {"_foreach_log1p", each<"log1p">},
      {"_foreach_log2", each<"log2">},
      {"_foreach_max", each<"max">},
      {"_foreach_maximum.List", each<"maximum">},
      {"_foreach_maximum.Scalar", each<"clamp_min">},
      {"_foreach_maximum.ScalarList", each<"clamp_min">},
      {"_foreach_minimum.List", each<"minimum">},
      {"_foreach_minimum.Scalar", each<"clamp_max">},
      {"_foreach_minimum.ScalarList", each<"clamp_max">},
      {"_foreach_mul.List", each<"mul.Tensor">},
      {"_foreach_mul.Scalar", each<"mul.Tensor">},
      {"_foreach_mul.ScalarList", each<"mul.Tensor">},
      {"_foreach_mul.Tensor", each<"mul.Tensor">},
      {"_foreach_neg", each<"neg">},
      {"_foreach_norm.Scalar", each<"linalg_vector_norm", norm_args>, {.special = {{"ord", {0, 1, 2, kInf, -kInf}}}}},
      {"_foreach_pow.List", each<"pow.Tensor_Tensor">},
      {"_foreach_pow.Scalar", each<"pow.Tensor_Scalar">, {.special = {{"exponent", {0, 0.5, 1, 2, 3, -0.5, -1, -2}}}}},
      {"_foreach_pow.ScalarAndTensor", each<"pow.Scalar">},
      {"_foreach_pow.ScalarList", each<"pow.Tensor_Scalar">},
      {"_foreach_reciprocal", each<"reciprocal">},
      {"_foreach_round", each<"round">},
      {"_foreach_rsqrt", each<"rsqrt">},
      {"_foreach_sigmoid", each<"sigmoid">},
      {"_foreach_sign", each<"sign">},
      {"_foreach_sin", each<"sin">},
      {"_foreach_sinh", each<"sinh">},
      {"_foreach_sqrt", each<"sqrt">},
      {"_foreach_sub.List", each<"sub.Tensor">, alpha()},
      {"_foreach_sub.Scalar", each<"sub.Tensor">},
      {"_foreach_sub.ScalarList", each<"sub.Tensor">},
      {"_foreach_tan", each<"tan">},
      {"_foreach_tanh", each<"tanh">},
      {"_foreach_trunc", each<"trunc">},
      {"_foreach_zero", each<"zero">},
      {"_fused_adagrad", adagrad<true>, weight_decay()},
      {"_fused_adagrad.tensor_lr", adagrad<false>, weight_decay()},
      {"_fused_adam", adam<Decay::kIntoGradient>, weight_decay()},
      {"_fused_adam.tensor_lr", adam<Decay::kIntoGradient>, weight_decay()},
      {"_fused_adamw", adam<Decay::kDecoupled>, weight_decay()},
      {"_fused_adamw.tensor_lr", adam<Decay::kDecoupled>, weight_decay()},
      {"_fused_sgd", sgd, sgd_options},
      {"_fused_sgd.tensor_lr", sgd, sgd_options},
  };
}

}  // namespace tpj::lower
