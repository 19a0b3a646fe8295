// Reductions of consecutive segments along one dimension, and their gradients.
#include "lower/common.h"
#include "lower/indexing.h"
#include "lower/row.h"
#include "lower/scan.h"

namespace tpj::lower {

namespace {

// The data as [batch, n, rest]; the segments of each batch.
struct Segments {
  int64_t batch, n, rest, count;
  Value of;    // [batch, n, rest], I32: the segment of each element, -1 for none
  Value size;  // [batch, count], I32

  // `lengths` [batch..., count] or, if empty, `offsets` [batch..., count + 1].
  Segments(Builder& b, const Dims& data, int64_t axis, const Value& lengths, const Value& offsets) {
    const auto at = static_cast<std::ptrdiff_t>(axis);
    batch = hlo::numel(Dims(data.begin(), data.begin() + at));
    n = data[static_cast<size_t>(axis)];
    rest = hlo::numel(Dims(data.begin() + at + 1, data.end()));
    const Value& given = lengths ? lengths : offsets;
    count = given.dim(given.rank() - 1) - (lengths ? 0 : 1);
    const Value list = b.convert(b.reshape(given, {batch, lengths ? count : count + 1}), DType::I32);
    const Dims table{batch, count};
    Value starts, ends;
    if (lengths) {
      size = list;
      ends = running(b, list, 1, &Builder::add, b.constant({DType::I32, {}}, 0));
      starts = b.sub(ends, list);
    } else {
      starts = b.slice_dim(list, 1, 0, count);
      ends = b.slice_dim(list, 1, 1, count + 1);
      size = b.sub(ends, starts);
    }
    // An element belongs to the one segment that has it between its ends.
    const Dims all{batch, n, count};
    const Value place = b.iota({DType::I32, all}, 1);
    const auto wide = [&](const Value& v) { return b.broadcast_in_dim(v, all, {0, 2}); };
    const Value inside = b.and_(b.compare(Cmp::GE, place, wide(starts)), b.compare(Cmp::LT, place, wide(ends)));
    const Value number = b.select(inside, b.iota({DType::I32, all}, 2), b.constant({DType::I32, all}, -1));
    const Value line = b.reduce1(number, b.constant({DType::I32, {}}, -1), {2}, &Builder::max);
    of = b.broadcast_in_dim(line, {batch, n, rest}, {0, 1});
  }

