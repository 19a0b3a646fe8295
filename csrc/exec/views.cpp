#include "exec/views.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include <c10/util/SmallVector.h>

namespace tpj::exec {
namespace {

// The view's dimensions that move through the base, by stride, smallest first.
std::vector<int> moving_dims(const View& v) {
  std::vector<int> dims;
  for (size_t i = 0; i < v.sizes.size(); ++i)
    if (v.sizes[i] != 1 && v.strides[i] != 0) dims.push_back(static_cast<int>(i));
  std::stable_sort(dims.begin(), dims.end(),
                   [&](int a, int b) { return v.strides[static_cast<size_t>(a)] < v.strides[static_cast<size_t>(b)]; });
  return dims;
}

// Row-major strides of `dims` with the total size: the places where the base may be cut, ascending.
std::vector<int64_t> cuts(const Dims& dims) {
  std::vector<int64_t> s;
  int64_t stride = 1;
  for (size_t i = dims.size(); i-- > 0;) {
    stride *= dims[i];
    if (stride > (s.empty() ? 1 : s.back())) s.push_back(stride);
  }
  return s;
}

// The base padded with zeros to `numel` elements and reshaped.
Value fit(Builder& b, const Value& base, const Dims& dims) {
  const int64_t have = base.type.numel(), want = hlo::numel(dims);
  if (have >= want) {
    const Value flat = have == want ? base : b.slice(b.reshape(base, {have}), {0}, {want}, {1});
    return b.reshape(flat, dims);
  }
  const Value flat = b.reshape(base, {have});
  return b.reshape(b.pad(flat, b.constant({base.dtype(), {}}, 0), {0}, {want - have}, {0}), dims);
}

Dims extents(const std::vector<Axis>& frame) {
  Dims d;
  for (const Axis& a : frame) d.push_back(a.extent);
  return d;
}

// Flat positions of the view's elements, in the view's sizes. `more`: what is not in its offset, or empty.
Value positions(Builder& b, const View& v, const Value& more) {
  const Type t{DType::I64, v.sizes};
  Value at = b.constant(t, v.offset);
  if (more) at = b.add(at, b.broadcast_to(more, v.sizes));
  for (size_t i = 0; i < v.sizes.size(); ++i)
    if (v.sizes[i] != 1 && v.strides[i] != 0)
      at = b.add(at, b.mul(b.iota(t, static_cast<int64_t>(i)), b.constant(t, v.strides[i])));
  return at;
}

// Elements a flat base must have for the view to stay inside.
int64_t reach(const View& v) {
  int64_t last = v.offset;
  for (size_t i = 0; i < v.sizes.size(); ++i) last += (v.sizes[i] - 1) * v.strides[i];
  return last + 1;
}

// The order of the frame's moving axes in the view: axes outermost first -> view dimensions.
Dims view_dims(const std::vector<Axis>& frame) {
  Dims d;
  for (const Axis& a : frame)
    if (a.view_dim >= 0) d.push_back(a.view_dim);
  return d;
}

// Positions of `dims` in ascending order: transposing by it sorts them.
Dims sorting(const Dims& dims) {
  Dims order(dims.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(),
            [&](int64_t a, int64_t c) { return dims[static_cast<size_t>(a)] < dims[static_cast<size_t>(c)]; });
  return order;
}

Dims inverse(const Dims& permutation) {
  Dims inv(permutation.size());
  for (size_t i = 0; i < permutation.size(); ++i) inv[static_cast<size_t>(permutation[i])] = static_cast<int64_t>(i);
  return inv;
}

}  // namespace

std::optional<std::vector<Axis>> find_frame(const View& v, const Dims& base) {
  const std::vector<int> moving = moving_dims(v);
  const std::vector<int64_t> bounds = cuts(base);
  const int64_t total = hlo::numel(base);
  std::vector<Axis> axes;  // innermost first
  int64_t g = 1;           // elements of one step of the next axis
  const auto stand_still = [&](int64_t limit, int64_t divides) {
    for (int64_t s : bounds)
      if (s > g && s <= limit && s % g == 0 && divides % s == 0) {
        const int64_t extent = s / g;
        axes.push_back({extent, v.offset / g % extent, 1, 1, -1});
        g = s;
      }
  };
  for (size_t k = 0; k < moving.size(); ++k) {
    const auto dim = static_cast<size_t>(moving[k]);
    const int64_t stride = v.strides[dim], n = v.sizes[dim];
    if (stride % g != 0) return std::nullopt;
    stand_still(stride, stride);
    const int64_t step = stride / g;
    const bool last = k + 1 == moving.size();
    const int64_t next = last ? 0 : v.strides[static_cast<size_t>(moving[k + 1])];
    int64_t chosen = 0;
    const auto fits = [&](int64_t s) { return s > g && s % g == 0 && v.offset / g % (s / g) + (n - 1) * step < s / g; };
    for (int64_t s : bounds)
      if ((last || (next % s == 0 && s <= next)) && fits(s)) {
        chosen = s;
        break;
      }
    if (chosen == 0 && !last && fits(next)) chosen = next;
    if (chosen == 0 && last) chosen = g * std::max((total + g - 1) / g, v.offset / g + (n - 1) * step + 1);
    if (chosen == 0) return std::nullopt;
    const int64_t extent = chosen / g;
    axes.push_back({extent, v.offset / g % extent, n, step, moving[k]});
    g = chosen;
  }
  stand_still(total, total);
  if (g < total || v.offset / g > 0) {
    const int64_t extent = std::max((total + g - 1) / g, v.offset / g + 1);
    axes.push_back({extent, v.offset / g, 1, 1, -1});
  }
  std::reverse(axes.begin(), axes.end());
  return axes;
}

bool covers(const View& v, int64_t numel) {
  if (v.offset != 0 || hlo::numel(v.sizes) != numel) return false;
  int64_t expected = 1;
  for (int dim : moving_dims(v)) {
    if (v.strides[static_cast<size_t>(dim)] != expected) return false;
    expected *= v.sizes[static_cast<size_t>(dim)];
  }
  return expected == numel;
}

namespace {

bool is_block(c10::IntArrayRef sizes, c10::IntArrayRef strides, int64_t offset, int64_t numel) {
  const int64_t block = c10::multiply_integers(sizes);
  if (block == 0 || block >= numel || numel % block != 0 || offset % block != 0 || offset + block > numel) return false;
  int64_t expected = 1;
  for (size_t i = sizes.size(); i-- > 0;) {
    if (sizes[i] == 1) continue;
    if (strides[i] != expected) return false;
    expected *= sizes[i];
  }
  return true;
}

// The dimensions of the base, cut where a step of the view is a part of one.
c10::SmallVector<int64_t, 8> cut_by(c10::IntArrayRef strides, c10::IntArrayRef base) {
  c10::SmallVector<int64_t, 8> dims;  // innermost first
  int64_t stride = 1;
  for (size_t j = base.size(); j-- > 0;) {
    const int64_t end = stride * base[j];
    while (stride < end) {
      int64_t next = end;
      for (int64_t s : strides)
        if (s > stride && s < next && s % stride == 0 && end % s == 0) next = s;
      dims.push_back(next / stride);
      stride = next;
    }
  }
  std::reverse(dims.begin(), dims.end());
  return dims;
}

// What is one of few parts, as of chunk(3), has a program with a fixed offset: it is the better one.
constexpr int64_t kMany = 8;

// How many places of the base's dimension with this stride and extent the view takes, from the first to the last, if
// where it starts there is to be an input: it stands still, or is a small window. Else 0.
int64_t moving_span(c10::IntArrayRef sizes, c10::IntArrayRef strides, int64_t offset, int64_t stride, int64_t extent) {
  if (extent <= 1) return 0;
  int64_t below = offset % stride;  // how far the smaller steps go
  int64_t span = 1;
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] == 1 || strides[i] == 0) continue;
    if (strides[i] < stride) {
      below += (sizes[i] - 1) * strides[i];
    } else if (strides[i] % (stride * extent) != 0) {
      if (span > 1 || strides[i] % stride != 0) return 0;
      span += (sizes[i] - 1) * (strides[i] / stride);
    }
  }
  const bool inside = below < stride && offset / stride % extent + span <= extent;
  return inside && (span == 1 || extent / span >= kMany) ? span : 0;
}

}  // namespace

