#include "lower/indexing.h"

#include <limits>

#include "lower/common.h"

namespace tpj::lower {
namespace {

bool contains(const Dims& dims, int64_t d) { return std::find(dims.begin(), dims.end(), d) != dims.end(); }

Dims all_but(int64_t rank, int64_t dim) {
  Dims dims;
  for (int64_t d = 0; d < rank; ++d)
    if (d != dim) dims.push_back(d);
  return dims;
}

// What a read outside of the tensor gives.
Value nothing(Builder& b, const Type& type) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  if (is_complex(type.dtype)) return b.complex_constant(type, nan, nan);
  return is_float(type.dtype) ? b.constant(type, nan) : b.constant(type, 0);
}

Value is_valid(Builder& b, const Value& at) { return b.compare(Cmp::GE, at, b.constant(at.type, 0)); }

// [..., k] of the k indices, and their common validity.
Value coordinates(Builder& b, const Values& at) {
  const bool wide = std::any_of(at.begin(), at.end(), [](const Value& v) { return v.dtype() == DType::I64; });
  Dims dims = at[0].dims();
  dims.push_back(1);
  Values columns;
  for (const Value& v : at) columns.push_back(b.reshape(b.convert(v, wide ? DType::I64 : DType::I32), dims));
  return b.concatenate(columns, at[0].rank());
}

Value all_valid(Builder& b, const Values& at) {
  Value valid = is_valid(b, at[0]);
  for (size_t i = 1; i < at.size(); ++i) valid = b.and_(valid, is_valid(b, at[i]));
  return valid;
}

// The result's dimensions that come from x, with the index's at `place`.
Dims window_dims(int64_t x_rank, const Index& index) {
  Dims dims;
  const int64_t rest = x_rank - static_cast<int64_t>(index.dims.size()), index_rank = index.at[0].rank();
  for (int64_t i = 0; i < rest; ++i) dims.push_back(i < index.place ? i : i + index_rank);
  return dims;
}

// What lies outside [0, at's size) in the dimensions other than `dim` is not touched.
Dims corner(const Value& x, int64_t dim, const Value& at) {
  Dims limit = at.dims();
  limit[static_cast<size_t>(dim)] = x.dim(dim);
  return limit;
}

}  // namespace

Value positions(Builder& b, const Value& indices, int64_t size) {
  Value i = indices;
  if (size_of(i.dtype()) < 4) i = b.convert(i, DType::I32);
  const Value n = b.constant(i.type, size), zero = b.constant(i.type, 0);
  i = b.select(b.compare(Cmp::LT, i, zero), b.add(i, n), i);
  const Value valid = b.and_(b.compare(Cmp::GE, i, zero), b.compare(Cmp::LT, i, n));
  i = b.select(valid, i, b.constant(i.type, -1));
  return size <= std::numeric_limits<int32_t>::max() ? b.convert(i, DType::I32) : b.convert(i, DType::I64);
}

Dims indexed_dims(const Dims& x, const Index& index) {
  Dims dims;
  for (int64_t d = 0; d < static_cast<int64_t>(x.size()); ++d)
    if (!contains(index.dims, d)) dims.push_back(x[static_cast<size_t>(d)]);
  dims.insert(dims.begin() + index.place, index.at[0].dims().begin(), index.at[0].dims().end());
  return dims;
}

Value read_at(Builder& b, const Value& x, const Index& index) {
  const Type result{x.dtype(), indexed_dims(x.dims(), index)};
  if (result.numel() == 0 || x.type.numel() == 0) return nothing(b, result);
  hlo::GatherDims g;
  g.offset = window_dims(x.rank(), index);
  g.collapsed = g.start_index_map = index.dims;
  std::sort(g.collapsed.begin(), g.collapsed.end());
  g.index_vector_dim = index.at[0].rank();
  g.slice_sizes = x.dims();
  for (int64_t d : index.dims) g.slice_sizes[static_cast<size_t>(d)] = 1;
  const Value read = b.gather(x, coordinates(b, index.at), g, result.dims);
  Dims map;
  for (int64_t i = 0; i < index.at[0].rank(); ++i) map.push_back(index.place + i);
  return b.select(b.broadcast_in_dim(all_valid(b, index.at), result.dims, map), read, nothing(b, result));
}

Value write_at(Builder& b, const Value& x, const Index& index, const Value& update, const Builder::Body& body) {
  if (update.type.numel() == 0 || x.type.numel() == 0) return x;
  hlo::ScatterDims s;
  s.update_window = window_dims(x.rank(), index);
  s.inserted_window = s.scatter_to_operand = index.dims;
  std::sort(s.inserted_window.begin(), s.inserted_window.end());
  s.index_vector_dim = index.at[0].rank();
  return b.scatter(x, coordinates(b, index.at), update, s, body);
}

Value read_along(Builder& b, const Value& x, int64_t dim, const Value& at) {
  const Type result{x.dtype(), at.dims()};
  if (x.type.numel() == 0 || result.numel() == 0) return nothing(b, result);
  const int64_t rank = x.rank();
  if (rank == 0) return b.select(is_valid(b, at), x, nothing(b, result));
  hlo::GatherDims g;
  g.collapsed = g.start_index_map = {dim};
  g.operand_batching = g.indices_batching = all_but(rank, dim);
  g.index_vector_dim = rank;
  g.slice_sizes = Dims(static_cast<size_t>(rank), 1);
  const Value part = b.slice(x, Dims(g.slice_sizes.size(), 0), corner(x, dim, at), g.slice_sizes);
  return b.select(is_valid(b, at), b.gather(part, at, g, at.dims()), nothing(b, result));
}

Value write_along(Builder& b, const Value& x, int64_t dim, const Value& at, const Value& update,
                  const Builder::Body& body) {
  if (x.type.numel() == 0 || at.type.numel() == 0) return x;
  const int64_t rank = x.rank();
  if (rank == 0) {
    const Value row = write_along(b, b.reshape(x, {1}), 0, b.reshape(at, {1}), b.reshape(update, {1}), body);
    return b.reshape(row, {});
  }
  hlo::ScatterDims s;
  s.inserted_window = s.scatter_to_operand = {dim};
  s.input_batching = s.indices_batching = all_but(rank, dim);
  s.index_vector_dim = rank;
  const Dims limit = corner(x, dim, at), zeros(limit.size(), 0), ones(limit.size(), 1);
  const Value part = b.scatter(b.slice(x, zeros, limit, ones), at, update, s, body);
  return b.dynamic_update_slice(x, part, Values(limit.size(), b.constant({DType::I32, {}}, 0)));
}

Builder::Body replace() {
  return [](const Values& a) { return Values{a[1]}; };
}

Builder::Body accumulate(Builder& b) {
  return [&b](const Values& a) { return Values{is_bool(a[0].dtype()) ? b.or_(a[0], a[1]) : b.add(a[0], a[1])}; };
}

Builder::Body multiply(Builder& b) {
  return [&b](const Values& a) { return Values{is_bool(a[0].dtype()) ? b.and_(a[0], a[1]) : b.mul(a[0], a[1])}; };
}

Builder::Body greatest(Builder& b) {
  return [&b](const Values& a) { return Values{b.max(a[0], a[1])}; };
}

Builder::Body least(Builder& b) {
  return [&b](const Values& a) { return Values{b.min(a[0], a[1])}; };
}

}  // namespace tpj::lower
