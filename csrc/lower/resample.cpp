// Up- and downsampling, padding by mirrored or repeated edges, windows as columns. Along each dimension every output
// element is a weighted sum of a few input elements whose positions are known when the program is made.
#include <bit>
#include <cmath>
#include <numbers>

#include "lower/common.h"
#include "lower/indexing.h"
#include "lower/row.h"

namespace tpj::lower {
namespace {

// For one dimension: output element o takes source[o] of the input, `weight[o]` times it (1 where there are no
// weights), or nothing where that is -1.
struct Tap {
  std::vector<int64_t> source;
  std::vector<double> weight = {};
};
using Taps = std::vector<Tap>;

Index at_sources(Builder& b, const Tap& tap, int64_t dim) {
  return {{b.dense({DType::I32, {static_cast<int64_t>(tap.source.size())}}, tap.source)}, {dim}, dim};
}

Value weighted(Builder& b, const Value& x, const Tap& tap, int64_t dim) {
  if (tap.weight.empty()) return x;
  // Bit patterns, since constants of one value each are integers.
  const bool wide = x.dtype() == DType::F64 || x.dtype() == DType::C128;
  std::vector<int64_t> bits;
  for (double w : tap.weight)
    bits.push_back(wide ? std::bit_cast<int64_t>(w) : std::bit_cast<int32_t>(static_cast<float>(w)));
  const Dims row{static_cast<int64_t>(bits.size())};
  const Value constants = b.dense({wide ? DType::I64 : DType::I32, row}, bits);
  const Value weights = b.convert(b.bitcast(constants, {wide ? DType::F64 : DType::F32, row}), x.dtype());
  return b.mul(x, b.broadcast_in_dim(weights, x.dims(), {dim}));
}

Value apply(Builder& b, const Value& x, int64_t dim, const Taps& taps) {
  Value sum;
  for (const Tap& tap : taps) {
    const Index at = at_sources(b, tap, dim);
    Value part = weighted(b, read_at(b, x, at), tap, dim);
    if (std::find(tap.source.begin(), tap.source.end(), -1) != tap.source.end()) {
      const Value taken = b.compare(Cmp::GE, at.at[0], b.constant(at.at[0].type, 0));
      part = b.select(b.broadcast_in_dim(taken, part.dims(), {dim}), part, b.like(part, 0));
    }
    sum = sum ? b.add(sum, part) : part;
  }
  return sum;
}

// The gradient: what `apply` reads is where this writes.
Value apply_transposed(Builder& b, const Value& grad, int64_t dim, int64_t size, const Taps& taps) {
  Dims dims = grad.dims();
  dims[static_cast<size_t>(dim)] = size;
  Value x = b.constant({grad.dtype(), dims}, 0);
  for (const Tap& tap : taps) x = write_at(b, x, at_sources(b, tap, dim), weighted(b, grad, tap, dim), accumulate(b));
  return x;
}

// ---- sources of each method

struct Axis {
  int64_t in, out;
  std::optional<double> scale;  // out / in as the user said it
  bool align_corners = false;
};

// Source steps per output step, in T, the type that PyTorch's kernels use for it.
template <typename T>
T step_of(const Axis& a) {
  if (a.align_corners) return a.out > 1 ? static_cast<T>(a.in - 1) / static_cast<T>(a.out - 1) : T{0};
  return a.scale && *a.scale > 0 ? static_cast<T>(1.0 / *a.scale) : static_cast<T>(a.in) / static_cast<T>(a.out);
}

// `centre` is 0.5 for nearest-exact, which takes pixels' centres.
Taps nearest(const Axis& a, double centre) {
  Tap tap;
  const float step = step_of<float>(a);
  for (int64_t o = 0; o < a.out; ++o) {
    const float at = std::floor((static_cast<float>(o) + static_cast<float>(centre)) * step);
    tap.source.push_back(std::min(static_cast<int64_t>(at), a.in - 1));
  }
  return {tap};
}

template <typename T>
T source_of(const Axis& a, T step, int64_t o, bool clamp) {
  if (a.align_corners) return step * static_cast<T>(o);
  const T at = step * (static_cast<T>(o) + T(0.5)) - T(0.5);
  return clamp && at < 0 ? T{0} : at;
}

template <typename T>
Taps linear(const Axis& a) {
  Taps taps(2);
  const T step = step_of<T>(a);
  for (int64_t o = 0; o < a.out; ++o) {
    const T at = source_of(a, step, o, true);
    const int64_t low = std::min(static_cast<int64_t>(at), a.in - 1);
    const T right = std::clamp(at - static_cast<T>(low), T{0}, T{1});
    taps[0].source.push_back(low);
    taps[0].weight.push_back(T{1} - right);
    taps[1].source.push_back(std::min(low + 1, a.in - 1));
    taps[1].weight.push_back(right);
  }
  return taps;
}

// Keys' cubic convolution with a = -0.75 (Keys 1981): near is for distances up to 1, far for 1 to 2.
template <typename T>
T cubic_near(T x) {
  return ((T(1.25) * x - T(2.25)) * x) * x + T(1);
}
template <typename T>
T cubic_far(T x) {
  return ((T(-0.75) * x + T(3.75)) * x - T(6)) * x + T(3);
}

template <typename T>
Taps cubic(const Axis& a) {
  Taps taps(4);
  const T step = step_of<T>(a);
  for (int64_t o = 0; o < a.out; ++o) {
    const T at = source_of(a, step, o, false), low = std::floor(at), t = at - low;
    const T weights[] = {cubic_far(t + T(1)), cubic_near(t), cubic_near(T(1) - t), cubic_far(T(2) - t)};
    for (int64_t k = 0; k < 4; ++k) {
      taps[static_cast<size_t>(k)].source.push_back(
          std::clamp<int64_t>(static_cast<int64_t>(low) - 1 + k, 0, a.in - 1));
      taps[static_cast<size_t>(k)].weight.push_back(weights[k]);
    }
  }
  return taps;
}

// Antialiasing filters, as wide as the input's step where that is longer than one element.
double triangle(double x) { return std::max(0.0, 1 - std::abs(x)); }

// Keys' cubic convolution with a = -0.5.
double keys(double x) {
  x = std::abs(x);
  if (x < 1) return (1.5 * x - 2.5) * x * x + 1;
  return x < 2 ? ((-0.5 * x + 2.5) * x - 4) * x + 2 : 0;
}

double sinc(double x) { return x == 0 ? 1 : std::sin(std::numbers::pi * x) / (std::numbers::pi * x); }
double lanczos(double x) { return std::abs(x) < 3 ? sinc(x) * sinc(x / 3) : 0; }

template <typename T>
Taps filtered(const Axis& a, double (*filter)(double), T radius) {
  const T step = step_of<T>(a), widened = std::max(step, T(1)), support = radius * widened;
  Taps taps;
  for (int64_t o = 0; o < a.out; ++o) {
    const T centre = step * (static_cast<T>(o) + T(0.5));
    const int64_t first = std::max<int64_t>(static_cast<int64_t>(centre - support + T(0.5)), 0);
    const int64_t count = std::min<int64_t>(static_cast<int64_t>(centre + support + T(0.5)), a.in) - first;
    std::vector<T> weights;
    T total = 0;
    for (int64_t k = 0; k < count; ++k) {
      weights.push_back(static_cast<T>(filter((static_cast<T>(k + first) - centre + T(0.5)) / widened)));
      total += weights.back();
    }
    taps.resize(std::max(taps.size(), weights.size()),
                {Dims(static_cast<size_t>(a.out), -1), std::vector<double>(static_cast<size_t>(a.out), 0)});
    for (size_t k = 0; k < weights.size(); ++k) {
      taps[k].source[static_cast<size_t>(o)] = first + static_cast<int64_t>(k);
      taps[k].weight[static_cast<size_t>(o)] = total != 0 ? weights[k] / total : weights[k];
    }
  }
  return taps;
}

enum class Method { kNearest, kNearestExact, kLinear, kCubic, kTriangle, kKeys, kLanczos };

Taps filtered(const Axis& a, DType t, double (*filter)(double), float radius) {
  return t == DType::F64 ? filtered<double>(a, filter, radius) : filtered<float>(a, filter, radius);
}

Taps taps_of(Method method, const Axis& a, DType t) {
  switch (method) {
    case Method::kNearest:
      return nearest(a, 0);
    case Method::kNearestExact:
      return nearest(a, 0.5);
    case Method::kLinear:
      return t == DType::F64 ? linear<double>(a) : linear<float>(a);
    case Method::kTriangle:
      return filtered(a, t, triangle, 1);
    case Method::kKeys:
      return filtered(a, t, keys, 2);
    case Method::kLanczos:
      return filtered(a, t, lanczos, 3);
    default:
      return t == DType::F64 ? cubic<double>(a) : cubic<float>(a);
  }
}

// A whole factor of nearest neighbours is plain repetition; 0 if there is none. PyTorch does not look at the scale when
// linear interpolation keeps the size, nor when nearest neighbours keep or double it (its CPU kernels: in images and in
// all gradients).
int64_t whole_factor(Method method, const Axis& a, bool ignores_scale) {
  if (a.out % a.in != 0) return 0;
  const int64_t factor = a.out / a.in;
  const bool plain = !a.scale || *a.scale <= 0 || *a.scale == static_cast<double>(factor);
  switch (method) {
    case Method::kNearest:
      return plain || (ignores_scale && factor <= 2) ? factor : 0;
    case Method::kNearestExact:
      return plain ? factor : 0;
    case Method::kLinear:
      return factor == 1 ? 1 : 0;
    default:
      return 0;
  }
}

Dims split_dim(const Dims& dims, int64_t dim, int64_t factor) {
  Dims split = dims;
  split.insert(split.begin() + dim + 1, factor);
  return split;
}

Value upsample_along(Builder& b, Method method, const Value& x, int64_t dim, const Axis& a) {
  const int64_t factor = whole_factor(method, a, x.rank() == 4);
  if (factor == 1) return x;
  if (factor == 0) return apply(b, x, dim, taps_of(method, a, x.dtype()));
  Dims map, merged = x.dims();
  for (int64_t i = 0; i < x.rank(); ++i) map.push_back(i <= dim ? i : i + 1);
  merged[static_cast<size_t>(dim)] *= factor;
  return b.reshape(b.broadcast_in_dim(x, split_dim(x.dims(), dim, factor), map), merged);
}

Value upsample_along_backward(Builder& b, Method method, const Value& grad, int64_t dim, const Axis& a) {
  const int64_t factor = whole_factor(method, a, true);
  if (factor == 1) return grad;
  if (factor == 0) return apply_transposed(b, grad, dim, a.in, taps_of(method, a, grad.dtype()));
  Dims dims = grad.dims();
  dims[static_cast<size_t>(dim)] = a.in;
  return sum_over(b, b.reshape(grad, split_dim(dims, dim, factor)), {dim + 1});
}

// Arguments: self, output_size, [align_corners,] scales...; backward: grad, output_size, input_size, [align_corners,]
// scales...
template <Method method, bool backward>
Values upsample(Call& c) {
  const bool has_corners = method != Method::kNearest && method != Method::kNearestExact;
  // Weighted bytes are rounded after each dimension, the last one first, as on the CPU.
  const bool rounds = has_corners && !is_float(c.result().dtype);
  const DType t = rounds ? DType::F32 : opmath(c.result().dtype);
  Value x = c.tensor(0, t);
  if (c.result().numel() == 0 || x.type.numel() == 0) return {c.b.constant(c.result(), 0)};
  const size_t corners = backward ? 3 : 2, scales = corners + (has_corners ? 1 : 0);
  const int64_t spatial = x.rank() - 2;
  for (int64_t step = 0; step < spatial; ++step) {
    const int64_t i = rounds ? spatial - 1 - step : step, dim = 2 + i;
    const int64_t other = c.result_dims()[static_cast<size_t>(dim)];
    Axis a{backward ? other : x.dim(dim), backward ? x.dim(dim) : other, c.known(scales + static_cast<size_t>(i)),
           has_corners && c.flag(corners)};
    x = backward ? upsample_along_backward(c.b, method, x, dim, a) : upsample_along(c.b, method, x, dim, a);
    if (rounds) x = c.b.clamp(c.b.scalar(t, 0), c.b.round_even(x), c.b.scalar(t, 255));
  }
  return {x};
}

// The scales decide which elements are read, so they are part of the program.
const Row::Options kScales{.statics = {"scales", "scales_d", "scales_h", "scales_w"}};

// ---- padding by the input's own elements

// Source of position o - low outside of [0, n): mirrored at the edge elements, or the edge element itself.
Tap padding_tap(int64_t n, int64_t low, int64_t high, bool reflect) {
  Tap tap;
  for (int64_t i = -low; i < n + high; ++i) {
    int64_t at = i;
    if (reflect) at = at < 0 ? -at : at >= n ? 2 * (n - 1) - at : at;
    tap.source.push_back(std::clamp<int64_t>(at, 0, n - 1));
  }
  return tap;
}

// `pad` lists (low, high) from the last dimension on.
template <bool reflect>
Values edge_pad(Call& c) {
  Value x = c.tensor(0);
  const Dims pad = c.ints(1);
  if (c.result().numel() == 0) return {c.b.constant(c.result(), 0)};
  for (size_t i = 0; i + 1 < pad.size(); i += 2) {
    const int64_t dim = x.rank() - 1 - static_cast<int64_t>(i / 2);
    if (pad[i] != 0 || pad[i + 1] != 0) x = apply(c.b, x, dim, {padding_tap(x.dim(dim), pad[i], pad[i + 1], reflect)});
  }
  return {x};
}

template <bool reflect>
Values edge_pad_backward(Call& c) {
  Value grad = c.tensor(0, opmath(c.type(0).dtype));
  const Dims pad = c.ints(2);
  if (grad.type.numel() == 0) return {c.b.constant(c.result(), 0)};
  for (size_t i = 0; i + 1 < pad.size(); i += 2) {
    const int64_t dim = grad.rank() - 1 - static_cast<int64_t>(i / 2), n = c.result_dims()[static_cast<size_t>(dim)];
    if (pad[i] != 0 || pad[i + 1] != 0)
      grad = apply_transposed(c.b, grad, dim, n, {padding_tap(n, pad[i], pad[i + 1], reflect)});
  }
  return {grad};
}

// ---- windows as columns: im2col and back

struct Columns {
  Dims kernel, dilation, padding, stride;

