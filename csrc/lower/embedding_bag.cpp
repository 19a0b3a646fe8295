// Rows of a table summed, averaged or maximised in bags. Bags follow one another in the list of indices; offsets say
// where each starts.
#include <limits>

#include "lower/common.h"
#include "lower/indexing.h"
#include "lower/row.h"
#include "lower/scan.h"

namespace tpj::lower {

namespace {

enum Mode { kSum, kMean, kMax };

Index rows_at(const Value& at) { return {{at}, {0}, 0}; }

// Without those that a condition excludes: -1 is read as nothing and written nowhere.
Value unless(Builder& b, const Value& excluded, const Value& at) {
  return b.select(excluded, b.constant(at.type, -1), at);
}

struct Bags {
  Value index;  // [n]: position in the table, -1 where it is the padding's
  Value bag;    // [n]: which bag, -1 for padding and for what stands in none
  Value size;   // [bags], I32: how many indices count
  int64_t count;

  Bags(Builder& b, const Value& indices, const Value& offsets, int64_t table, int64_t bags, int64_t padding)
      : count(bags) {
    const int64_t n = indices.dim(0);
    const Type line{DType::I32, {n}};
    // How many bags have started.
    const Value starts = write_at(b, b.constant(line, 0), rows_at(positions(b, offsets, n)),
                                  b.constant({DType::I32, offsets.dims()}, 1), accumulate(b));
    const Value started = running(b, starts, 0, &Builder::add, b.constant({DType::I32, {}}, 0));
    bag = positions(b, b.sub(started, b.constant(line, 1)), bags);
    index = positions(b, indices, table);
    if (padding >= 0) {
      const Value is_padding = b.compare(Cmp::EQ, index, b.constant(index.type, padding));
      index = unless(b, is_padding, index);
      bag = unless(b, is_padding, bag);
    }
    size = write_at(b, b.constant({DType::I32, {bags}}, 0), rows_at(bag), b.constant(line, 1), accumulate(b));
  }
};

Value per_row(Builder& b, const Value& v, const Value& like) {
  return b.broadcast_in_dim(b.convert(v, like.dtype()), like.dims(), {0});
}

// Of each bag and column the greatest element, and the table's row that it comes from: the first of equal ones.
Values maxima(Builder& b, const Bags& bags, const Value& rows) {
  const int64_t n = rows.dim(0), columns = rows.dim(1);
  const Value lowest = b.broadcast_to(b.min_value({rows.dtype(), {}}), {bags.count, columns});
  const Value best = write_at(b, lowest, rows_at(bags.bag), rows, greatest(b));
  const Value mine = read_at(b, best, rows_at(bags.bag));
  const Value is_best = b.or_(b.compare(Cmp::EQ, rows, mine), is_nan(b, rows));
  const Type grid{DType::I32, {n, columns}};
  const Value place = b.select(is_best, b.iota(grid, 0), b.constant(grid, n));
  const Value first = write_at(b, b.constant({DType::I32, best.dims()}, n), rows_at(bags.bag), place, least(b));
  const Value empty = b.compare(Cmp::EQ, per_row(b, bags.size, first), b.constant(first.type, 0));
  const Value from = read_at(b, b.convert(bags.index, DType::I64), rows_at(positions(b, first, n)));
  return {b.select(empty, b.constant(best.type, 0), best), b.select(empty, b.constant(from.type, 0), from)};
}

// (weight, indices, offsets, scale_grad_by_freq, mode, sparse, per_sample_weights, include_last_offset, padding_idx)
// -> (bags, bag of each index, size of each bag, rows of the maxima). The last three serve the backward.
Values embedding_bag(Call& c) {
  Builder& b = c.b;
  const DType t = opmath(c.type(0).dtype);
  const Value weight = c.tensor(0, t), indices = c.tensor(1), offsets = c.tensor(2);
  TPJ_CHECK(indices.rank() == 1 && offsets.rank() == 1, "embedding_bag: indices ", indices.type.str(), ", offsets ",
            offsets.type.str());
  const int64_t count = c.result_dims()[0], columns = weight.dim(1), mode = c.integer_or(4, kSum);
  const auto fit = [&](const Value& v, size_t k) { return v.dims() == c.result_dims(k) ? v : Value(); };
  if (indices.dim(0) == 0 || count == 0) return {b.constant(c.result(0), 0)};
  const Bags bags(b, indices, offsets, weight.dim(0), count, c.integer_or(8, -1));
  Value rows = read_at(b, weight, rows_at(bags.index));
  if (mode == kMax) {
    const Values m = maxima(b, bags, rows);
    return {m[0], fit(bags.bag, 1), fit(bags.size, 2), fit(m[1], 3)};
  }
  if (c.has(6)) rows = b.mul(rows, per_row(b, c.tensor(6, t), rows));
  Value sum = write_at(b, b.constant({t, {count, columns}}, 0), rows_at(bags.bag), rows, accumulate(b));
  if (mode == kMean) sum = b.div(sum, per_row(b, b.max(bags.size, b.constant(bags.size.type, 1)), sum));
  return {sum, fit(bags.bag, 1), fit(bags.size, 2)};
}

// _embedding_bag_backward: (grad, indices, offsets, offset2bag, bag_size, maximum_indices, num_weights,
// scale_grad_by_freq, mode, sparse, per_sample_weights, padding_idx). Bags come from the offsets again.
Values embedding_bag_backward(Call& c) {
  Builder& b = c.b;
  const DType t = opmath(c.type(0).dtype);
  if (c.flag(9)) fail(ErrorKind::kNotImplemented, "embedding_bag: a sparse gradient");
  const Value grad = c.tensor(0, t), indices = c.tensor(1);
  const int64_t table = c.integer(6), mode = c.integer(8);
  const Value zeros = b.constant({t, {table, grad.dim(1)}}, 0);
  if (indices.dim(0) == 0 || grad.type.numel() == 0) return {zeros};
  const Bags bags(b, indices, c.tensor(2), table, grad.dim(0), c.integer_or(11, -1));
  if (mode == kMax) {
    const Value from = positions(b, c.tensor(5), table);
    const Value empty = b.compare(Cmp::EQ, bags.size, b.constant(bags.size.type, 0));
    return {
        write_along(b, zeros, 0, unless(b, b.broadcast_in_dim(empty, from.dims(), {0}), from), grad, accumulate(b))};
  }
  Value each = read_at(b, mode == kMean ? b.div(grad, per_row(b, bags.size, grad)) : grad, rows_at(bags.bag));
  if (c.has(10)) each = b.mul(each, per_row(b, c.tensor(10, t), each));
  if (c.flag(7)) {
    const Value used = write_at(b, b.constant({DType::I32, {table}}, 0), rows_at(bags.index),
                                b.constant({DType::I32, indices.dims()}, 1), accumulate(b));
    each = b.div(each, per_row(b, read_at(b, used, rows_at(bags.index)), each));
  }
  const Value nowhere = b.compare(Cmp::LT, bags.bag, b.constant(bags.bag.type, 0));
  return {write_at(b, zeros, rows_at(unless(b, nowhere, bags.index)), each, accumulate(b))};
}

// (grad, weight, indices, offsets, offset2bag, mode, padding_idx): the dot product of each row and its bag's gradient.
Values per_sample_weights_backward(Call& c) {
  Builder& b = c.b;
  const DType t = opmath(c.result().dtype);
  const Value grad = c.tensor(0, t), weight = c.tensor(1, t), indices = c.tensor(2);
  if (indices.dim(0) == 0 || grad.type.numel() == 0) return {b.constant(c.result(), 0)};
  const Bags bags(b, indices, c.tensor(3), weight.dim(0), grad.dim(0), c.integer_or(6, -1));
  const Value rows = read_at(b, weight, rows_at(bags.index)), from = read_at(b, grad, rows_at(bags.bag));
  const Value dot = sum_over(b, b.mul(rows, from), {1});
  const Value nowhere = b.compare(Cmp::LT, bags.bag, b.constant(bags.bag.type, 0));
  return {b.select(nowhere, b.like(dot, 0), dot)};
}

// embedding_renorm_: (self, indices, max_norm, norm_type). The rows that are named and longer than max_norm are
// shortened to it, up to PyTorch's 1e-7.
Values embedding_renorm(Call& c) {
  Builder& b = c.b;
  const DType t = opmath(c.type(0).dtype);
  const Value x = c.tensor(0, t), indices = c.tensor(1);
  const Value at = positions(b, b.reshape(indices, {indices.type.numel()}), x.dim(0));
  const Value named = write_at(b, b.constant({DType::Bool, {x.dim(0)}}, false), rows_at(at),
                               b.constant({DType::Bool, at.dims()}, true), replace());
  const Value size = b.abs(x);
  Value norm;
  if (c.is(3, 1)) {
    norm = sum_over(b, size, {1});
  } else if (c.is(3, 2)) {
    norm = b.sqrt(sum_over(b, b.mul(x, x), {1}));
  } else if (c.is(3, std::numeric_limits<double>::infinity())) {
    norm = b.reduce1(size, b.scalar(t, 0), {1}, &Builder::max);
  } else {
    const Value sum = sum_over(b, b.pow(size, c.number(3, t, x.dims())), {1});
    norm = b.pow(sum, b.div(b.like(sum, 1), c.number(3, t, sum.dims())));
  }
  const Value most = c.number(2, t, norm.dims());
  const Value scale = b.div(most, b.add(norm, b.like(norm, 1e-7)));
  const Value longer = b.and_(named, b.compare(Cmp::GT, norm, most));
  return {b.select(b.broadcast_in_dim(longer, x.dims(), {0}), b.mul(x, per_row(b, scale, x)), x)};
}

}  // namespace

std::vector<Row> embedding_bag_rows() {
  const double inf = std::numeric_limits<double>::infinity();
  return {
      {"_embedding_bag", embedding_bag, {.bounds = Bounds::kRows}},
      {"_embedding_bag_backward", embedding_bag_backward},
      {"_embedding_bag_forward_only", embedding_bag, {.bounds = Bounds::kRows}},
      {"_embedding_bag_per_sample_weights_backward", per_sample_weights_backward},
      {"embedding_renorm_", embedding_renorm, {.special = {{"norm_type", {1, 2, inf}}}, .bounds = Bounds::kRows}},
  };
}

}  // namespace tpj::lower