Offset split_offset(c10::IntArrayRef sizes, c10::IntArrayRef strides, int64_t offset, c10::IntArrayRef base,
                    int64_t numel) {
  if (is_block(sizes, strides, offset, numel)) return {0, c10::multiply_integers(sizes), true};
  const auto dims = cut_by(strides, base);
  int64_t moved = 0, stride = 1;
  bool any = false;
  for (size_t j = dims.size(); j-- > 0; stride *= dims[j]) {
    if (moving_span(sizes, strides, offset, stride, dims[j]) == 0) continue;
    any = true;
    moved += offset / stride % dims[j] * stride;
  }
  return any ? Offset{offset - moved, 1} : Offset{offset};
}

namespace {

// A base in the view's frame. Where the view moves in it, `slab` is the frame cut to the places that the view takes,
// and `axes` are those of the slab.
struct Framed {
  std::vector<Axis> axes;
  Value whole, slab;
  hlo::Values starts;  // of the slab; empty when it is the whole
};

// Is each dimension of the base that the view moves in an axis of its own, or part of one that the view stands still
// in?
bool keeps_apart(const std::vector<Axis>& axes, const View& v, const Dims& dims) {
  int64_t stride = hlo::numel(extents(axes));
  if (stride != hlo::numel(dims)) return false;
  for (const Axis& a : axes) {
    const int64_t end = stride;
    stride /= a.extent;
    int64_t at = 1;
    for (size_t j = dims.size(); a.view_dim >= 0 && j-- > 0; at *= dims[j])
      if (at >= stride && at < end && (at > stride || dims[j] != a.extent) &&
          moving_span(v.sizes, v.strides, v.offset, at, dims[j]) != 0)
        return false;
  }
  return true;
}

std::optional<Framed> framed(Builder& b, const Value& base, const View& v, const Value& number) {
  const auto finer = cut_by(v.strides, base.dims());
  const Dims dims = number ? Dims(finer.begin(), finer.end()) : base.dims();
  auto axes = find_frame(v, dims);
  if (!axes || (number && !keeps_apart(*axes, v, dims))) return std::nullopt;
  Framed f{std::move(*axes), {}, {}, {}};
  f.whole = f.slab = fit(b, base, extents(f.axes));
  if (!number) return f;
  const Type scalar{DType::I64, {}};
  int64_t stride = base.type.numel();
  for (Axis& a : f.axes) {
    stride /= a.extent;
    const int64_t span = a.view_dim < 0 ? 1 : moving_span(v.sizes, v.strides, v.offset, stride, a.extent);
    if (span == 0) {
      f.starts.push_back(b.constant(scalar, 0));
      continue;
    }
    const Value steps = b.rem(b.div(number, b.constant(scalar, stride)), b.constant(scalar, a.extent));
    f.starts.push_back(b.add(steps, b.constant(scalar, a.start)));
    a.extent = span;
    a.start = 0;
  }
  f.slab = b.dynamic_slice(f.whole, f.starts, extents(f.axes));
  return f;
}

Value rows_of(Builder& b, const Value& base, int64_t block) {
  return b.reshape(base, {base.type.numel() / block, block});
}

}  // namespace

