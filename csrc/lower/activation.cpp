// Activation functions and their derivatives. The kinks take the side that PyTorch's CPU kernels take.
#include "lower/common.h"
#include "lower/row.h"

namespace tpj::lower {
namespace {

// Tensor argument i in the type that PyTorch computes in, at the result's size.
Value in(Call& c, size_t i) { return c.operand(i, opmath(c.common_dtype), c.result_dims()); }
// Number argument i like `x`.
Value num(Call& c, size_t i, const Value& x) { return c.number(i, x.dtype(), x.dims()); }

Value zero(Builder& b, const Value& x) { return b.like(x, 0); }
Value one(Builder& b, const Value& x) { return b.like(x, 1); }
Value scale(Builder& b, const Value& x, double factor) { return b.mul(x, b.like(x, factor)); }
Value shift(Builder& b, const Value& x, double term) { return b.add(x, b.like(x, term)); }
Value less(Builder& b, const Value& x, const Value& y) { return b.compare(Cmp::LT, x, y); }
Value at_most(Builder& b, const Value& x, const Value& y) { return b.compare(Cmp::LE, x, y); }
Value greater(Builder& b, const Value& x, const Value& y) { return b.compare(Cmp::GT, x, y); }
Value positive(Builder& b, const Value& x) { return greater(b, x, zero(b, x)); }

Values relu(Call& c) {
  const Value x = c.tensor(0);
  // NaN and -0 stay what they are, as on the CPU.
  return {is_bool(x.dtype()) ? x : c.b.select(c.b.compare(Cmp::LT, x, c.b.like(x, 0)), c.b.like(x, 0), x)};
}

// (self, threshold, value)
Values threshold(Call& c) {
  const Value x = c.tensor(0);
  return {c.b.select(at_most(c.b, x, num(c, 1, x)), num(c, 2, x), x)};
}

// (grad, self, threshold)
Values threshold_backward(Call& c) {
  const Value g = c.operand(0, c.common_dtype, c.result_dims()), x = c.operand(1, c.common_dtype, c.result_dims());
  const Value t = c.absent_or(2, 0) ? zero(c.b, x) : num(c, 2, x);
  return {c.b.select(at_most(c.b, x, t), zero(c.b, g), g)};
}

// ---- gelu: https://arxiv.org/abs/1606.08415

constexpr double kSqrtHalf = 0.707106781186547524400844;
constexpr double kSqrt2OverPi = 0.797884560802865355879892;
constexpr double kGeluCubic = 0.044715;

// sqrt(2 / pi) * (x + 0.044715 x^3)
Value gelu_inner(Builder& b, const Value& x) {
  const Value cube = b.mul(b.mul(x, x), x);
  return scale(b, b.add(x, scale(b, cube, kGeluCubic)), kSqrt2OverPi);
}

// The normal distribution function.
Value normal_cdf(Builder& b, const Value& x) {
  return scale(b, shift(b, b.chlo("erf", {scale(b, x, kSqrtHalf)}), 1), 0.5);
}

Values gelu(Call& c) {
  Builder& b = c.b;
  const Value x = in(c, 0);
  if (c.string(1) == "tanh") return {b.mul(scale(b, x, 0.5), shift(b, b.tanh(gelu_inner(b, x)), 1))};
  return {b.mul(x, normal_cdf(b, x))};
}

Values gelu_backward(Call& c) {
  Builder& b = c.b;
  const Value g = in(c, 0), x = in(c, 1), square = b.mul(x, x);
  if (c.string(2) == "tanh") {
    const Value t = b.tanh(gelu_inner(b, x));
    const Value d_inner = scale(b, shift(b, scale(b, square, 3 * kGeluCubic), 1), kSqrt2OverPi);
    const Value d_tanh = b.mul(b.sub(one(b, t), b.mul(t, t)), d_inner);
    return {b.mul(g, b.add(scale(b, shift(b, t, 1), 0.5), b.mul(scale(b, x, 0.5), d_tanh)))};
  }
  const Value pdf = scale(b, b.exp(scale(b, square, -0.5)), kSqrt2OverPi / 2);
  return {b.mul(g, b.add(normal_cdf(b, x), b.mul(x, pdf)))};
}

// ---- sigmoid, tanh and their family

Value conjugate(Builder& b, const Value& x) {
  return is_complex(x.dtype()) ? b.complex(b.real(x), b.neg(b.imag(x))) : x;
}

// (grad, sigmoid(x))
Values sigmoid_backward(Call& c) {
  Builder& b = c.b;
  const Value g = in(c, 0), y = in(c, 1);
  return {b.mul(g, conjugate(b, b.mul(b.sub(one(b, y), y), y)))};
}

// (grad, tanh(x))
Values tanh_backward(Call& c) {
  Builder& b = c.b;
  const Value g = in(c, 0), y = in(c, 1);
  return {b.mul(g, conjugate(b, b.sub(one(b, y), b.mul(y, y))))};
}

Values silu(Call& c) {
  const Value x = in(c, 0);
  return {c.b.mul(x, c.b.logistic(x))};
}

Values silu_backward(Call& c) {
  Builder& b = c.b;
  const Value g = in(c, 0), x = in(c, 1), s = b.logistic(x);
  return {b.mul(b.mul(g, s), shift(b, b.mul(x, b.sub(one(b, s), s)), 1))};
}

// tanh(softplus(x))
Value mish_gate(Builder& b, const Value& x) { return b.tanh(b.log1p(b.exp(x))); }

Values mish(Call& c) {
  const Value x = in(c, 0);
  return {c.b.mul(x, mish_gate(c.b, x))};
}

Values mish_backward(Call& c) {
  Builder& b = c.b;
  const Value g = in(c, 0), x = in(c, 1), t = mish_gate(b, x);
  return {b.mul(g, b.add(t, b.mul(b.mul(x, b.logistic(x)), b.sub(one(b, t), b.mul(t, t)))))};
}

// min(x, 0) - log1p(e^-|x|); the second result is e^-|x| on a CPU and empty elsewhere.
Values log_sigmoid_forward(Call& c) {
  Builder& b = c.b;
  const Value x = in(c, 0), e = b.exp(b.neg(b.abs(x)));
  const Value buffer = c.result_dims(1) == x.dims() ? e : b.constant(c.result(1), 0);
  return {b.sub(b.min(x, zero(b, x)), b.log1p(e)), buffer};
}

// (grad, self, buffer): 1 - sigmoid(x), without the buffer.
Values log_sigmoid_backward(Call& c) { return {c.b.mul(in(c, 0), c.b.logistic(c.b.neg(in(c, 1))))}; }

// Halves of `x` along the dimension in argument `dim`.
std::pair<Value, Value> halves(Call& c, const Value& x, size_t dim) {
  const int64_t d = normalized_dim(c.integer_or(dim, -1), x.rank()), half = x.dim(d) / 2;
  return {c.b.slice_dim(x, d, 0, half), c.b.slice_dim(x, d, half, 2 * half)};
}

Values glu(Call& c) {
  const auto [x, gate] = halves(c, c.tensor(0, opmath(c.common_dtype)), 1);
  return {c.b.mul(x, c.b.logistic(gate))};
}

// (grad, self, dim)
Values glu_backward(Call& c) {
  Builder& b = c.b;
  const Value g = c.tensor(0, opmath(c.common_dtype)), whole = in(c, 1);
  const auto [x, gate] = halves(c, whole, 2);
  const Value s = b.logistic(gate), dx = b.mul(g, s);
  return {b.concatenate({dx, b.mul(b.mul(dx, x), b.sub(one(b, s), s))}, normalized_dim(c.integer(2), whole.rank()))};
}

// ---- piecewise linear and exponential

// (self, alpha, scale, input_scale)
Values elu(Call& c) {
  Builder& b = c.b;
  const Value x = in(c, 0), outer = num(c, 2, x);
  const Value low = b.mul(b.expm1(b.mul(x, num(c, 3, x))), b.mul(num(c, 1, x), outer));
  return {b.select(less(b, x, zero(b, x)), low, b.mul(x, outer))};
}

// (grad, alpha, scale, input_scale, is_result, self_or_result)
Values elu_backward(Call& c) {
  Builder& b = c.b;
  const Value g = in(c, 0), x = in(c, 5), outer = num(c, 2, x), inner = num(c, 3, x);
  const Value alpha = b.mul(num(c, 1, x), outer), low = b.mul(g, inner);
  const Value down = c.flag(4) ? b.mul(low, b.add(x, alpha)) : b.mul(b.mul(low, alpha), b.exp(b.mul(x, inner)));
  return {b.select(positive(b, x), b.mul(g, outer), down)};
}

// max(x, 0) + min(alpha * (e^(x/alpha) - 1), 0)
Values celu(Call& c) {
  Builder& b = c.b;
  const Value x = in(c, 0), alpha = num(c, 1, x);
  return {b.select(less(b, x, zero(b, x)), b.mul(b.expm1(b.div(x, alpha)), alpha), x)};
}

Values leaky_relu(Call& c) {
  const Value x = in(c, 0);
  return {c.b.select(positive(c.b, x), x, c.b.mul(x, num(c, 1, x)))};
}

// (grad, self, slope, self_is_result)
Values leaky_relu_backward(Call& c) {
  const Value g = in(c, 0), x = in(c, 1);
  return {c.b.select(positive(c.b, x), g, c.b.mul(g, num(c, 2, x)))};
}

// (self, weight), weight of a size that broadcasts.
Values prelu(Call& c) {
  const Value x = in(c, 0);
  return {c.b.select(positive(c.b, x), x, c.b.mul(in(c, 1), x))};
}

// (grad, self, weight); the weight's gradient is not summed here.
Values prelu_backward(Call& c) {
  Builder& b = c.b;
  const Value g = in(c, 0), x = in(c, 1), up = positive(b, x);
  return {b.select(up, g, b.mul(in(c, 2), g)), b.select(up, zero(b, g), b.mul(x, g))};
}

Values hardtanh(Call& c) {
  const Value x = in(c, 0);
  return {c.b.min(c.b.max(x, num(c, 1, x)), num(c, 2, x))};
}

// (grad, self, min, max)
Values hardtanh_backward(Call& c) {
  Builder& b = c.b;
  const Value g = in(c, 0), x = in(c, 1);
  return {b.select(b.and_(greater(b, x, num(c, 2, x)), less(b, x, num(c, 3, x))), g, zero(b, g))};
}

// min(max(x + 3, 0), 6) / 6
Value hard_gate(Builder& b, const Value& x) {
  return b.div(b.min(b.max(shift(b, x, 3), zero(b, x)), b.like(x, 6)), b.like(x, 6));
}

Values hardsigmoid(Call& c) { return {hard_gate(c.b, in(c, 0))}; }

Values hardsigmoid_backward(Call& c) {
  Builder& b = c.b;
  const Value g = in(c, 0), x = in(c, 1);
  const Value inside = b.and_(greater(b, x, b.like(x, -3)), less(b, x, b.like(x, 3)));
  return {b.select(inside, b.div(g, b.like(g, 6)), zero(b, g))};
}

Values hardswish(Call& c) {
  Builder& b = c.b;
  const Value x = in(c, 0), ramp = b.min(b.max(shift(b, x, 3), zero(b, x)), b.like(x, 6));
  return {b.div(b.mul(x, ramp), b.like(x, 6))};
}

Values hardswish_backward(Call& c) {
  Builder& b = c.b;
  const Value g = in(c, 0), x = in(c, 1);
  const Value middle = b.mul(g, shift(b, b.div(x, b.like(x, 3)), 0.5));
  return {b.select(at_most(b, x, b.like(x, -3)), zero(b, g), b.select(b.compare(Cmp::GE, x, b.like(x, 3)), g, middle))};
}

// (self, beta, threshold): log(1 + e^(beta x)) / beta, x itself past the threshold.
Values softplus(Call& c) {
  Builder& b = c.b;
  const Value x = in(c, 0), beta = num(c, 1, x), z = b.mul(x, beta);
  return {b.select(greater(b, z, num(c, 2, x)), x, b.div(b.log1p(b.exp(z)), beta))};
}

// (grad, self, beta, threshold)
Values softplus_backward(Call& c) {
  Builder& b = c.b;
  const Value g = in(c, 0), x = in(c, 1), z = b.mul(x, num(c, 2, x));
  return {b.select(greater(b, z, num(c, 3, x)), g, b.mul(g, b.logistic(z)))};
}

Value within(Builder& b, const Value& x, const Value& bound) {
  return b.and_(b.compare(Cmp::GE, x, b.neg(bound)), at_most(b, x, bound));
}

// Between the bounds x * 0, which keeps a NaN.
Values softshrink(Call& c) {
  Builder& b = c.b;
  const Value x = in(c, 0), bound = num(c, 1, x);
  return {b.select(greater(b, x, bound), b.sub(x, bound),
                   b.select(less(b, x, b.neg(bound)), b.add(x, bound), b.mul(x, zero(b, x))))};
}

Values hardshrink(Call& c) {
  const Value x = in(c, 0);
  return {c.b.select(within(c.b, x, num(c, 1, x)), zero(c.b, x), x)};
}

// (grad, self, bound)
Values shrink_backward(Call& c) {
  Builder& b = c.b;
  const Value g = in(c, 0), x = in(c, 1), bound = num(c, 2, x);
  return {b.select(b.or_(greater(b, x, bound), less(b, x, b.neg(bound))), g, zero(b, g))};
}

// (self, eps): log(x / (1 - x)), x kept in [eps, 1 - eps] when there is an eps.
Values logit(Call& c) {
  Builder& b = c.b;
  Value x = c.tensor(0, opmath(float_type(c, 1)));
  if (c.has(1)) {
    const Value eps = num(c, 1, x);
    x = b.min(b.max(x, eps), b.sub(one(b, x), eps));
  }
  return {b.log(b.div(x, b.sub(one(b, x), x)))};
}

// (grad, self, eps)
Values logit_backward(Call& c) {
  Builder& b = c.b;
  const Value g = in(c, 0), x = in(c, 1), slope = b.div(g, b.mul(x, b.sub(one(b, x), x)));
  const Value low = c.has(2) ? num(c, 2, x) : zero(b, x), high = b.sub(one(b, x), low);
  return {b.select(b.or_(less(b, x, low), greater(b, x, high)), c.has(2) ? zero(b, x) : nan_like(b, x), slope)};
}

bool no_width(std::span<const GivenNumber> args, DType t) {
  return !(args[1].value >= 0 && args[1].value <= greatest(t));
}

}  // namespace

std::vector<Row> activation_rows() {
  return {
      {"_prelu_kernel", prelu},
      {"_prelu_kernel_backward", prelu_backward},
      {"celu", celu, {.refuses = [](auto args, DType) { return args[1].value == 0; }}},
      {"elu", elu},
      {"elu_backward", elu_backward},
      {"gelu", gelu},
      {"gelu_backward", gelu_backward},
      {"glu", glu},
      {"glu_backward", glu_backward},
      {"hardshrink", hardshrink},
      {"hardshrink_backward", shrink_backward},
      {"hardsigmoid", hardsigmoid},
      {"hardsigmoid_backward", hardsigmoid_backward},
      {"hardswish", hardswish},
      {"hardswish_backward", hardswish_backward},
      {"hardtanh", hardtanh},
      {"hardtanh_backward", hardtanh_backward},
      {"leaky_relu", leaky_relu},
      {"leaky_relu_backward", leaky_relu_backward},
      {"log_sigmoid_backward", log_sigmoid_backward},
      {"log_sigmoid_forward", log_sigmoid_forward},
      {"logit", logit},
      {"logit_backward", logit_backward},
      {"mish", mish},
      {"mish_backward", mish_backward},
      {"relu", relu},
      {"sigmoid_backward", sigmoid_backward},
      {"silu", silu},
      {"silu_backward", silu_backward},
      {"softplus", softplus},
      {"softplus_backward", softplus_backward},
      {"softshrink", softshrink, {.refuses = no_width}},
      {"softshrink_backward", shrink_backward},
      {"tanh_backward", tanh_backward},
      {"threshold", threshold},
      {"threshold_backward", threshold_backward, {.special = {{"threshold", {0}}}}},
  };
}

}  // namespace tpj::lower