  // Of the `n`-th kernel element (row-major) in an image of `size`: where its first window is, and how far one sees.
  Dims start(int64_t n) const { return {n / kernel[1] * dilation[0], n % kernel[1] * dilation[1]}; }
  int64_t windows(int64_t size, size_t i) const {
    return (size + 2 * padding[i] - dilation[i] * (kernel[i] - 1) - 1) / stride[i] + 1;
  }
};

Columns columns_of(Call& c, size_t first) {
  const auto two = [](Dims v) { return v.size() == 1 ? Dims{v[0], v[0]} : v; };
  return {two(c.ints(first)), two(c.ints(first + 1)), two(c.ints(first + 2)), two(c.ints(first + 3))};
}

// [N, C, H, W] -> [N, C * kh * kw, windows]
Values im2col(Call& c) {
  Builder& b = c.b;
  const Columns k = columns_of(c, 1);
  Value x = c.tensor(0);
  if (x.rank() == 3) x = b.reshape(x, {1, x.dim(0), x.dim(1), x.dim(2)});
  const int64_t h = k.windows(x.dim(2), 0), w = k.windows(x.dim(3), 1);
  const Dims around{0, 0, k.padding[0], k.padding[1]};
  const Value padded = b.pad(x, b.constant({x.dtype(), {}}, 0), around, around, Dims(4, 0));
  Values parts;
  for (int64_t n = 0; n < k.kernel[0] * k.kernel[1]; ++n) {
    const Dims at = k.start(n), start{0, 0, at[0], at[1]};
    const Dims limit{x.dim(0), x.dim(1), at[0] + (h - 1) * k.stride[0] + 1, at[1] + (w - 1) * k.stride[1] + 1};
    parts.push_back(
        b.reshape(b.slice(padded, start, limit, {1, 1, k.stride[0], k.stride[1]}), {x.dim(0), x.dim(1), 1, h * w}));
  }
  return {b.reshape(b.concatenate(parts, 2), c.result_dims())};
}

// (columns, output_size, kernel...): the sum of all windows at their places.
Values col2im(Call& c) {
  Builder& b = c.b;
  const Columns k = columns_of(c, 2);
  const DType t = opmath(c.result().dtype);
  const Dims size = c.ints(1);
  const int64_t h = k.windows(size[0], 0), w = k.windows(size[1], 1), taps = k.kernel[0] * k.kernel[1];
  const Dims& out = c.result_dims();
  const int64_t batch = out.size() == 4 ? out[0] : 1, channels = out[out.size() - 3];
  const Value columns = b.reshape(c.tensor(0, t), {batch, channels, taps, h, w});
  const Dims padded{batch, channels, size[0] + 2 * k.padding[0], size[1] + 2 * k.padding[1]};
  Value sum;
  for (int64_t n = 0; n < taps; ++n) {
    const Dims at = k.start(n), low{0, 0, at[0], at[1]};
    const Dims high{0, 0, padded[2] - at[0] - ((h - 1) * k.stride[0] + 1),
                    padded[3] - at[1] - ((w - 1) * k.stride[1] + 1)};
    const Value part = b.reshape(b.slice_dim(columns, 2, n, n + 1), {batch, channels, h, w});
    const Value spread = b.pad(part, b.constant({t, {}}, 0), low, high, {0, 0, k.stride[0] - 1, k.stride[1] - 1});
    sum = sum ? b.add(sum, spread) : spread;
  }
  const Dims start{0, 0, k.padding[0], k.padding[1]},
      limit{batch, channels, k.padding[0] + size[0], k.padding[1] + size[1]};
  return {b.reshape(b.slice(sum, start, limit, Dims(4, 1)), out)};
}

}  // namespace

std::vector<Row> resample_rows() {
  using enum Method;
  return {
      {"_upsample_bicubic2d_aa", upsample<kKeys, false>, kScales},
      {"_upsample_bicubic2d_aa_backward", upsample<kKeys, true>, kScales},
      {"_upsample_bilinear2d_aa", upsample<kTriangle, false>, kScales},
      {"_upsample_bilinear2d_aa_backward", upsample<kTriangle, true>, kScales},
      {"_upsample_lanczos2d_aa", upsample<kLanczos, false>, kScales},
      {"_upsample_nearest_exact1d", upsample<kNearestExact, false>, kScales},
      {"_upsample_nearest_exact1d_backward", upsample<kNearestExact, true>, kScales},
      {"_upsample_nearest_exact2d", upsample<kNearestExact, false>, kScales},
      {"_upsample_nearest_exact2d_backward", upsample<kNearestExact, true>, kScales},
      {"_upsample_nearest_exact3d", upsample<kNearestExact, false>, kScales},
      {"_upsample_nearest_exact3d_backward", upsample<kNearestExact, true>, kScales},
      {"col2im", col2im},
      {"im2col", im2col},
      {"reflection_pad1d", edge_pad<true>},
      {"reflection_pad1d_backward", edge_pad_backward<true>},
      {"reflection_pad2d", edge_pad<true>},
      {"reflection_pad2d_backward", edge_pad_backward<true>},
      {"reflection_pad3d", edge_pad<true>},
      {"reflection_pad3d_backward", edge_pad_backward<true>},
      {"replication_pad1d", edge_pad<false>},
      {"replication_pad1d_backward", edge_pad_backward<false>},
      {"replication_pad2d", edge_pad<false>},
      {"replication_pad2d_backward", edge_pad_backward<false>},
      {"replication_pad3d", edge_pad<false>},
      {"replication_pad3d_backward", edge_pad_backward<false>},
      {"upsample_bicubic2d", upsample<kCubic, false>, kScales},
      {"upsample_bicubic2d_backward", upsample<kCubic, true>, kScales},
      {"upsample_bilinear2d", upsample<kLinear, false>, kScales},
      {"upsample_bilinear2d_backward", upsample<kLinear, true>, kScales},
      {"upsample_linear1d", upsample<kLinear, false>, kScales},
      {"upsample_linear1d_backward", upsample<kLinear, true>, kScales},
      {"upsample_nearest1d", upsample<kNearest, false>, kScales},
      {"upsample_nearest1d_backward", upsample<kNearest, true>, kScales},
      {"upsample_nearest2d", upsample<kNearest, false>, kScales},
      {"upsample_nearest2d_backward", upsample<kNearest, true>, kScales},
      {"upsample_nearest3d", upsample<kNearest, false>, kScales},
      {"upsample_nearest3d_backward", upsample<kNearest, true>, kScales},
      {"upsample_trilinear3d", upsample<kLinear, false>, kScales},
      {"upsample_trilinear3d_backward", upsample<kLinear, true>, kScales},
  };
}

}  // namespace tpj::lower
