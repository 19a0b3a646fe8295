// Pooling over one to three spatial dimensions and its gradients.
#include "lower/common.h"
#include "lower/indexing.h"
#include "lower/row.h"

namespace tpj::lower {
namespace {

// A pooling window over the last `spatial` dimensions of an input of any rank.
struct Pool {
  int64_t spatial;
  Dims kernel, stride, padding, dilation;
};

Dims per_dimension(Dims v, int64_t n) {
  if (v.size() == 1) v.resize(static_cast<size_t>(n), v[0]);
  return v;
}

Pool pool_of(Call& c, size_t first, int64_t spatial, bool dilated) {
  Pool p{spatial, per_dimension(c.ints(first), spatial), per_dimension(c.ints(first + 1), spatial),
         per_dimension(c.ints(first + 2), spatial), Dims(static_cast<size_t>(spatial), 1)};
  if (p.stride.empty()) p.stride = p.kernel;
  if (dilated) p.dilation = per_dimension(c.ints(first + 3), spatial);
  return p;
}

Dims last(const Dims& dims, int64_t n) { return Dims(dims.end() - n, dims.end()); }

// The window of every output, padded at the end as far as the last one reaches (ceil_mode goes beyond the padding).
hlo::Window window_of(const Pool& p, const Dims& input, const Dims& output) {
  const size_t lead = input.size() - static_cast<size_t>(p.spatial);
  hlo::Window w;
  w.dims = w.strides = w.base_dilations = w.dilations = Dims(input.size(), 1);
  w.padding.assign(input.size(), {0, 0});
  for (size_t i = 0; i < p.kernel.size(); ++i) {
    const size_t d = lead + i;
    w.dims[d] = p.kernel[i], w.strides[d] = p.stride[i], w.dilations[d] = p.dilation[i];
    const int64_t reach = (output[d] - 1) * p.stride[i] + (p.kernel[i] - 1) * p.dilation[i] + 1;
    w.padding[d] = {p.padding[i], reach - input[d] - p.padding[i]};
  }
  return w;
}

// Flat positions in the last `n` dimensions, in the shape of `dims`.
Value plane_positions(Builder& b, const Dims& dims, int64_t n) {
  const Dims plane = last(dims, n);
  const Type row{DType::I32, {hlo::numel(plane)}};
  Dims map;
  for (int64_t i = 0; i < n; ++i) map.push_back(static_cast<int64_t>(dims.size()) - n + i);
  return b.broadcast_in_dim(b.reshape(b.iota(row, 0), plane), dims, map);
}

// Keeps (value, position) of the greater; of equal ones the first, of NaN the last, as PyTorch's loop finds them.
Values greater(Builder& b, const Values& a) {
  const Value &x = a[0], &i = a[1], &y = a[2], &j = a[3];
  const Value later = b.compare(Cmp::GT, j, i);
  Value take = b.or_(b.compare(Cmp::GT, y, x), b.and_(b.compare(Cmp::EQ, y, x), b.not_(later)));
  if (is_float(x.dtype())) {
    const Value nan_x = is_nan(b, x), nan_y = is_nan(b, y);
    take = b.or_(b.and_(take, b.not_(nan_x)), b.and_(nan_y, b.or_(b.not_(nan_x), later)));
  }
  return {b.select(take, y, x), b.select(take, j, i)};
}

Values max_pool(Call& c, int64_t spatial) {
  Builder& b = c.b;
  const Value x = c.tensor(0);
  const Pool p = pool_of(c, 1, spatial, true);
  if (c.result().numel() == 0) return {b.constant(c.result(0), 0), b.constant(c.result(1), 0)};
  const Value at = plane_positions(b, x.dims(), spatial);
  // Padding loses against everything: of equal values the lower position is kept, and padding has the highest.
  const Value lowest = b.min_value({x.dtype(), {}}), nowhere = b.max_value({DType::I32, {}});
  return b.reduce_window({x, at}, {lowest, nowhere}, window_of(p, x.dims(), c.result_dims()),
                         [&b](const Values& a) { return greater(b, a); });
}

Values max_pool2d(Call& c) { return max_pool(c, 2); }
Values max_pool3d(Call& c) { return max_pool(c, 3); }

// Adds each gradient at its position in the input's plane of the last `n` dimensions.
Value scatter_to_planes(Builder& b, const Value& grad, const Value& at, const Dims& input, int64_t n) {
  const Dims in = last(input, n), out = last(grad.dims(), n);
  const int64_t planes = hlo::numel(Dims(input.begin(), input.end() - n)), size = hlo::numel(in);
  const Value zeros = b.constant({grad.dtype(), {planes, size}}, 0);
  const Dims rows{planes, hlo::numel(out)};
  const Value where = positions(b, b.reshape(at, rows), size);
  return b.reshape(write_along(b, zeros, 1, where, b.reshape(grad, rows), accumulate(b)), input);
}

// Windows that do not overlap and divide the input: the gradient goes to the one element of its window whose position
// it has.
bool is_tiling(const Pool& p, const Dims& input, const Dims& output) {
  const Dims in = last(input, p.spatial), out = last(output, p.spatial);
  for (size_t i = 0; i < in.size(); ++i)
    if (p.stride[i] != p.kernel[i] || p.padding[i] != 0 || p.dilation[i] != 1 || out[i] * p.kernel[i] > in[i])
      return false;
  return true;
}

// Each element repeated over its tile; `fill` for what the tiles leave over.
Value spread_tiles(Builder& b, const Pool& p, const Value& y, const Dims& input, const Value& fill) {
  const size_t lead = input.size() - static_cast<size_t>(p.spatial);
  Dims spread(y.dims().begin(), y.dims().begin() + static_cast<int64_t>(lead)), map, merged = spread,
                                                                                     low(input.size(), 0), high = low;
  for (size_t i = 0; i < lead; ++i) map.push_back(static_cast<int64_t>(i));
  for (size_t i = 0; i < p.kernel.size(); ++i) {
    map.push_back(static_cast<int64_t>(spread.size()));
    spread.push_back(y.dims()[lead + i]);
    spread.push_back(p.kernel[i]);
    merged.push_back(y.dims()[lead + i] * p.kernel[i]);
    high[lead + i] = input[lead + i] - merged.back();
  }
  return b.pad(b.reshape(b.broadcast_in_dim(y, spread, map), merged), fill, low, high, Dims(low.size(), 0));
}

// The gradient by one shifted comparison per window element, without a scatter: an element of the input receives from
// the output whose window has it at offset `o`, if that output chose it.
Value gather_gradient(Builder& b, const Pool& p, const Value& grad, const Value& at, const Dims& input) {
  const size_t lead = input.size() - static_cast<size_t>(p.spatial);
  const Value mine = plane_positions(b, input, p.spatial);
  const Value zero = b.scalar(grad.dtype(), 0), nowhere = b.constant({DType::I32, {}}, -1);
  Value sum = b.constant({grad.dtype(), input}, 0);
  const int64_t taps = hlo::numel(p.kernel);
  for (int64_t t = 0; t < taps; ++t) {
    Dims low(input.size(), 0), high = low, interior = low;
    int64_t rest = t;
    for (size_t i = p.kernel.size(); i-- > 0; rest /= p.kernel[i]) {
      const size_t d = lead + i;
      low[d] = (rest % p.kernel[i]) * p.dilation[i] - p.padding[i];
      interior[d] = p.stride[i] - 1;
      high[d] = input[d] - low[d] - ((grad.dims()[d] - 1) * p.stride[i] + 1);
    }
    const Value chosen = b.compare(Cmp::EQ, b.pad(at, nowhere, low, high, interior), mine);
    sum = b.add(sum, b.select(chosen, b.pad(grad, zero, low, high, interior), b.constant(sum.type, 0)));
  }
  return sum;
}

Values max_pool_backward(Call& c, int64_t spatial) {
  Builder& b = c.b;
  const Dims& input = c.type(1).dims;
  const Value grad = c.tensor(0, opmath(c.type(0).dtype));
  if (grad.type.numel() == 0) return {b.constant(c.result(), 0)};
  const Pool p = pool_of(c, 2, spatial, true);
  const Value at = c.tensor(7, DType::I32);
  if (is_tiling(p, input, grad.dims())) {
    const Value zero = b.scalar(grad.dtype(), 0), nowhere = b.constant({DType::I32, {}}, -1);
    const Value chosen = b.compare(Cmp::EQ, spread_tiles(b, p, at, input, nowhere), plane_positions(b, input, spatial));
    return {b.select(chosen, spread_tiles(b, p, grad, input, zero), b.constant({grad.dtype(), input}, 0))};
  }
  if (hlo::numel(p.kernel) <= 16) return {gather_gradient(b, p, grad, at, input)};
  return {scatter_to_planes(b, grad, at, input, spatial)};
}

Values max_pool2d_backward(Call& c) { return max_pool_backward(c, 2); }
Values max_pool3d_backward(Call& c) { return max_pool_backward(c, 3); }

// ---- averages

Value window_sum(Builder& b, const Value& x, const hlo::Window& w) {
  return b.reduce_window({x}, {b.scalar(x.dtype(), 0)}, w,
                         [&b](const Values& a) { return Values{b.add(a[0], a[1])}; })[0];
}

// What each window's sum is divided by, in one dimension: window elements inside the input, with its padding or
// without. Windows that ceil_mode lets reach further end there.
std::vector<int64_t> window_counts(int64_t input, int64_t output, int64_t kernel, int64_t stride, int64_t padding,
                                   bool include_pad) {
  std::vector<int64_t> counts;
  for (int64_t o = 0; o < output; ++o) {
    const int64_t start = o * stride - padding, end = std::min(start + kernel, input + padding);
    counts.push_back(include_pad ? end - start : std::min(end, input) - std::max<int64_t>(start, 0));
  }
  return counts;
}

// Of the sizes of the output: products of the counts of each dimension.
Value divisors(Builder& b, DType t, const Pool& p, const Dims& input, const Dims& output, bool include_pad) {
  const size_t lead = input.size() - static_cast<size_t>(p.spatial);
  Value product;
  for (size_t i = 0; i < p.kernel.size(); ++i) {
    const size_t d = lead + i;
    const auto counts = window_counts(input[d], output[d], p.kernel[i], p.stride[i], p.padding[i], include_pad);
    const Value row = b.convert(b.dense({DType::I32, {output[d]}}, counts), t);
    const Value full = b.broadcast_in_dim(row, output, {static_cast<int64_t>(d)});
    product = product ? b.mul(product, full) : full;
  }
  return product;
}

// The window sums divided; `first` is the position of ceil_mode.
Value divisor(Call& c, size_t first, DType t, const Pool& p, const Dims& input, const Dims& output) {
  if (c.has(first + 2)) return c.b.constant({t, output}, static_cast<double>(c.integer(first + 2)));
  return divisors(c.b, t, p, input, output, c.flag(first + 1));
}

Values avg_pool(Call& c, int64_t spatial) {
  const DType t = opmath(c.result().dtype);
  const Value x = c.tensor(0, t);
  if (c.result().numel() == 0) return {c.b.constant(c.result(), 0)};
  const Pool p = pool_of(c, 1, spatial, false);
  const Value sum = window_sum(c.b, x, window_of(p, x.dims(), c.result_dims()));
  return {c.b.div(sum, divisor(c, 4, t, p, x.dims(), c.result_dims()))};
}

Values avg_pool2d(Call& c) { return avg_pool(c, 2); }
Values avg_pool3d(Call& c) { return avg_pool(c, 3); }

// Every input element receives from the windows it is in: a window sum over the spread gradients.
Value spread_windows(Builder& b, const Pool& p, const Value& y, const Dims& input) {
  const size_t lead = input.size() - static_cast<size_t>(p.spatial);
  hlo::Window w;
  w.dims = w.strides = w.base_dilations = w.dilations = Dims(input.size(), 1);
  w.padding.assign(input.size(), {0, 0});
  for (size_t i = 0; i < p.kernel.size(); ++i) {
    const size_t d = lead + i;
    w.dims[d] = p.kernel[i], w.base_dilations[d] = p.stride[i];
    const int64_t spread = (y.dims()[d] - 1) * p.stride[i] + 1, low = p.kernel[i] - 1 - p.padding[i];
    w.padding[d] = {low, input[d] + p.kernel[i] - 1 - spread - low};
  }
  return window_sum(b, y, w);
}

Values avg_pool_backward(Call& c, int64_t spatial) {
  const Dims& input = c.type(1).dims;
  const Value grad = c.tensor(0, opmath(c.type(0).dtype));
  if (grad.type.numel() == 0) return {c.b.constant(c.result(), 0)};
  const Pool p = pool_of(c, 2, spatial, false);
  const Value shares = c.b.div(grad, divisor(c, 5, grad.dtype(), p, input, grad.dims()));
  if (is_tiling(p, input, grad.dims())) return {spread_tiles(c.b, p, shares, input, c.b.scalar(grad.dtype(), 0))};
  return {spread_windows(c.b, p, shares, input)};
}

Values avg_pool2d_backward(Call& c) { return avg_pool_backward(c, 2); }
Values avg_pool3d_backward(Call& c) { return avg_pool_backward(c, 3); }

// ---- adaptive: window o of `out` covers [floor(o * in / out), ceil((o + 1) * in / out))

int64_t adaptive_start(int64_t o, int64_t in, int64_t out) { return o * in / out; }
int64_t adaptive_end(int64_t o, int64_t in, int64_t out) { return ((o + 1) * in + out - 1) / out; }

// The pool whose windows are the adaptive ones, where they are all alike.
std::optional<Pool> regular_pool(const Dims& input, const Dims& output, int64_t spatial) {
  Pool p{spatial, {}, {}, Dims(static_cast<size_t>(spatial), 0), Dims(static_cast<size_t>(spatial), 1)};
  const Dims in = last(input, spatial), out = last(output, spatial);
  for (size_t i = 0; i < in.size(); ++i) {
    if (out[i] == 0 || in[i] % out[i] != 0) return std::nullopt;
    p.kernel.push_back(in[i] / out[i]);
    p.stride.push_back(in[i] / out[i]);
  }
  return p;
}

// [out, in] matrix of 1 where a window has the element, times 1 / its size if `mean`.
Value adaptive_matrix(Builder& b, DType t, int64_t in, int64_t out, bool mean) {
  std::vector<int64_t> member, size;
  for (int64_t o = 0; o < out; ++o) {
    const int64_t start = adaptive_start(o, in, out), end = adaptive_end(o, in, out);
    for (int64_t i = 0; i < in; ++i) member.push_back(i >= start && i < end);
    size.push_back(end - start);
  }
  const Value m = b.convert(b.dense({DType::I32, {out, in}}, member), t);
  if (!mean) return m;
  return b.div(m, b.broadcast_in_dim(b.convert(b.dense({DType::I32, {out}}, size), t), {out, in}, {0}));
}

// x with dimension d replaced by matrix [new, old] times it; the matrix's other dimension when transposed.
Value apply_along(Builder& b, const Value& x, int64_t d, const Value& matrix, bool transposed) {
  const Value y =
      b.dot_general(x, matrix, {{}, {}, {d}, {transposed ? 0 : 1}}, x.dtype());  // the new dimension comes last
  Dims order;
  for (int64_t i = 0; i < x.rank() - 1; ++i) {
    if (i == d) order.push_back(x.rank() - 1);
    order.push_back(i);
  }
  if (d == x.rank() - 1) order.push_back(d);
  return b.transpose(y, order);
}

Values adaptive_avg_pool(Call& c, int64_t spatial) {
  Builder& b = c.b;
  const DType t = opmath(c.result().dtype);
  Value x = c.tensor(0, t);
  const Dims& out = c.result_dims();
  if (c.result().numel() == 0) return {b.constant(c.result(), 0)};
  if (hlo::numel(last(out, spatial)) == 1) {
    Dims over;
    for (int64_t d = x.rank() - spatial; d < x.rank(); ++d) over.push_back(d);
    return {b.reshape(mean_over(b, x, over), out)};
  }
  if (const auto p = regular_pool(x.dims(), out, spatial)) {
    const Value sum = window_sum(b, x, window_of(*p, x.dims(), out));
    return {b.div(sum, b.like(sum, static_cast<double>(hlo::numel(p->kernel))))};
  }
  for (int64_t d = x.rank() - spatial; d < x.rank(); ++d)
    x = apply_along(b, x, d, adaptive_matrix(b, t, x.dim(d), out[static_cast<size_t>(d)], true), false);
  return {x};
}

Values adaptive_avg_pool2d(Call& c) { return adaptive_avg_pool(c, 2); }
Values adaptive_avg_pool3d(Call& c) { return adaptive_avg_pool(c, 3); }

Values adaptive_avg_pool_backward(Call& c, int64_t spatial) {
  Builder& b = c.b;
  const Dims& input = c.type(1).dims;
  const DType t = opmath(c.result().dtype);
  Value g = c.tensor(0, t);
  if (g.type.numel() == 0 || c.result().numel() == 0) return {b.constant(c.result(), 0)};
  if (const auto p = regular_pool(input, g.dims(), spatial)) {
    const Value share = b.div(g, b.like(g, static_cast<double>(hlo::numel(p->kernel))));
    return {spread_tiles(b, *p, share, input, b.scalar(t, 0))};
  }
  for (int64_t d = g.rank() - spatial; d < g.rank(); ++d)
    g = apply_along(b, g, d, adaptive_matrix(b, t, input[static_cast<size_t>(d)], g.dim(d), true), true);
  return {g};
}

Values adaptive_avg_pool2d_backward(Call& c) { return adaptive_avg_pool_backward(c, 2); }
Values adaptive_avg_pool3d_backward(Call& c) { return adaptive_avg_pool_backward(c, 3); }

// Windows that are not alike reduce one dimension at a time: a slice and a reduction per window.
Values adaptive_max_along(Builder& b, const Values& xs, int64_t d, int64_t out) {
  Values values, at;
  const int64_t in = xs[0].dim(d);
  for (int64_t o = 0; o < out; ++o) {
    Values part;
    for (const Value& x : xs) part.push_back(b.slice_dim(x, d, adaptive_start(o, in, out), adaptive_end(o, in, out)));
    Dims kept = part[0].dims();
    kept[static_cast<size_t>(d)] = 1;
    const Values best = b.reduce(part, {b.min_value({xs[0].dtype(), {}}), b.max_value({DType::I32, {}})}, {d},
                                 [&b](const Values& a) { return greater(b, a); });
    values.push_back(b.reshape(best[0], kept));
    at.push_back(b.reshape(best[1], kept));
  }
  return {b.concatenate(values, d), b.concatenate(at, d)};
}

Values adaptive_max_pool(Call& c, int64_t spatial) {
  Builder& b = c.b;
  const Value x = c.tensor(0);
  if (c.result().numel() == 0) return {b.constant(c.result(0), 0), b.constant(c.result(1), 0)};
  Values xs{x, plane_positions(b, x.dims(), spatial)};
  if (const auto p = regular_pool(x.dims(), c.result_dims(), spatial))
    return b.reduce_window(xs, {b.min_value({x.dtype(), {}}), b.max_value({DType::I32, {}})},
                           window_of(*p, x.dims(), c.result_dims()), [&b](const Values& a) { return greater(b, a); });
  for (int64_t d = x.rank() - spatial; d < x.rank(); ++d)
    xs = adaptive_max_along(b, xs, d, c.result_dims()[static_cast<size_t>(d)]);
  return xs;
}

Values adaptive_max_pool2d(Call& c) { return adaptive_max_pool(c, 2); }
Values adaptive_max_pool3d(Call& c) { return adaptive_max_pool(c, 3); }

Values adaptive_max_pool_backward(Call& c, int64_t spatial) {
  const Value grad = c.tensor(0, opmath(c.type(0).dtype));
  if (grad.type.numel() == 0) return {c.b.constant(c.result(), 0)};
  return {scatter_to_planes(c.b, grad, c.tensor(2), c.type(1).dims, spatial)};
}

Values adaptive_max_pool2d_backward(Call& c) { return adaptive_max_pool_backward(c, 2); }
Values adaptive_max_pool3d_backward(Call& c) { return adaptive_max_pool_backward(c, 3); }

Values max_unpool(Call& c, int64_t spatial) {
  const Value x = c.tensor(0);
  const Dims& out = c.result_dims();
  if (x.type.numel() == 0) return {c.b.constant(c.result(), 0)};
  const int64_t planes = hlo::numel(Dims(out.begin(), out.end() - spatial)), size = hlo::numel(last(out, spatial));
  const Dims rows{planes, hlo::numel(last(x.dims(), spatial))};
  const Value at = positions(c.b, c.b.reshape(c.tensor(1), rows), size);
  const Value zeros = c.b.constant({x.dtype(), {planes, size}}, 0);
  return {c.b.reshape(write_along(c.b, zeros, 1, at, c.b.reshape(x, rows), replace()), out)};
}

Values max_unpool2d(Call& c) { return max_unpool(c, 2); }
Values max_unpool3d(Call& c) { return max_unpool(c, 3); }

// ---- windows at places drawn at random: https://arxiv.org/abs/1412.6071

// Where the windows of one dimension start, [planes, out], from one sample in [0, 1) per plane. Every step rounds to
// the samples' type, as on the CPU.
Value fractional_starts(Builder& b, const Value& sample, int64_t in, int64_t out, int64_t kernel) {
  const Type grid{sample.dtype(), {sample.dim(0), out}};
  const Value last_start = b.constant({DType::I32, grid.dims}, in - kernel);
  if (out == 1) return last_start;
  const DType exact = opmath(grid.dtype);
  const auto rounded = [&](const Value& v) { return b.convert(b.convert(v, grid.dtype), exact); };
  const Value span = b.constant({exact, grid.dims}, static_cast<double>(in - kernel));
  const Value alpha = rounded(b.div(rounded(span), b.like(span, static_cast<double>(out - 1))));
  const Value s = b.convert(b.broadcast_in_dim(sample, grid.dims, {0}), exact);
  const Value o = b.iota({DType::I32, grid.dims}, 1);
  const auto start = [&](const Value& at) { return b.convert(rounded(b.mul(rounded(at), alpha)), DType::I32); };
  const Value starts = b.sub(start(b.add(b.convert(o, exact), s)), start(s));
  return b.select(b.compare(Cmp::EQ, o, b.constant(o.type, out - 1)), last_start, starts);
}

// (self, kernel_size, output_size, random_samples [N, C, spatial])
Values fractional_max_pool(Call& c, int64_t spatial) {
  Builder& b = c.b;
  const Value x = c.tensor(0), samples = c.tensor(3);
  const Dims kernel = per_dimension(c.ints(1), spatial), in = last(x.dims(), spatial),
             out = last(c.result_dims(), spatial);
  if (c.result().numel() == 0) return {b.constant(c.result(0), 0), b.constant(c.result(1), 0)};
  const int64_t planes = x.type.numel() / hlo::numel(in);
  // [planes, out..., kernel...]: the position of every element of every window.
  Dims all{planes};
  all.insert(all.end(), out.begin(), out.end());
  all.insert(all.end(), kernel.begin(), kernel.end());
  // There may be more samples than planes: of a batch, for an input without one.
  const Value flat = b.reshape(samples, {samples.type.numel()});
  const Value by_plane = b.reshape(b.slice_dim(flat, 0, 0, planes * spatial), {planes, spatial});
  Value at;
  for (int64_t d = 0; d < spatial; ++d) {
    const auto i = static_cast<size_t>(d);
    TPJ_CHECK(kernel[i] + out[i] - 1 <= in[i], "fractional_max_pool: windows of ", kernel[i], " do not fit");
    // The samples of images come in the order width, height; those of volumes in the order of the dimensions.
    const int64_t k = spatial == 2 ? 1 - d : d;
    const Value sample = b.reshape(b.slice_dim(by_plane, 1, k, k + 1), {planes});
    const Value starts = fractional_starts(b, sample, in[i], out[i], kernel[i]);
    const Value place = b.add(b.broadcast_in_dim(starts, all, {0, 1 + d}), b.iota({DType::I32, all}, 1 + spatial + d));
    at = at ? b.add(b.mul(at, b.constant(at.type, in[i])), place) : place;
  }
  const Dims windows{planes, hlo::numel(out), hlo::numel(kernel)}, line{planes, windows[1] * windows[2]};
  const Value rows = b.reshape(x, {planes, hlo::numel(in)});
  const Value values = b.reshape(read_along(b, rows, 1, b.reshape(at, line)), windows);
  const Values best =
      b.reduce({values, b.reshape(at, windows)}, {b.min_value({x.dtype(), {}}), b.max_value({DType::I32, {}})}, {2},
               [&b](const Values& a) { return greater(b, a); });
  return {b.reshape(best[0], c.result_dims()), b.reshape(best[1], c.result_dims())};
}

Values fractional_max_pool2d(Call& c) { return fractional_max_pool(c, 2); }
Values fractional_max_pool3d(Call& c) { return fractional_max_pool(c, 3); }

// (grad, self, kernel_size, output_size, indices)
Values fractional_max_pool2d_backward(Call& c) {
  const Value grad = c.tensor(0, opmath(c.type(0).dtype));
  if (grad.type.numel() == 0) return {c.b.constant(c.result(), 0)};
  return {scatter_to_planes(c.b, grad, c.tensor(4), c.type(1).dims, 2)};
}

}  // namespace

std::vector<Row> pool_rows() {
  return {
      {"_adaptive_avg_pool2d", adaptive_avg_pool2d},
      {"_adaptive_avg_pool2d_backward", adaptive_avg_pool2d_backward},
      {"_adaptive_avg_pool3d", adaptive_avg_pool3d},
      {"_adaptive_avg_pool3d_backward", adaptive_avg_pool3d_backward},
      {"adaptive_max_pool2d", adaptive_max_pool2d},
      {"adaptive_max_pool2d_backward", adaptive_max_pool2d_backward},
      {"adaptive_max_pool3d", adaptive_max_pool3d},
      {"adaptive_max_pool3d_backward", adaptive_max_pool3d_backward},
      {"avg_pool2d", avg_pool2d},
      {"avg_pool2d_backward", avg_pool2d_backward},
      {"avg_pool3d", avg_pool3d},
      {"avg_pool3d_backward", avg_pool3d_backward},
      {"fractional_max_pool2d", fractional_max_pool2d},
      {"fractional_max_pool2d_backward", fractional_max_pool2d_backward},
      {"fractional_max_pool3d", fractional_max_pool3d},
      {"max_pool2d_with_indices", max_pool2d},
      {"max_pool2d_with_indices_backward", max_pool2d_backward},
      {"max_pool3d_with_indices", max_pool3d},
      {"max_pool3d_with_indices_backward", max_pool3d_backward},
      {"max_unpool2d", max_unpool2d, {.bounds = Bounds::kUnpooled}},
      {"max_unpool3d", max_unpool3d, {.bounds = Bounds::kUnpooled}},
  };
}

}  // namespace tpj::lower
