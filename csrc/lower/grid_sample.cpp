// Interpolation at given places (spatial transformers, https://arxiv.org/abs/1506.02025) and its gradients. Along each
// dimension a place reads a few elements with weights: nearest 1, linear 2, cubic 4; the result is the sum over their
// products.
#include "lower/common.h"
#include "lower/indexing.h"
#include "lower/row.h"

namespace tpj::lower {

namespace {

enum Interpolation { kLinear, kNearest, kCubic };
enum Padding { kZeros, kBorder, kReflection };

struct Options {
  int64_t interpolation, padding;
  bool align_corners;
};

Options options_of(Call& c, size_t first) { return {c.integer(first), c.integer(first + 1), c.flag(first + 2)}; }

// A place and its slope against the grid's number.
struct Place {
  Value at, slope;
};

Value number(Builder& b, const Value& x, double v) { return b.like(x, v); }

// The grid's -1 and 1 are the centres of the outer elements, or their outer edges.
Place scaled(Builder& b, const Value& grid, int64_t size, bool align_corners) {
  const auto n = static_cast<double>(size);
  const Value one = number(b, grid, 1), half = number(b, grid, 0.5), shifted = b.add(grid, one);
  if (align_corners) return {b.mul(b.mul(shifted, half), number(b, grid, n - 1)), number(b, grid, (n - 1) / 2)};
  return {b.mul(b.sub(b.mul(shifted, number(b, grid, n)), one), half), number(b, grid, n / 2)};
}

Place clipped(Builder& b, const Place& p, int64_t size) {
  const Value zero = number(b, p.at, 0), last = number(b, p.at, static_cast<double>(size - 1));
  const Value inside = b.and_(b.compare(Cmp::GT, p.at, zero), b.compare(Cmp::LT, p.at, last));
  // NaN becomes 0.
  const Value low = b.select(b.compare(Cmp::GT, p.at, zero), p.at, zero);
  return {b.min(low, last), b.select(inside, p.slope, zero)};
}

Place reflected(Builder& b, const Place& p, int64_t size, bool align_corners) {
  const double low = align_corners ? 0 : -0.5, span = static_cast<double>(align_corners ? size - 1 : size);
  const Value zero = number(b, p.at, 0), least = number(b, p.at, low), width = number(b, p.at, span);
  if (span == 0) return {zero, zero};
  const Value from = b.sub(p.at, least), distance = b.abs(from);
  const Value slope = b.select(b.compare(Cmp::LT, from, zero), b.neg(p.slope), p.slope);
  const Value rest = b.rem(distance, width), flips = b.floor(b.div(distance, width));
  const Value even = b.compare(Cmp::EQ, b.rem(flips, number(b, p.at, 2)), zero);
  return {b.add(b.select(even, rest, b.sub(width, rest)), least), b.select(even, slope, b.neg(slope))};
}

Place padded(Builder& b, const Place& p, int64_t size, const Options& o) {
  if (o.padding == kBorder) return clipped(b, p, size);
  if (o.padding == kReflection) return clipped(b, reflected(b, p, size, o.align_corners), size);
  return p;
}

// One element that a place reads: its position (-1: outside), weight, and the weight's slope.
struct Tap {
  Value at, weight, slope;
};
using Taps = std::vector<Tap>;

Value position(Builder& b, const Value& at, int64_t size) {
  const Value inside = b.and_(b.compare(Cmp::GE, at, number(b, at, 0)),
                              b.compare(Cmp::LE, at, number(b, at, static_cast<double>(size - 1))));
  const Value safe = b.select(inside, at, number(b, at, -1));
  return b.convert(safe, DType::I32);
}

// Keys' cubic convolution with a = -0.75 (Keys 1981) and its slope, for a distance up to 1, or from 1 to 2.
struct Cubic {
  Value weight, slope;
};
Cubic cubic(Builder& b, const Value& x, bool near) {
  const double a = -0.75;
  const auto polynomial = [&](double c3, double c2, double c1, double c0) {
    Value y = b.add(b.mul(number(b, x, c3), x), number(b, x, c2));
    y = b.add(b.mul(y, x), number(b, x, c1));
    return b.add(b.mul(y, x), number(b, x, c0));
  };
  if (near) return {polynomial(a + 2, -(a + 3), 0, 1), polynomial(0, 3 * (a + 2), -2 * (a + 3), 0)};
  return {polynomial(a, -5 * a, 8 * a, -4 * a), polynomial(0, 3 * a, -10 * a, 8 * a)};
}

Taps taps_along(Builder& b, const Value& grid, int64_t size, const Options& o) {
  const Place raw = scaled(b, grid, size, o.align_corners);
  const Value one = number(b, grid, 1), zero = number(b, grid, 0);
  if (o.interpolation == kCubic) {
    const Value low = b.floor(raw.at), t = b.sub(raw.at, low);
    Taps taps;
    for (int k = -1; k <= 2; ++k) {
      const bool right = k > 0;
      const Value distance = right ? b.sub(number(b, t, k), t) : b.add(t, number(b, t, -k));
      const Cubic w = cubic(b, distance, k == 0 || k == 1);
      const Value slope = b.mul(right ? b.neg(w.slope) : w.slope, raw.slope);
      const Value at = padded(b, {b.add(low, number(b, t, k)), zero}, size, o).at;
      taps.push_back({position(b, at, size), w.weight, slope});
    }
    return taps;
  }
  const Place p = padded(b, raw, size, o);
  if (o.interpolation == kNearest) return {{position(b, b.round_even(p.at), size), one, zero}};
  const Value low = b.floor(p.at), right = b.sub(p.at, low);
  return {{position(b, low, size), b.sub(one, right), b.neg(p.slope)},
          {position(b, b.add(low, one), size), right, p.slope}};
}

// Everything about one call: input [N, P, C] and for each place, of [N, O], taps along each dimension.
struct Sampler {
  Dims input;   // N, C, spatial sizes
  Dims places;  // sizes of the result without C
  std::vector<Taps> along;
  Value row;  // [N, O]: number of the image