Value read_view(Builder& b, const Value& typed_base, View v, const Offset& offset, const Value& number) {
  const int64_t n = hlo::numel(v.sizes);
  if (n == 0) return b.constant(v.type(), 0);
  const Value base = view_as(b, typed_base, v.dtype);
  if (offset.block) {
    const Value first = b.constant({DType::I64, {}}, 0);
    return b.reshape(b.dynamic_slice(rows_of(b, base, n), {number, first}, {1, n}), v.sizes);
  }
  if (number) v.offset = offset.fixed;
  const auto frame = framed(b, base, v, number);
  if (!frame) {
    const Value flat = fit(b, base, {std::max(base.type.numel(), reach(v))});
    hlo::GatherDims dims;
    dims.collapsed = {0};
    dims.start_index_map = {0};
    dims.index_vector_dim = static_cast<int64_t>(v.sizes.size());
    dims.slice_sizes = {1};
    return b.gather(flat, positions(b, v, number), dims, v.sizes);
  }
  Dims start, limit, step, taken;
  for (const Axis& a : frame->axes) {
    start.push_back(a.start);
    limit.push_back(a.start + (a.count - 1) * a.step + 1);
    step.push_back(a.step);
    if (a.view_dim >= 0) taken.push_back(a.count);
  }
  const Value x = b.reshape(b.slice(frame->slab, start, limit, step), taken);
  const Dims at = view_dims(frame->axes);
  if (hlo::numel(taken) != n) return b.broadcast_in_dim(x, v.sizes, at);  // stride 0 repeats
  return b.reshape(b.transpose(x, sorting(at)), v.sizes);
}