  Value spread(Builder& b, const Value& per_segment) const { return read_along(b, per_segment, 1, of); }
  Value gather(Builder& b, const Value& start, const Value& each, const Builder::Body& body) const {
    return write_along(b, start, 1, of, each, body);
  }
  Dims table() const { return {batch, count, rest}; }
  Value sizes(Builder& b, DType t) const { return b.convert(b.broadcast_in_dim(size, table(), {0, 1}), t); }
};

Value identity(Builder& b, const Type& t, std::string_view reduce) {
  if (reduce == "max") return b.min_value(t);
  if (reduce == "min") return b.max_value(t);
  return b.constant(t, reduce == "prod" ? 1 : 0);
}

Builder::Body body_of(Builder& b, std::string_view reduce) {
  if (reduce == "max") return greatest(b);
  if (reduce == "min") return least(b);
  return reduce == "prod" ? multiply(b) : accumulate(b);
}

Value optional(const Call& c, size_t i) { return c.has(i) ? c.tensor(i) : Value(); }

// (data, reduce, lengths, indices, offsets, axis, unsafe, initial)
Values segment_reduce(Call& c) {
  Builder& b = c.b;
  const DType t = opmath(c.result().dtype);
  const std::string_view reduce = c.string(1);
  if (c.result().numel() == 0) return {b.constant(c.result(), 0)};
  const int64_t axis = normalized_dim(c.integer_or(5, 0), c.type(0).rank());
  const Segments s(b, c.type(0).dims, axis, optional(c, 2), optional(c, 4));
  const Type table{t, s.table()};
  const Value start = c.has(7) ? c.number(7, t, table.dims) : identity(b, table, reduce);
  Value out = s.gather(b, start, b.reshape(c.tensor(0, t), {s.batch, s.n, s.rest}), body_of(b, reduce));
  if (reduce == "mean") {
    // The mean of nothing is NaN, or the initial value.
    const Value size = s.sizes(b, t), empty = b.compare(Cmp::EQ, size, b.like(size, 0));
    out = b.select(empty, c.has(7) ? start : nan_like(b, out), b.div(out, size));
  }
  return {b.reshape(out, c.result_dims())};
}

// The product of each element's segment without the element: of elements that are 0 or NaN not by division.
Value product_of_others(Builder& b, const Segments& s, const Value& x, const Value& output, const Value& start) {
  const Value zero = b.like(x, 0), one = b.like(x, 1), nan = is_nan(b, x), is_zero = b.compare(Cmp::EQ, x, zero);
  const Value special = b.or_(nan, is_zero);
  const Value none = b.constant({x.dtype(), s.table()}, 0);
  const auto how_many = [&](const Value& mask) {
    return s.spread(b, s.gather(b, none, b.select(mask, one, zero), accumulate(b)));
  };
  const Value rest = s.spread(b, s.gather(b, start, b.select(special, one, x), multiply(b)));
  const Value other_nans = b.sub(how_many(nan), b.select(nan, one, zero));
  const Value other_zeros = b.sub(how_many(is_zero), b.select(is_zero, one, zero));
  const Value others = b.select(b.compare(Cmp::GT, other_nans, zero), nan_like(b, x),
                                b.select(b.compare(Cmp::GT, other_zeros, zero), zero, rest));
  return b.select(special, others, b.div(s.spread(b, output), x));
}

// (grad, output, data, reduce, lengths, offsets, axis, initial)
Values segment_reduce_backward(Call& c) {
  Builder& b = c.b;
  const DType t = opmath(c.result().dtype);
  const std::string_view reduce = c.string(3);
  if (c.result().numel() == 0 || c.type(0).numel() == 0) return {b.constant(c.result(), 0)};
  const int64_t axis = normalized_dim(c.integer_or(6, 0), c.type(2).rank());
  const Segments s(b, c.type(2).dims, axis, optional(c, 4), optional(c, 5));
  const Value x = b.reshape(c.tensor(2, t), {s.batch, s.n, s.rest});
  Value grad = b.reshape(c.tensor(0, t), s.table());
  const Value output = b.reshape(c.tensor(1, t), s.table()), zero = b.like(x, 0);
  Value out;
  if (reduce == "max" || reduce == "min") {
    // Equal extremes share.
    const Value chosen = b.or_(is_nan(b, x), b.compare(Cmp::EQ, x, s.spread(b, output)));
    const Value ones = b.select(chosen, b.like(x, 1), zero);
    const Value count = s.gather(b, b.like(grad, 0), ones, accumulate(b));
    grad = b.div(grad, b.max(count, b.like(count, 1)));
    out = b.select(chosen, s.spread(b, grad), zero);
  } else if (reduce == "prod") {
    const Value start = c.has(7) ? c.number(7, t, s.table()) : b.like(grad, 1);
    out = b.mul(s.spread(b, grad), product_of_others(b, s, x, output, start));
  } else {
    if (reduce == "mean") grad = b.div(grad, s.sizes(b, t));
    out = s.spread(b, grad);
  }
  const Value outside = b.compare(Cmp::LT, s.of, b.constant(s.of.type, 0));
  return {b.reshape(b.select(outside, zero, out), c.result_dims())};
}

}  // namespace

std::vector<Row> segment_rows() {
  return {
      {"_segment_reduce_backward", segment_reduce_backward},
      {"segment_reduce", segment_reduce},
  };
}

}  // namespace tpj::lower
