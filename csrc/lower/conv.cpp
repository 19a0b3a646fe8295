// Convolution in one to three spatial dimensions and its gradients. Narrow floats compute in float32 and round once.
// Complex tensors do not get here: PyTorch splits them into real convolutions above.
#include "lower/common.h"
#include "lower/row.h"

namespace tpj::lower {
namespace {

struct Conv {
  int64_t spatial;  // number of spatial dimensions
  Dims stride, padding, dilation, output_padding;
  bool transposed;
  int64_t groups;
};

// One number may stand for all dimensions.
Dims per_dimension(Dims v, int64_t n) {
  if (v.size() == 1) v.resize(static_cast<size_t>(n), v[0]);
  return v;
}

// `first` is the position of the stride; the rest follows in the schema's order.
Conv conv_of(Call& c, size_t first, int64_t spatial) {
  return {spatial,
          per_dimension(c.ints(first), spatial),
          per_dimension(c.ints(first + 1), spatial),
          per_dimension(c.ints(first + 2), spatial),
          per_dimension(c.ints(first + 4), spatial),
          c.flag(first + 3),
          c.integer(first + 5)};
}

// Windows over [N, C, spatial...] with batch and feature dimensions where stated.
hlo::ConvDims conv_dims(int64_t spatial) {
  hlo::ConvDims d;
  for (int64_t i = 0; i < spatial; ++i) d.input_spatial.push_back(2 + i);
  d.kernel_spatial = d.output_spatial = d.input_spatial;
  d.strides = d.lhs_dilation = d.rhs_dilation = Dims(static_cast<size_t>(spatial), 1);
  d.padding.assign(static_cast<size_t>(spatial), {0, 0});
  return d;
}

// What PyTorch's own kernels ask of an output padding; its meta kernel does not.
void check_output_padding(const Conv& k) {
  for (size_t i = 0; k.transposed && i < k.output_padding.size(); ++i)
    TPJ_CHECK(k.output_padding[i] >= 0 && k.output_padding[i] < std::max(k.stride[i], k.dilation[i]),
              "output padding must be smaller than either stride or dilation, but got ", k.output_padding[i]);
}

Value forward(Builder& b, const Conv& k, const Value& x, const Value& weight, const Dims& result) {
  hlo::ConvDims d = conv_dims(k.spatial);
  d.strides = k.stride, d.rhs_dilation = k.dilation, d.feature_groups = k.groups;
  for (size_t i = 0; i < d.padding.size(); ++i) {
    const int64_t window = (weight.dims()[i + 2] - 1) * k.dilation[i] + 1, p = k.padding[i], in = x.dims()[i + 2];
    const int64_t reach = (result[i + 2] - 1) * k.stride[i] + window;  // of the last window
    // The gradient of a transposed convolution with output padding leaves a rest.
    d.padding[i] = {p, (in + 2 * p - window) / k.stride[i] + 1 == result[i + 2] ? p : reach - in - p};
  }
  return b.convolution(x, weight, d, result);
}

// [g * a, b', ...] as [g * b', a, ...]: input and output features of a grouped kernel exchanged.
Value swap_features(Builder& b, const Value& w, int64_t groups) {
  Dims split{groups, w.dim(0) / groups, w.dim(1)}, order{0, 2, 1}, merged{groups * w.dim(1), w.dim(0) / groups};
  for (int64_t i = 2; i < w.rank(); ++i) {
    split.push_back(w.dim(i));
    order.push_back(i + 1);
    merged.push_back(w.dim(i));
  }
  return b.reshape(b.transpose(b.reshape(w, split), order), merged);
}

// The input whose forward convolution has output `y`, as its gradient: y is spread by the stride and meets the reversed
// kernel. Also the transposed convolution. `result` is [N, C, spatial...]; what the last window leaves over is padded.
Value input_gradient(Builder& b, const Conv& k, const Value& y, const Value& weight, const Dims& result) {
  hlo::ConvDims d = conv_dims(k.spatial);
  d.lhs_dilation = k.stride, d.rhs_dilation = k.dilation, d.feature_groups = k.groups;
  Value kernel = weight;
  if (k.groups == 1) {
    std::swap(d.kernel_output, d.kernel_input);
  } else {
    kernel = swap_features(b, weight, k.groups);
  }
  for (size_t i = 0; i < d.padding.size(); ++i) {
    const int64_t reach = (weight.dims()[i + 2] - 1) * k.dilation[i];
    const int64_t spread = (y.dims()[i + 2] - 1) * k.stride[i] + 1;
    const int64_t low = reach - k.padding[i];
    d.padding[i] = {low, result[i + 2] - spread + reach - low};
  }
  return b.convolution(y, b.reverse(kernel, d.kernel_spatial), d, result);
}

// Output positions per kernel element: a window of x with the stride, aligned with y.
Value tap(Builder& b, const Conv& k, const Value& padded, const Dims& at, const Value& y) {
  Dims start(static_cast<size_t>(k.spatial) + 2, 0), limit = padded.dims(), stride(start.size(), 1);
  for (size_t i = 0; i < at.size(); ++i) {
    start[i + 2] = at[i] * k.dilation[i];
    stride[i + 2] = k.stride[i];
    limit[i + 2] = start[i + 2] + (y.dims()[i + 2] - 1) * k.stride[i] + 1;
  }
  return b.slice(padded, start, limit, stride);
}

// The kernel's gradient, one matrix product per kernel element. As one convolution (weight_gradient_conv) its kernel is
// as large as the image, for which XLA's CPU backend has no fast path: three times slower for 3x3 on 32x32 images.
Value weight_gradient_dots(Builder& b, const Conv& k, const Value& x, const Value& y, const Dims& result) {
  Dims low(static_cast<size_t>(k.spatial) + 2, 0), high = low, contract{0};
  int64_t taps = 1;
  for (size_t i = 0; i < k.padding.size(); ++i) {
    low[i + 2] = k.padding[i];
    // As far as the last window reaches: PyTorch's sizes may leave a rest, or with output padding ask for more.
    high[i + 2] =
        (y.dims()[i + 2] - 1) * k.stride[i] + (result[i + 2] - 1) * k.dilation[i] + 1 - x.dims()[i + 2] - k.padding[i];
    contract.push_back(static_cast<int64_t>(i) + 2);
    taps *= result[i + 2];
  }
  const Value padded = b.pad(x, b.scalar(x.dtype(), 0), low, high, Dims(low.size(), 0));
  Values parts;
  for (int64_t t = 0; t < taps; ++t) {
    Dims at(static_cast<size_t>(k.spatial));
    for (int64_t i = k.spatial - 1, rest = t; i >= 0; rest /= result[static_cast<size_t>(i) + 2], --i)
      at[static_cast<size_t>(i)] = rest % result[static_cast<size_t>(i) + 2];
    const Value product = b.dot_general(y, tap(b, k, padded, at, y), {{}, {}, contract, contract}, x.dtype());
    parts.push_back(b.reshape(product, {result[0], result[1], 1}));
  }
  return b.reshape(b.concatenate(parts, 2), result);
}

// The kernel's gradient as a convolution in which batch and features change places: x's features are the batch, y is
// the kernel.
Value weight_gradient_conv(Builder& b, const Conv& k, const Value& x, const Value& y, const Dims& result) {
  hlo::ConvDims d = conv_dims(k.spatial);
  d.rhs_dilation = k.stride, d.strides = k.dilation, d.batch_groups = k.groups;
  d.input_batch = 1, d.input_feature = 0;
  d.kernel_output = 1, d.kernel_input = 0;
  d.output_batch = 1, d.output_feature = 0;
  for (size_t i = 0; i < d.padding.size(); ++i) {
    const int64_t reach = (y.dims()[i + 2] - 1) * k.stride[i] + (result[i + 2] - 1) * k.dilation[i] + 1;
    d.padding[i] = {k.padding[i], reach - x.dims()[i + 2] - k.padding[i]};
  }
  return b.convolution(x, y, d, result);
}

// Few kernel elements, each a large product.
bool prefers_dots(const Conv& k, const Value& y, const Dims& weight) {
  int64_t taps = 1, positions = 1;
  for (size_t i = 2; i < weight.size(); ++i) taps *= weight[i], positions *= y.dims()[i];
  return k.groups == 1 && taps <= 32 && positions > taps;
}

Value weight_gradient(Builder& b, const Conv& k, const Value& x, const Value& y, const Dims& result) {
  return prefers_dots(k, y, result) ? weight_gradient_dots(b, k, x, y, result)
                                    : weight_gradient_conv(b, k, x, y, result);
}

bool is_empty(const Value& v) { return v.type.numel() == 0; }

// An unbatched [C, spatial...] input is a batch of one.
Value batched(Builder& b, const Value& x, int64_t rank) {
  if (x.rank() == rank) return x;
  Dims dims = x.dims();
  dims.insert(dims.begin(), 1);
  return b.reshape(x, dims);
}

Values convolution(Call& c) {
  Builder& b = c.b;
  const DType t = opmath(c.result().dtype);
  const Value weight = c.tensor(1, t);
  const Value x = batched(b, c.tensor(0, t), weight.rank());
  const Conv k = conv_of(c, 3, weight.rank() - 2);
  for (int64_t p : k.padding) TPJ_CHECK(p >= 0, "convolution: negative padding ", p);
  check_output_padding(k);
  Dims result = c.result_dims();
  if (static_cast<int64_t>(result.size()) < weight.rank()) result.insert(result.begin(), 1);
  TPJ_CHECK(weight.dim(0) > 0, "convolution: a weight of no channels");
  // Without input channels there is nothing, not even the bias: the result has no channels.
  if (hlo::numel(result) == 0) return {b.constant(c.result(), 0)};
  Value y;
  if (is_empty(x) || is_empty(weight)) {
    y = b.constant({t, result}, 0);
  } else {
    y = k.transposed ? input_gradient(b, k, x, weight, result) : forward(b, k, x, weight, result);
  }
  if (c.has(2)) y = b.add(y, b.broadcast_in_dim(c.tensor(2, t), result, {1}));
  return {b.reshape(y, c.result_dims())};
}

Values convolution_backward(Call& c) {
  Builder& b = c.b;
  const DType t = opmath(c.type(2).dtype);
  const int64_t rank = c.type(2).rank();
  const Conv k = conv_of(c, 4, rank - 2);
  const Dims mask = c.ints(10);
  const Value grad = batched(b, c.tensor(0, t), rank);
  const bool empty = is_empty(grad) || c.type(1).numel() == 0 || c.type(2).numel() == 0;
  Values out(3);
  if (mask[0]) {
    Dims sizes = c.type(1).dims;
    if (static_cast<int64_t>(sizes.size()) < rank) sizes.insert(sizes.begin(), 1);
    const Value g = empty          ? b.constant({t, sizes}, 0)
                    : k.transposed ? forward(b, k, grad, c.tensor(2, t), sizes)
                                   : input_gradient(b, k, grad, c.tensor(2, t), sizes);
    out[0] = b.reshape(g, c.type(1).dims);
  }
  if (mask[1]) {
    const Dims& sizes = c.type(2).dims;
    const Value x = batched(b, c.tensor(1, t), rank);
    // A transposed convolution is the input gradient of one that maps its output to its input: x and grad change roles.
    out[1] = empty          ? b.constant({t, sizes}, 0)
             : k.transposed ? weight_gradient(b, k, grad, x, sizes)
                            : weight_gradient(b, k, x, grad, sizes);
  }
  if (mask[2]) {
    Dims over{0};
    for (int64_t d = 2; d < rank; ++d) over.push_back(d);
    out[2] = empty ? b.constant({t, c.result_dims(2)}, 0) : sum_over(b, grad, over);
  }
  return out;
}

}  // namespace

std::vector<Row> conv_rows() {
  return {
      {"convolution", convolution},
      {"convolution_backward", convolution_backward},
  };
}

}  // namespace tpj::lower
