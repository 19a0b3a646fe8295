// Results whose size is data: the greatest size that there can be, what counts of it first, and how much that is (Cut,
// row.h).
#include "lower/common.h"
#include "lower/indexing.h"
#include "lower/row.h"
#include "lower/scan.h"
#include "lower/sort.h"

namespace tpj::lower {
namespace {

Index rows_at(const Value& at) { return {{at}, {0}, 0}; }

// ---- elements that a mask chooses

Value count_of(Builder& b, const Value& mask) {
  return b.reduce1(b.convert(mask, DType::I64), b.constant({DType::I64, {}}, 0), normalized_dims({}, mask.rank()),
                   &Builder::add);
}

Values masked_select(Call& c) {
  Builder& b = c.b;
  TPJ_CHECK(is_bool(c.type(1).dtype), "masked_select: a mask of ", info(c.type(1).dtype).name);
  const Dims dims = broadcast_sizes({c.type(0).dims, c.type(1).dims});
  const Value x = c.operand(0, c.type(0).dtype, dims), mask = c.operand(1, DType::Bool, dims);
  const Value row = b.reshape(x, {x.type.numel()});
  const Value packed = write_at(b, b.constant(row.type, 0), rows_at(order_of_true(b, mask)), row, replace());
  return {packed, count_of(b, mask)};
}

// [places, rank]: where the first `places` elements that are not 0 stand.
Value coordinates_of(Builder& b, const Value& mask, int64_t places) {
  const int64_t n = mask.type.numel(), rank = mask.rank();
  const Type all{DType::I64, {places, rank}};
  if (all.numel() == 0 || n == 0) return b.constant(all, 0);
  const Value zeros = b.constant({DType::I64, {places}}, 0);
  const Value at = write_at(b, zeros, rows_at(order_of_true(b, mask)), b.iota({DType::I64, {n}}, 0), replace());
  Dims strides(mask.dims().size(), 1);
  for (size_t d = strides.size(); d-- > 1;) strides[d - 1] = strides[d] * mask.dims()[d];
  const auto along = [&](const Dims& v) { return b.broadcast_in_dim(b.dense({DType::I64, {rank}}, v), all.dims, {1}); };
  return b.rem(b.div(b.broadcast_in_dim(at, all.dims, {0}), along(strides)), along(mask.dims()));
}

Value nonzero_mask(Call& c) {
  const Value x = c.tensor(0);
  return c.b.compare(Cmp::NE, x, c.b.constant(x.type, 0));
}

// One dimension after the other, as PyTorch holds them.
Values nonzero(Call& c) {
  const Value mask = nonzero_mask(c);
  return {c.b.transpose(coordinates_of(c.b, mask, mask.type.numel()), {1, 0}), count_of(c.b, mask)};
}

// (self, size, fill_value): nonzero cut or filled to `size` places.
Values nonzero_static(Call& c) {
  Builder& b = c.b;
  const Value mask = nonzero_mask(c), at = coordinates_of(b, mask, c.integer(1));
  const Value counts = b.compare(Cmp::LT, b.iota(at.type, 0), b.broadcast_to(count_of(b, mask), at.dims()));
  return {b.select(counts, at, b.constant(at.type, c.integer_or(2, -1)))};
}

// ---- distinct elements

// The rows (along dimension 0) that differ from the one before, for each row which of them it belongs to, and how many
// rows belong to each. `at`: where each row stood before sorting; empty where it still stands there.
Values distinct(Builder& b, const Value& rows, const Value& at, const Type& inverse, bool wants_inverse,
                bool wants_counts) {
  const int64_t n = rows.dim(0);
  const Type line{DType::I64, {n}}, nothing{DType::I64, {0}};
  if (n == 0)
    return {rows, b.constant(wants_inverse ? inverse : nothing, 0), b.constant(nothing, 0),
            b.constant({DType::I64, {}}, 0)};
  // NaN differs from itself.
  Value differs = b.compare(Cmp::NE, b.slice_dim(rows, 0, 1, n), b.slice_dim(rows, 0, 0, n - 1));
  if (rows.rank() > 1) differs = b.reduce1(differs, b.constant({DType::Bool, {}}, false), {1}, &Builder::or_);
  const Value first = b.concatenate({b.constant({DType::Bool, {1}}, true), differs}, 0);
  const Value order = order_of_true(b, first);
  const Value group = running(b, order, 0, &Builder::max, b.constant({order.dtype(), {}}, -1));
  const Value packed = write_at(b, b.constant(rows.type, 0), rows_at(order), rows, replace());
  Value places = b.constant(nothing, 0), counts = places;
  if (wants_inverse) {
    places = b.convert(group, DType::I64);
    if (at) places = write_at(b, b.constant(line, 0), rows_at(at), places, replace());
    places = b.reshape(places, inverse.dims);
  }
  if (wants_counts) counts = write_at(b, b.constant(line, 0), rows_at(group), b.constant(line, 1), accumulate(b));
  const Value total =
      b.add(b.convert(b.reshape(b.slice_dim(group, 0, n - 1, n), {}), DType::I64), b.constant({DType::I64, {}}, 1));
  return {packed, places, counts, total};
}

// _unique2: (self, sorted, return_inverse, return_counts)
Values unique2(Call& c) {
  const Value x = c.tensor(0);
  const Values order = sorted(c.b, c.b.reshape(x, {x.type.numel()}), 0, false);
  return distinct(c.b, order[0], order[1], {DType::I64, x.dims()}, c.flag(2), c.flag(3));
}

// _unique: the same without counts.
Values unique(Call& c) {
  const Values all = unique2(c);
  return {all[0], all[1], all[3]};
}

Values unique_consecutive_flat(Call& c) {
  const Value x = c.tensor(0);
  return distinct(c.b, c.b.reshape(x, {x.type.numel()}), {}, {DType::I64, x.dims()}, c.flag(1), c.flag(2));
}

// Dimensions with `dim` first; the inverse permutation brings it back.
Dims dim_first(int64_t rank, int64_t dim) {
  Dims order{dim};
  for (int64_t d = 0; d < rank; ++d)
    if (d != dim) order.push_back(d);
  return order;
}

Dims inverse_of(const Dims& order) {
  Dims back(order.size());
  for (size_t i = 0; i < order.size(); ++i) back[static_cast<size_t>(order[i])] = static_cast<int64_t>(i);
  return back;
}

// Numbers of the rows of [n, m] in lexicographic order: a stable sort by every column, the last one first.
Value lexicographic_order(Builder& b, const Value& rows) {
  const int64_t n = rows.dim(0), m = rows.dim(1);
  const Value columns = b.transpose(rows, {1, 0});
  const Type counter{DType::I32, {}};
  const Values end = b.while_(
      {b.constant(counter, m - 1), b.iota({DType::I32, {n}}, 0)},
      [&](const Values& v) { return Values{b.compare(Cmp::GE, v[0], b.constant(counter, 0))}; },
      [&](const Values& v) {
        const Value column = b.reshape(b.dynamic_slice(columns, {v[0], b.constant(counter, 0)}, {1, n}), {n});
        const Value keys = read_at(b, column, rows_at(v[1]));
        return Values{b.sub(v[0], b.constant(counter, 1)), sort_by(b, keys, v[1], 0, false)[1]};
      });
  return end[1];
}

Values unique_along(Call& c, int64_t dim, bool sort, bool wants_inverse, bool wants_counts) {
  Builder& b = c.b;
  const Value x = c.tensor(0);
  TPJ_CHECK(-x.rank() <= dim && dim < x.rank(), "unique: dimension ", dim, " of a tensor of rank ", x.rank());
  const Dims order = dim_first(x.rank(), normalized_dim(dim, x.rank()));
  const Value front = b.transpose(x, order);
  const int64_t n = front.dim(0);
  Dims row(front.dims().begin() + 1, front.dims().end());
  const int64_t m = hlo::numel(row);
  TPJ_CHECK(m > 0, "unique: rows without elements");
  Value rows = b.reshape(front, {n, m}), at;
  if (sort && n > 0) {
    at = lexicographic_order(b, rows);
    rows = read_at(b, rows, rows_at(at));
  }
  Values out = distinct(b, rows, at, {DType::I64, {n}}, wants_inverse, wants_counts);
  out[0] = b.transpose(b.reshape(out[0], front.dims()), inverse_of(order));
  return out;
}

// unique_dim: (self, dim, sorted, return_inverse, return_counts)
Values unique_dim(Call& c) { return unique_along(c, c.integer(1), true, c.flag(3), c.flag(4)); }
// unique_dim_consecutive: (self, dim, return_inverse, return_counts)
Values unique_dim_consecutive(Call& c) { return unique_along(c, c.integer(1), false, c.flag(2), c.flag(3)); }
// unique_consecutive: (self, return_inverse, return_counts, dim)
Values unique_consecutive(Call& c) {
  return c.has(3) ? unique_along(c, c.integer(3), false, c.flag(1), c.flag(2)) : unique_consecutive_flat(c);
}

}  // namespace

std::vector<Row> counted_rows() {
  return {
      {"_unique", unique, {.cuts = {{0}}}},
      {"_unique2", unique2, {.cuts = {{0}, {2}}}},
      {"masked_select", masked_select, {.cuts = {{0}}}},
      {"nonzero", nonzero, {.cuts = {{0, {}, true}}}},
      {"nonzero_static", nonzero_static},
      {"unique_consecutive", unique_consecutive, {.cuts = {{0, "dim"}, {2}}}},
      {"unique_dim", unique_dim, {.cuts = {{0, "dim"}, {2}}}},
      {"unique_dim_consecutive", unique_dim_consecutive, {.cuts = {{0, "dim"}, {2}}}},
  };
}

}  // namespace tpj::lower