  Sampler(Call& c, const Dims& input_dims, const Value& grid, const Options& o) : input(input_dims) {
    Builder& b = c.b;
    const int64_t spatial = static_cast<int64_t>(input.size()) - 2, last = grid.rank() - 1;
    const Dims line{grid.dim(0), grid.type.numel() / grid.dim(0) / spatial};
    places = Dims(grid.dims().begin(), grid.dims().end() - 1);
    for (int64_t d = 0; d < spatial; ++d) {
      // The grid's first number belongs to the last dimension.
      const Value numbers = b.reshape(b.slice_dim(grid, last, spatial - 1 - d, spatial - d), line);
      along.push_back(taps_along(b, numbers, input[static_cast<size_t>(d) + 2], o));
    }
    row = b.iota({DType::I32, line}, 0);
  }

  // [N, P, C] of a tensor [N, C, spatial...]: what a place reads lies together.
  static Value channels_last(Builder& b, const Value& x) {
    return b.transpose(b.reshape(x, {x.dim(0), x.dim(1), x.type.numel() / x.dim(0) / x.dim(1)}), {0, 2, 1});
  }

  // Calls f(index into [N, P, C], taps chosen) for every product of taps.
  void each(Builder& b, const std::function<void(const Index&, const std::vector<const Tap*>&)>& f) const {
    std::vector<const Tap*> chosen(along.size());
    const std::function<void(size_t, const Value&)> step = [&](size_t d, const Value& at) {
      if (d == along.size()) return f({{row, at}, {0, 1}, 0}, chosen);
      for (const Tap& tap : along[d]) {
        chosen[d] = &tap;
        if (d == 0) {
          step(1, tap.at);
          continue;
        }
        const Value outside = b.constant(tap.at.type, -1);
        const Value valid = b.and_(b.compare(Cmp::GT, at, outside), b.compare(Cmp::GT, tap.at, outside));
        const Value next = b.add(b.mul(at, b.constant(at.type, input[d + 2])), tap.at);
        step(d + 1, b.select(valid, next, outside));
      }
    };
    step(0, {});
  }
};

Value product(Builder& b, const std::vector<const Tap*>& taps, size_t sloped) {
  Value w;
  for (size_t d = 0; d < taps.size(); ++d) {
    const Value& factor = d == sloped ? taps[d]->slope : taps[d]->weight;
    w = w ? b.mul(w, factor) : factor;
  }
  return w;
}
constexpr size_t kNoSlope = 99;

// [N, O, C]; what is outside of the image is 0.
Value read(Builder& b, const Value& x, const Index& index) {
  const Value v = read_at(b, x, index);
  const Value inside = b.compare(Cmp::GE, index.at[1], b.constant(index.at[1].type, 0));
  return b.select(b.broadcast_in_dim(inside, v.dims(), {0, 1}), v, b.like(v, 0));
}

Value per_channel(Builder& b, const Value& w, const Dims& dims) { return b.broadcast_in_dim(w, dims, {0, 1}); }

// (input, grid, interpolation_mode, padding_mode, align_corners)
Values grid_sampler(Call& c) {
  Builder& b = c.b;
  const DType t = opmath(c.result().dtype);
  if (c.result().numel() == 0) return {b.constant(c.result(), 0)};
  const Sampler s(c, c.type(0).dims, c.tensor(1, t), options_of(c, 2));
  const Value x = s.channels_last(b, c.tensor(0, t));
  Value sum;
  s.each(b, [&](const Index& index, const std::vector<const Tap*>& taps) {
    const Value v = read(b, x, index), part = b.mul(v, per_channel(b, product(b, taps, kNoSlope), v.dims()));
    sum = sum ? b.add(sum, part) : part;
  });
  return {b.reshape(b.transpose(sum, {0, 2, 1}), c.result_dims())};
}

// (grad, input, grid, interpolation_mode, padding_mode, align_corners, output_mask)
Values grid_sampler_backward(Call& c) {
  Builder& b = c.b;
  const DType t = opmath(c.type(1).dtype);
  const bool wants_input = c.ints(6)[0] != 0, wants_grid = c.ints(6)[1] != 0;
  const Dims& grid_dims = c.type(2).dims;
  if (c.type(0).numel() == 0)
    return {wants_input ? b.constant({t, c.type(1).dims}, 0) : Value(), b.constant({t, grid_dims}, 0)};
  const Sampler s(c, c.type(1).dims, c.tensor(2, t), options_of(c, 3));
  const Value x = s.channels_last(b, c.tensor(1, t)), grad = s.channels_last(b, c.tensor(0, t));
  Value into = b.constant(x.type, 0);
  Values slopes(s.along.size());
  s.each(b, [&](const Index& index, const std::vector<const Tap*>& taps) {
    if (wants_input)
      into =
          write_at(b, into, index, b.mul(grad, per_channel(b, product(b, taps, kNoSlope), grad.dims())), accumulate(b));
    if (!wants_grid) return;
    const Value along_channels = sum_over(b, b.mul(read(b, x, index), grad), {2});
    for (size_t d = 0; d < slopes.size(); ++d) {
      const Value part = b.mul(along_channels, product(b, taps, d));
      slopes[d] = slopes[d] ? b.add(slopes[d], part) : part;
    }
  });
  Value to_grid;
  if (wants_grid) {
    Dims column = s.row.dims();
    column.push_back(1);
    Values columns;
    for (size_t d = slopes.size(); d-- > 0;) columns.push_back(b.reshape(slopes[d], column));
    to_grid = b.reshape(b.concatenate(columns, 2), grid_dims);
  }
  return {wants_input ? b.reshape(b.transpose(into, {0, 2, 1}), c.type(1).dims) : Value(), to_grid};
}

}  // namespace

std::vector<Row> grid_sample_rows() {
  return {
      {"grid_sampler_2d", grid_sampler},
      {"grid_sampler_2d_backward", grid_sampler_backward},
      {"grid_sampler_3d", grid_sampler},
      {"grid_sampler_3d_backward", grid_sampler_backward},
  };
}

}  // namespace tpj::lower