Value write_view(Builder& b, const Value& typed_base, View v, const Value& value, const Offset& offset,
                 const Value& number) {
  const int64_t n = hlo::numel(v.sizes);
  if (n == 0) return typed_base;
  const Value base = view_as(b, typed_base, v.dtype);
  const int64_t total = base.type.numel();
  if (offset.block) {
    const Value first = b.constant({DType::I64, {}}, 0);
    return b.reshape(b.dynamic_update_slice(rows_of(b, base, n), b.reshape(value, {1, n}), {number, first}),
                     base.dims());
  }
  if (number) v.offset = offset.fixed;
  const auto frame = framed(b, base, v, number);
  if (!frame) {
    const Value flat = fit(b, base, {std::max(total, reach(v))});
    hlo::ScatterDims dims;
    dims.inserted_window = {0};
    dims.scatter_to_operand = {0};
    dims.index_vector_dim = static_cast<int64_t>(v.sizes.size());
    const Value out =
        b.scatter(flat, positions(b, v, number), value, dims, [](const hlo::Values& a) { return hlo::Values{a[1]}; });
    return out.type.numel() == total ? b.reshape(out, base.dims()) : out;
  }
  // The value in the frame's order, with 1 where the view stands still.
  Dims moving, counts, low, high, interior;
  bool strided = false;
  for (const Axis& a : frame->axes) {
    if (a.view_dim >= 0) moving.push_back(a.count);
    counts.push_back(a.count);
    low.push_back(a.start);
    high.push_back(a.extent - a.start - (a.count - 1) * a.step - 1);
    interior.push_back(a.count > 1 ? a.step - 1 : 0);
    strided |= interior.back() > 0;
  }
  const Dims order = sorting(view_dims(frame->axes));  // frame order -> view order
  Dims in_view_order;
  for (int64_t i : order) in_view_order.push_back(moving[static_cast<size_t>(i)]);
  const Value update = b.reshape(b.transpose(b.reshape(value, in_view_order), inverse(order)), counts);
  const Value x = frame->slab;
  Value out = update;
  if (strided) {
    const Value padded = b.pad(update, b.constant({v.dtype, {}}, 0), low, high, interior);
    const Value taken =
        b.pad(b.constant({DType::Bool, counts}, true), b.constant({DType::Bool, {}}, false), low, high, interior);
    out = b.select(taken, padded, x);
  } else if (counts != x.dims()) {
    hlo::Values start;
    for (int64_t s : low) start.push_back(b.constant({DType::I32, {}}, s));
    out = b.dynamic_update_slice(x, update, start);
  }
  if (number) out = b.dynamic_update_slice(frame->whole, out, frame->starts);
  return out.type.numel() == total ? b.reshape(out, base.dims()) : b.reshape(out, {out.type.numel()});
}

Value to_storage_order(Builder& b, const View& v, const Value& value) {
  // Sizes of 1 have arbitrary strides: they keep their place, the others are sorted around them.
  Dims big;
  for (size_t i = 0; i < v.sizes.size(); ++i)
    if (v.sizes[i] != 1) big.push_back(static_cast<int64_t>(i));
  std::stable_sort(big.begin(), big.end(), [&](int64_t x, int64_t y) {
    return v.strides[static_cast<size_t>(x)] > v.strides[static_cast<size_t>(y)];
  });
  Dims order(v.sizes.size());
  size_t next = 0;
  for (size_t i = 0; i < v.sizes.size(); ++i) order[i] = v.sizes[i] == 1 ? static_cast<int64_t>(i) : big[next++];
  return b.transpose(value, order);
}

Value view_as(Builder& b, const Value& base, DType dtype) {
  const DType from = base.dtype();
  if (from == dtype) return base;
  // bool is not a bit pattern in StableHLO: it goes through uint8.
  if (is_bool(from)) return view_as(b, b.convert(base, DType::U8), dtype);
  if (is_bool(dtype)) {
    const Value bytes = view_as(b, base, DType::U8);
    return b.compare(hlo::Cmp::NE, bytes, b.constant(bytes.type, 0));
  }
  Dims dims = base.dims();
  if (dims.empty()) dims = {1};
  const int64_t last = dims.back();
  if (is_complex(from)) {
    Dims pair = dims;
    pair.push_back(1);
    const Value x = b.reshape(base, dims);
    const Value parts =
        b.concatenate({b.reshape(b.real(x), pair), b.reshape(b.imag(x), pair)}, static_cast<int64_t>(dims.size()));
    dims.back() = 2 * last;
    return view_as(b, b.reshape(parts, dims), dtype);
  }
  if (is_complex(dtype)) {
    const Value parts = view_as(b, base, real_of(dtype));
    Dims pair = parts.dims();
    TPJ_ASSERT(parts.type.numel() % 2 == 0, "complex view of an odd number of elements");
    if (pair.back() % 2 != 0) pair = {parts.type.numel()};
    pair.back() /= 2;
    pair.push_back(2);
    const Value x = b.reshape(parts, pair);
    const auto split = static_cast<int64_t>(pair.size()) - 1;
    const Dims out(pair.begin(), pair.end() - 1);
    return b.complex(b.reshape(b.slice_dim(x, split, 0, 1), out), b.reshape(b.slice_dim(x, split, 1, 2), out));
  }
  const auto have = static_cast<int64_t>(size_of(from)), want = static_cast<int64_t>(size_of(dtype));
  const Value x = b.reshape(base, dims);
  if (have == want) return b.bitcast(x, {dtype, dims});
  if (have > want) {
    Dims split = dims;
    split.push_back(have / want);
    dims.back() = last * (have / want);
    return b.reshape(b.bitcast(x, {dtype, split}), dims);
  }
  const int64_t ratio = want / have;
  if (last % ratio != 0) dims = {(hlo::numel(dims) + ratio - 1) / ratio * ratio};
  Dims split = dims;
  split.back() /= ratio;
  const Dims out = split;
  split.push_back(ratio);
  return b.bitcast(fit(b, x, split), {dtype, out});
}

}  // namespace tpj::exec
