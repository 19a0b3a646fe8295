// The cells of LSTM (https://doi.org/10.1162/neco.1997.9.8.1735, with forget gates) and GRU
// (https://arxiv.org/abs/1406.1078, with the reset gate after the product), from gates whose products are done. The
// workspace that a forward leaves for its backward is private to the two.
#include "lower/common.h"
#include "lower/row.h"

namespace tpj::lower {
namespace {

// Part k of [N, n * H].
Value part(Builder& b, const Value& x, int64_t k, int64_t hidden) {
  return b.slice_dim(x, 1, k * hidden, (k + 1) * hidden);
}

// y * (1 - y), y * y where y = sigmoid(x), tanh(x): their slopes.
Value sigmoid_slope(Builder& b, const Value& y) { return b.mul(y, b.sub(b.like(y, 1), y)); }
Value tanh_slope(Builder& b, const Value& y) { return b.sub(b.like(y, 1), b.mul(y, y)); }

// The gates of arguments 0 (of the input) and 1 (of the hidden state), with the biases in 3 and 4; argument 2 is the
// state before, [N, H].
struct Gates {
  DType t;
  int64_t hidden;
  Value state, of_input, of_hidden;
};

Gates gates(Call& c, int64_t parts) {
  const Dims& sizes = c.type(0).dims;
  const Dims& state = c.type(2).dims;
  TPJ_CHECK(state.size() == 2 && c.type(1).dims == sizes && sizes == (Dims{state[0], parts * state[1]}), "[", c.name(),
            "] the gates must be two tensors of ", parts, " times the width of the state");
  const DType t = opmath(c.common_dtype);
  const auto biased = [&](size_t gate, size_t bias) {
    const Value x = c.tensor(gate, t);
    return c.has(bias) ? c.b.add(x, c.operand(bias, t, x.dims())) : x;
  };
  return {t, state[1], c.tensor(2, t), biased(0, 3), biased(1, 4)};
}

// What a row returns is rounded to the dtype of the state.
Values rounded(Call& c, Values values, DType t) {
  for (Value& v : values)
    if (v) v = c.b.convert(v, t);
  return values;
}

// -> hidden state, cell state, workspace [i, f, g, o]
Values lstm_cell(Call& c) {
  Builder& b = c.b;
  const Gates at = gates(c, 4);
  const Value sum = b.add(at.of_input, at.of_hidden);
  const auto gate = [&](int64_t k) { return part(b, sum, k, at.hidden); };
  const Value i = b.logistic(gate(0)), f = b.logistic(gate(1)), g = b.tanh(gate(2)), o = b.logistic(gate(3));
  const Value cell = b.add(b.mul(f, at.state), b.mul(i, g));
  return rounded(c, {b.mul(o, b.tanh(cell)), cell, b.concatenate({i, f, g, o}, 1)}, c.type(2).dtype);
}

// (grad_hidden?, grad_cell?, cell before, cell, workspace, has_bias) -> gradients of the gates, of the cell before, of
// a bias
Values lstm_cell_backward(Call& c) {
  Builder& b = c.b;
  if (!c.has(0) && !c.has(1)) return {Value{}, Value{}, Value{}};
  const DType t = opmath(c.common_dtype);
  const Value before = c.tensor(2, t), bounded = b.tanh(c.tensor(3, t)), workspace = c.tensor(4, t);
  const int64_t hidden = before.dims()[1];
  const auto gate = [&](int64_t k) { return part(b, workspace, k, hidden); };
  const Value i = gate(0), f = gate(1), g = gate(2), o = gate(3);
  const Value of_hidden = c.has(0) ? c.tensor(0, t) : b.like(before, 0);
  Value of_cell = b.mul(b.mul(of_hidden, o), tanh_slope(b, bounded));
  if (c.has(1)) of_cell = b.add(of_cell, c.tensor(1, t));
  const Value grads =
      b.concatenate({b.mul(b.mul(of_cell, g), sigmoid_slope(b, i)), b.mul(b.mul(of_cell, before), sigmoid_slope(b, f)),
                     b.mul(b.mul(of_cell, i), tanh_slope(b, g)), b.mul(b.mul(of_hidden, bounded), sigmoid_slope(b, o))},
                    1);
  return rounded(c, {grads, b.mul(of_cell, f), c.flag(5) ? sum_over(b, grads, {0}) : Value{}}, c.type(2).dtype);
}

// -> hidden state, workspace [r, z, n, state before, what r weighs]
Values gru_cell(Call& c) {
  Builder& b = c.b;
  const Gates at = gates(c, 3);
  const auto sum = [&](int64_t k) {
    return b.add(part(b, at.of_input, k, at.hidden), part(b, at.of_hidden, k, at.hidden));
  };
  const Value r = b.logistic(sum(0)), z = b.logistic(sum(1)), weighed = part(b, at.of_hidden, 2, at.hidden);
  const Value n = b.tanh(b.add(part(b, at.of_input, 2, at.hidden), b.mul(r, weighed)));
  const Value state = b.add(n, b.mul(z, b.sub(at.state, n)));
  return rounded(c, {state, b.concatenate({r, z, n, at.state, weighed}, 1)}, c.type(2).dtype);
}

// (grad, workspace, has_bias) -> gradients of the input's gates, the hidden state's gates, the state before, the biases
Values gru_cell_backward(Call& c) {
  Builder& b = c.b;
  const DType t = opmath(c.common_dtype);
  const Value grad = c.tensor(0, t), workspace = c.tensor(1, t);
  const auto saved = [&](int64_t k) { return part(b, workspace, k, grad.dims()[1]); };
  const Value r = saved(0), z = saved(1), n = saved(2), before = saved(3), weighed = saved(4);
  const Value of_z = b.mul(b.mul(grad, b.sub(before, n)), sigmoid_slope(b, z));
  const Value of_n = b.mul(b.mul(grad, b.sub(b.like(z, 1), z)), tanh_slope(b, n));
  const Value of_r = b.mul(b.mul(of_n, weighed), sigmoid_slope(b, r));
  const Value of_input = b.concatenate({of_r, of_z, of_n}, 1),
              of_hidden = b.concatenate({of_r, of_z, b.mul(of_n, r)}, 1);
  const auto bias = [&](const Value& gates) { return c.flag(2) ? sum_over(b, gates, {0}) : Value{}; };
  return rounded(c, {of_input, of_hidden, b.mul(grad, z), bias(of_input), bias(of_hidden)}, c.type(0).dtype);
}

}  // namespace

std::vector<Row> recurrent_rows() {
  const Row::Options no_meta{.asks_meta = false};
  return {
      {"_thnn_fused_gru_cell", gru_cell, no_meta},
      {"_thnn_fused_gru_cell_backward", gru_cell_backward, no_meta},
      {"_thnn_fused_lstm_cell", lstm_cell, no_meta},  // PyTorch's fails without biases
      {"_thnn_fused_lstm_cell_backward_impl", lstm_cell_backward, no_meta},
  };
}

}  // namespace tpj::lower
