// Reads and writes at computed positions. How positions are checked and wrapped: indexing.h.
#include "lower/common.h"
#include "lower/indexing.h"
#include "lower/row.h"
#include "lower/scan.h"

namespace tpj::lower {

std::vector<Row> embedding_bag_rows();
std::vector<Row> segment_rows();

namespace {

bool is_mask(const Type& t) { return t.dtype == DType::Bool || t.dtype == DType::U8; }

// Sizes of at least one dimension: PyTorch lets 0-d tensors be indexed as if they had one element in one dimension.
Value at_least_1d(Builder& b, const Value& x) { return x.rank() == 0 ? b.reshape(x, {1}) : x; }

Value flat(Builder& b, const Value& x) { return b.reshape(x, {x.type.numel()}); }

// ---- along one dimension: gather, scatter

Values gather(Call& c) {
  const Value x = c.tensor(0);
  const int64_t dim = normalized_dim(c.integer(1), std::max<int64_t>(x.rank(), 1));
  const Value index = c.tensor(2);
  if (index.type.numel() == 0) return {c.b.constant({x.dtype(), index.dims()}, 0)};  // of any rank
  if (x.rank() == index.rank()) return {read_along(c.b, x, dim, positions(c.b, index, x.rank() ? x.dim(dim) : 1))};
  // One of them is 0-d, the other has one dimension.
  const Value row = at_least_1d(c.b, x);
  return {c.b.reshape(read_along(c.b, row, 0, positions(c.b, at_least_1d(c.b, index), row.dim(0))), index.dims())};
}

// Computes scatter in `type` on at least one dimension; `update` is read as wide as `index` is.
struct Scatter {
  Value self, at, update;
  int64_t dim;
};

// The update has the sizes of the index; PyTorch allows a larger one, of which the first corner counts.
Value first_corner(Builder& b, const Value& x, const Dims& dims) {
  const Value whole = at_least_1d(b, x);
  return b.slice(whole, Dims(dims.size(), 0), dims, Dims(dims.size(), 1));
}

Scatter scatter_call(Call& c, DType type, bool number) {
  Scatter s;
  s.self = at_least_1d(c.b, c.tensor(0, type));
  s.dim = normalized_dim(c.integer(1), s.self.rank());
  const Value index = at_least_1d(c.b, c.tensor(2));
  if (index.type.numel() == 0) {  // PyTorch allows one of any rank, and writes nothing
    const Dims none(static_cast<size_t>(s.self.rank()), 0);
    s.at = c.b.constant({index.dtype(), none}, 0);
    s.update = c.b.constant({type, none}, 0);
    return s;
  }
  s.update = number ? c.number(3, type, index.dims()) : first_corner(c.b, c.tensor(3, type), index.dims());
  s.at = positions(c.b, index, s.self.dim(s.dim));
  return s;
}

Values scatter_with(Call& c, const Scatter& s, const Builder::Body& body) {
  return {c.b.reshape(write_along(c.b, s.self, s.dim, s.at, s.update, body), c.result_dims())};
}

Values scatter_src(Call& c) { return scatter_with(c, scatter_call(c, c.result().dtype, false), replace()); }
Values scatter_value(Call& c) { return scatter_with(c, scatter_call(c, c.result().dtype, true), replace()); }

Values scatter_by_name(Call& c, bool number) {
  const Builder::Body body = c.string(4) == "multiply" ? multiply(c.b) : accumulate(c.b);
  return scatter_with(c, scatter_call(c, opmath(c.result().dtype), number), body);
}

Values scatter_reduce_src(Call& c) { return scatter_by_name(c, false); }
Values scatter_reduce_value(Call& c) { return scatter_by_name(c, true); }

Values scatter_add(Call& c) {
  return scatter_with(c, scatter_call(c, opmath(c.result().dtype), false), accumulate(c.b));
}

// ---- named reductions into places (scatter_reduce, index_reduce)

using WriteFn = std::function<Value(const Value& x, const Value& update, const Builder::Body&)>;

Value floor_divide(Builder& b, const Value& x, const Value& y) {
  if (is_float(x.dtype()) || is_complex(x.dtype())) return b.div(x, y);
  const Value q = b.div(x, y), zero = b.constant(x.type, 0);
  const Value inexact = b.compare(Cmp::NE, b.mul(q, y), x);
  // y is a count, so only x decides the sign.
  return b.sub(q, b.convert(b.and_(inexact, b.compare(Cmp::LT, x, zero)), x.dtype()));
}

Value identity_of(Builder& b, const Type& t, std::string_view reduce) {
  if (reduce == "amax") return b.min_value(t);
  if (reduce == "amin") return b.max_value(t);
  return b.constant(t, reduce == "prod" ? 1 : 0);
}

Builder::Body body_of(Builder& b, std::string_view reduce) {
  if (reduce == "amax") return greatest(b);
  if (reduce == "amin") return least(b);
  return reduce == "prod" ? multiply(b) : accumulate(b);
}

// Without include_self the places that are written start from the identity.
Value reduce_into(Builder& b, Value x, const Value& update, std::string_view reduce, bool include_self,
                  const WriteFn& write) {
  if (!include_self) {
    const Value no = b.constant({DType::Bool, x.dims()}, false), yes = b.constant({DType::Bool, update.dims()}, true);
    x = b.select(write(no, yes, replace()), identity_of(b, x.type, reduce), x);
  }
  const Value total = write(x, update, body_of(b, reduce));
  if (reduce != "mean") return total;
  const DType t = real_of(x.dtype());
  Value count =
      write(b.constant({t, x.dims()}, include_self ? 1 : 0), b.constant({t, update.dims()}, 1), accumulate(b));
  count = b.max(count, b.constant(count.type, 1));
  return floor_divide(b, total, cast(b, count, x.dtype()));
}

Values scatter_reduce_two(Call& c) {
  const Scatter s = scatter_call(c, opmath(c.result().dtype), false);
  const auto write = [&](const Value& x, const Value& update, const Builder::Body& body) {
    return write_along(c.b, x, s.dim, s.at, update, body);
  };
  const bool include_self = !c.has(5) || c.flag(5);
  return {c.b.reshape(reduce_into(c.b, s.self, s.update, c.string(4), include_self, write), c.result_dims())};
}

// ---- whole slices of one dimension: index_select, index_add, embedding

// Index argument `i` of a dimension: at most one-dimensional.
Index slices(Call& c, size_t i, const Value& x, int64_t dim) {
  const Value index = c.tensor(i);
  return {{positions(c.b, c.b.reshape(index, {index.type.numel()}), x.dim(dim))}, {dim}, dim};
}

Values index_select(Call& c) {
  const Value x = at_least_1d(c.b, c.tensor(0));
  const int64_t dim = normalized_dim(c.integer(1), x.rank());
  return {c.b.reshape(read_at(c.b, x, slices(c, 2, x, dim)), c.result_dims())};
}

Values index_copy(Call& c) {
  const Value x = at_least_1d(c.b, c.tensor(0));
  const int64_t dim = normalized_dim(c.integer(1), x.rank());
  const Index at = slices(c, 2, x, dim);
  const Value source = c.b.reshape(c.tensor(3, x.dtype()), indexed_dims(x.dims(), at));
  return {c.b.reshape(write_at(c.b, x, at, source, replace()), c.result_dims())};
}

Values index_add(Call& c) {
  const DType t = opmath(c.result().dtype);
  const Value x = at_least_1d(c.b, c.tensor(0, t));
  const int64_t dim = normalized_dim(c.integer(1), x.rank());
  const Index at = slices(c, 2, x, dim);
  Value source = c.b.reshape(c.tensor(3, t), indexed_dims(x.dims(), at));
  if (!c.absent_or(4, 1)) source = multiply(c.b)({source, c.number(4, t, source.dims())})[0];
  return {c.b.reshape(write_at(c.b, x, at, source, accumulate(c.b)), c.result_dims())};
}

Values index_reduce(Call& c) {
  const Value x = at_least_1d(c.b, c.tensor(0, opmath(c.result().dtype)));
  const int64_t dim = normalized_dim(c.integer(1), x.rank());
  const Index at = slices(c, 2, x, dim);
  const Value source = c.b.reshape(c.tensor(3, x.dtype()), indexed_dims(x.dims(), at));
  const auto write = [&](const Value& into, const Value& update, const Builder::Body& body) {
    return write_at(c.b, into, at, update, body);
  };
  const bool include_self = !c.has(5) || c.flag(5);
  return {c.b.reshape(reduce_into(c.b, x, source, c.string(4), include_self, write), c.result_dims())};
}

// One value for whole slices: a mask over one dimension is cheaper than writes.
Values index_fill(Call& c) {
  const Value x = at_least_1d(c.b, c.tensor(0));
  const int64_t dim = normalized_dim(c.integer(1), x.rank());
  Index at = slices(c, 2, x, dim);
  at.dims = {0}, at.place = 0;
  const Value no = c.b.constant({DType::Bool, {x.dim(dim)}}, false),
              yes = c.b.constant({DType::Bool, at.at[0].dims()}, true);
  const Value mask = c.b.broadcast_in_dim(write_at(c.b, no, at, yes, replace()), x.dims(), {dim});
  return {c.b.reshape(c.b.select(mask, input(c, 3, x.dtype(), x.dims()), x), c.result_dims())};
}

Values embedding(Call& c) {
  const Value weight = c.tensor(0);
  return {read_at(c.b, weight, {{positions(c.b, c.tensor(1), weight.dim(0))}, {0}, 0})};
}

Values embedding_dense_backward(Call& c) {
  const DType t = opmath(c.type(0).dtype);
  const int64_t rows = c.integer(2), padding = c.integer(3), columns = c.result_dims()[1];
  const Value indices = flat(c.b, c.tensor(1));
  const int64_t n = indices.type.numel();
  Index at{{positions(c.b, indices, rows)}, {0}, 0};
  if (padding >= 0) {
    // Writes at -1 are dropped.
    const Value p = at.at[0];
    at.at[0] = c.b.select(c.b.compare(Cmp::EQ, p, c.b.constant(p.type, padding)), c.b.constant(p.type, -1), p);
  }
  Value grad = c.b.reshape(c.tensor(0, t), {n, columns});
  if (c.flag(4)) {
    const Value counts = write_at(c.b, c.b.constant({t, {rows}}, 0), at, c.b.constant({t, {n}}, 1), accumulate(c.b));
    grad = c.b.div(grad, c.b.broadcast_in_dim(read_at(c.b, counts, at), grad.dims(), {0}));
  }
  return {write_at(c.b, c.b.constant({t, {rows, columns}}, 0), at, grad, accumulate(c.b))};
}

// ---- the flattened tensor: take, put

Values take(Call& c) {
  const Value x = flat(c.b, c.tensor(0)), index = c.tensor(1);
  return {read_at(c.b, x, {{positions(c.b, index, x.dim(0))}, {0}, 0})};
}

Values put(Call& c) {
  const bool add = c.flag(3);
  const DType t = add ? opmath(c.result().dtype) : c.result().dtype;
  const Value x = flat(c.b, c.tensor(0, t));
  const Index at{{positions(c.b, flat(c.b, c.tensor(1)), x.dim(0))}, {0}, 0};
  const Value updated = write_at(c.b, x, at, flat(c.b, c.tensor(2, t)), add ? accumulate(c.b) : replace());
  return {c.b.reshape(updated, c.result_dims())};
}

// ---- several index tensors: x[i, :, j]

// The indices of list argument `i` for a tensor of sizes `x`. Adjacent ones leave their place to the index's
// dimensions, else those come first.
Index advanced_index(Call& c, size_t i, const Dims& x) {
  Index index;
  std::vector<Dims> shapes;
  for (size_t k = 0; k < c.count(i); ++k) {
    if (!c.has(i, k)) continue;
    TPJ_ASSERT(!is_mask(c.type_at(i, k)), c.name(), ": a mask among other indices must become positions first");
    index.dims.push_back(static_cast<int64_t>(k));
    shapes.push_back(c.type_at(i, k).dims);
  }
  const Dims common = broadcast_sizes(shapes);
  for (int64_t d : index.dims) {
    const Value at = positions(c.b, c.tensor_at(i, static_cast<size_t>(d)), x[static_cast<size_t>(d)]);
    index.at.push_back(c.b.broadcast_to(at, common));
  }
  const bool adjacent = index.dims.back() - index.dims.front() + 1 == static_cast<int64_t>(index.dims.size());
  index.place = adjacent ? index.dims.front() : 0;
  return index;
}

bool has_index(Call& c, size_t i) {
  for (size_t k = 0; k < c.count(i); ++k)
    if (c.has(i, k)) return true;
  return false;
}

Values index(Call& c) {
  const Value x = c.tensor(0);
  if (!has_index(c, 1)) return {x};
  return {read_at(c.b, x, advanced_index(c, 1, x.dims()))};
}

// Dimension of the only index when that is a mask, else -1.
int64_t only_mask(Call& c, size_t i) {
  int64_t at = -1, count = 0;
  for (size_t k = 0; k < c.count(i); ++k)
    if (c.has(i, k)) at = static_cast<int64_t>(k), ++count;
  return count == 1 && is_mask(c.type_at(i, static_cast<size_t>(at))) ? at : -1;
}

// x[:, mask] = values: where the mask is set, one value for all, or the next row of values.
Value put_by_mask(Call& c, const Value& x, const Value& values, int64_t dim, bool add) {
  Builder& b = c.b;
  const Value mask = cast(b, c.tensor_at(1, static_cast<size_t>(dim)), DType::Bool);
  Dims map;
  for (int64_t i = 0; i < mask.rank(); ++i) map.push_back(dim + i);
  const Value where = b.broadcast_in_dim(mask, x.dims(), map);
  const int64_t rest = x.rank() - mask.rank();
  // In `values` the mask's dimensions are one, of size 1 or the count of true elements, unless broadcasting left it
  // out.
  const bool per_row = values.rank() >= rest - dim + 1 && values.dim(values.rank() - (rest - dim) - 1) != 1;
  Value full;
  if (per_row) {
    const int64_t at = values.rank() - (rest - dim) - 1;
    Value rows = read_at(b, values, {{order_of_true(b, mask)}, {at}, at});
    Dims split = rows.dims();
    split.erase(split.begin() + at);
    split.insert(split.begin() + at, mask.dims().begin(), mask.dims().end());
    full = b.broadcast_to(b.reshape(rows, split), x.dims());
  } else {
    Dims dims = values.dims();
    const int64_t at = values.rank() - (rest - dim) - 1;
    if (at >= 0) {
      dims.erase(dims.begin() + at);
      dims.insert(dims.begin() + at, static_cast<size_t>(mask.rank()), 1);
    }
    full = b.broadcast_to(b.reshape(values, dims), x.dims());
  }
  return b.select(where, add ? accumulate(b)({x, full})[0] : full, x);
}

Values index_put(Call& c) {
  const bool add = c.flag(3);
  const DType t = add ? opmath(c.type(0).dtype) : c.type(0).dtype;
  const Value x = c.tensor(0, t), values = c.tensor(2, t);
  TPJ_CHECK(c.type(2).dtype == c.type(0).dtype || (values.type.numel() == 1 && only_mask(c, 1) >= 0),
            "Index put requires the source and destination dtypes match");
  if (!has_index(c, 1)) {
    const Value update = c.b.broadcast_to(values, x.dims());
    return {add ? accumulate(c.b)({x, update})[0] : update};
  }
  if (const int64_t dim = only_mask(c, 1); dim >= 0) return {put_by_mask(c, x, values, dim, add)};
  const Index at = advanced_index(c, 1, x.dims());
  const Dims indexed = indexed_dims(x.dims(), at);
  const auto fits = [](int64_t value, int64_t place) { return value == 1 || value == place; };
  TPJ_CHECK(values.dims().size() <= indexed.size() &&
                std::equal(values.dims().rbegin(), values.dims().rend(), indexed.rbegin(), fits),
            "shape mismatch: value tensor of shape ", hlo::list(values.dims()),
            " cannot be broadcast to indexing result of shape ", hlo::list(indexed));
  const Value update = c.b.broadcast_to(values, indexed);
  return {write_at(c.b, x, at, update, add ? accumulate(c.b) : replace())};
}

// index.Tensor where a mask says which positions to read; elsewhere `fill`.
Values unsafe_masked_index(Call& c) {
  const Value x = c.tensor(0);
  const Value read = has_index(c, 2) ? read_at(c.b, x, advanced_index(c, 2, x.dims())) : x;
  const Value mask = c.b.broadcast_to(c.tensor(1), read.dims());
  return {c.b.select(mask, read, c.number(3, read.dtype(), read.dims()))};
}

// ---- masks

// self with the next element of source wherever mask is set.
Values masked_scatter(Call& c) {
  TPJ_CHECK(is_bool(c.type(1).dtype), "masked_scatter: a mask of ", info(c.type(1).dtype).name);
  const Dims& dims = c.result_dims();
  const Value self = c.operand(0, c.result().dtype, dims), mask = c.operand(1, DType::Bool, dims);
  const Value source = flat(c.b, c.tensor(2));
  const Value next = c.b.reshape(read_at(c.b, source, {{order_of_true(c.b, mask)}, {0}, 0}), dims);
  return {c.b.select(mask, next, self)};
}

// The gradients of the elements that masked_scatter took, first in a tensor of `sizes`, then zeros.
Values masked_scatter_backward(Call& c) {
  const Value grad = c.tensor(0), mask = c.operand(1, DType::Bool, grad.dims());
  const Value zeros = c.b.constant({grad.dtype(), {c.result().numel()}}, 0);
  const Value packed = write_at(c.b, zeros, {{order_of_true(c.b, mask)}, {0}, 0}, flat(c.b, grad), replace());
  return {c.b.reshape(packed, c.result_dims())};
}

// Whether each element equals any of the others, by comparing all pairs.
Values is_in(Call& c) {
  const DType t = common_type(c);
  const int64_t n = c.result().numel();
  const Value others = is_number(c, 1) ? c.b.reshape(c.scalar(1, t), {1}) : flat(c.b, c.tensor(1, t));
  const int64_t m = others.dim(0);
  const Value elements = c.b.reshape(input(c, 0, t, c.result_dims()), {n});
  const Value equal =
      c.b.compare(Cmp::EQ, c.b.broadcast_in_dim(elements, {n, m}, {0}), c.b.broadcast_in_dim(others, {n, m}, {1}));
  Value found = c.b.reduce1(equal, c.b.constant({DType::Bool, {}}, false), {1}, &Builder::or_);
  if (c.flag(3)) found = c.b.not_(found);
  return {c.b.reshape(found, c.result_dims())};
}

// Windows that unfold cut out, added up at their places.
Values unfold_backward(Call& c) {
  const Value grad = c.tensor(0, opmath(c.result().dtype));
  const Type whole{grad.dtype(), c.ints(1)};
  if (whole.rank() == 0) return {c.b.reshape(grad, {})};
  const int64_t dim = normalized_dim(c.integer(2), whole.rank()), size = c.integer(3), step = c.integer(4);
  const int64_t windows = grad.dim(dim), last = grad.rank() - 1;
  Dims order;
  for (int64_t d = 0; d < last; ++d) {
    order.push_back(d);
    if (d == dim) order.push_back(last);
  }
  Dims merged(grad.dims().begin(), grad.dims().end() - 1);
  merged[static_cast<size_t>(dim)] = windows * size;
  const Value rows = c.b.reshape(c.b.transpose(grad, order), merged);
  const Type grid{DType::I32, {windows, size}};
  const Value at = c.b.add(c.b.mul(c.b.iota(grid, 0), c.b.constant(grid, step)), c.b.iota(grid, 1));
  return {write_at(c.b, c.b.constant(whole, 0), {{flat(c.b, at)}, {dim}, dim}, rows, accumulate(c.b))};
}

}  // namespace

std::vector<Row> index_rows() {
  std::vector<Row> all{
      {"_index_put_impl_", index_put, {.may_overlap = true, .bounds = Bounds::kIndices}},
      {"_unsafe_index.Tensor", index},
      {"_unsafe_index_put", index_put},
      {"_unsafe_masked_index", unsafe_masked_index},
      {"embedding", embedding, {.bounds = Bounds::kRows}},
      {"embedding_dense_backward", embedding_dense_backward},
      {"gather", gather, {.bounds = Bounds::kAlongDim}},
      {"index.Tensor", index, {.bounds = Bounds::kIndices}},
      {"index_add", index_add, {.special = {{"alpha", {1}}}, .bounds = Bounds::kAlongDim}},
      {"index_copy", index_copy, {.bounds = Bounds::kAlongDim}},
      {"index_fill.int_Scalar", index_fill, {.may_overlap = true, .bounds = Bounds::kAlongDim}},
      {"index_fill.int_Tensor", index_fill, {.may_overlap = true, .bounds = Bounds::kAlongDim}},
      {"index_put", index_put, {.may_overlap = true, .bounds = Bounds::kIndices}},
      {"index_reduce", index_reduce, {.bounds = Bounds::kAlongDim}},
      {"index_select", index_select, {.bounds = Bounds::kAlongDim}},
      {"isin.Scalar_Tensor", is_in},
      {"isin.Tensor_Scalar", is_in},
      {"isin.Tensor_Tensor", is_in},
      {"masked_scatter", masked_scatter, {.bounds = Bounds::kMasked}},
      {"masked_scatter_backward", masked_scatter_backward},
      {"put", put, {.bounds = Bounds::kFlat}},
      {"scatter.reduce", scatter_reduce_src, {.bounds = Bounds::kAlongDim}},
      {"scatter.src", scatter_src, {.bounds = Bounds::kAlongDim}},
      {"scatter.value", scatter_value, {.bounds = Bounds::kAlongDim}},
      {"scatter.value_reduce", scatter_reduce_value, {.bounds = Bounds::kAlongDim}},
      {"scatter_add", scatter_add, {.bounds = Bounds::kAlongDim}},
      {"scatter_reduce.two", scatter_reduce_two, {.bounds = Bounds::kAlongDim}},
      {"take", take, {.bounds = Bounds::kFlat}},
      {"unfold_backward", unfold_backward},
  };
  for (auto part : {embedding_bag_rows, segment_rows}) {
    const std::vector<Row> more = part();
    all.insert(all.end(), more.begin(), more.end());
  }
  return all;
}

}  // namespace tpj::lower
