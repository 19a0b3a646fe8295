// Sorts, order statistics and running reductions. NaN is the greatest number everywhere, as in PyTorch.
#include <limits>

#include "lower/common.h"
#include "lower/indexing.h"
#include "lower/row.h"
#include "lower/scan.h"
#include "lower/sort.h"

namespace tpj::lower {
namespace {

Value at_least_1d(Builder& b, const Value& x) { return x.rank() == 0 ? b.reshape(x, {1}) : x; }

// 32-bit numbers along dim wherever they suffice.
Value numbers_along(Builder& b, const Dims& dims, int64_t dim) {
  const bool narrow = dims[static_cast<size_t>(dim)] <= std::numeric_limits<int32_t>::max();
  return b.iota({narrow ? DType::I32 : DType::I64, dims}, dim);
}

// ---- sorting

// x < y with NaN greatest, all NaN equal and -0 equal to 0: a strict weak order by IEEE comparisons alone.
Value before(Builder& b, const Value& x, const Value& y) {
  const Value less = b.compare(Cmp::LT, x, y);
  return is_float(x.dtype()) ? b.or_(less, b.and_(is_nan(b, y), b.not_(is_nan(b, x)))) : less;
}

// Integers in the order of `before`. Floats' bits are in their order where they are positive, and in the opposite one
// where they are negative.
Value ordered_bits(Builder& b, const Value& x) {
  const size_t size = size_of(x.dtype());
  const DType dtype = size == 8 ? DType::I64 : size == 4 ? DType::I32 : DType::I16;
  const Value zero = b.like(x, 0), nan = b.like(x, std::numeric_limits<double>::quiet_NaN());
  const Value one = b.select(is_nan(b, x), nan, b.select(b.compare(Cmp::EQ, x, zero), zero, x));
  const Value bits = b.bitcast(one, {dtype, x.dims()});
  const int64_t most = size == 8   ? std::numeric_limits<int64_t>::max()
                       : size == 4 ? std::numeric_limits<int32_t>::max()
                                   : std::numeric_limits<int16_t>::max();
  const Value negative = b.compare(Cmp::LT, bits, b.constant(bits.type, 0));
  return b.select(negative, b.xor_(bits, b.constant(bits.type, most)), bits);
}

}  // namespace

Values sort_by(Builder& b, const Value& keys, const Value& others, int64_t dim, bool descending) {
  if (keys.dim(dim) <= 1) return {keys, others};
  if (!b.limits().sort_functions && is_float(keys.dtype())) {
    const Values out = b.sort({ordered_bits(b, keys), keys, others}, dim, true, [&](const Values& a) {
      return Values{b.compare(descending ? Cmp::GT : Cmp::LT, a[0], a[1])};
    });
    return {out[1], out[2]};
  }
  const bool bits = is_bool(keys.dtype());
  Values out = b.sort({bits ? b.convert(keys, DType::U8) : keys, others}, dim, true, [&](const Values& a) {
    return Values{descending ? before(b, a[1], a[0]) : before(b, a[0], a[1])};
  });
  if (bits) out[0] = b.convert(out[0], DType::Bool);
  return out;
}

Values sorted(Builder& b, const Value& x, int64_t dim, bool descending) {
  return sort_by(b, x, numbers_along(b, x.dims(), dim), dim, descending);
}

namespace {

// sort.stable: (self, stable, dim, descending)
Values sort_stable(Call& c) {
  const Value x = at_least_1d(c.b, c.tensor(0));
  const Values out = sorted(c.b, x, normalized_dim(c.integer_or(2, -1), x.rank()), c.flag(3));
  return {c.b.reshape(out[0], c.result_dims()), c.b.reshape(out[1], c.result_dims())};
}

// sort: (self, dim, descending)
Values sort(Call& c) {
  const Value x = at_least_1d(c.b, c.tensor(0));
  const Values out = sorted(c.b, x, normalized_dim(c.integer_or(1, -1), x.rank()), c.flag(2));
  return {c.b.reshape(out[0], c.result_dims()), c.b.reshape(out[1], c.result_dims())};
}

Values topk(Call& c) {
  const Value x = at_least_1d(c.b, c.tensor(0));
  const int64_t k = c.integer(1), dim = normalized_dim(c.integer_or(2, -1), x.rank());
  const bool largest = !c.has(3) || c.flag(3), last = dim == x.rank() - 1;
  if (largest && last && 0 < k && k < x.dim(dim) && x.dtype() == DType::F32) {
    // One NaN, which is positive, comes before all numbers in this order too.
    const Values top = c.b.top_k(c.b.select(is_nan(c.b, x), nan_like(c.b, x), x), k);
    return {c.b.reshape(top[0], c.result_dims()), c.b.convert(c.b.reshape(top[1], c.result_dims()), DType::I64)};
  }
  const Values all = sorted(c.b, x, dim, largest);
  Values out;
  for (const Value& v : all) out.push_back(c.b.reshape(c.b.slice_dim(v, dim, 0, k), c.result_dims()));
  return out;
}

// ---- order statistics: the element at one place of the sorted values

Values at_place(Call& c, const Values& all, int64_t dim, int64_t place) {
  Values out;
  for (const Value& v : all) out.push_back(c.b.reshape(c.b.slice_dim(v, dim, place, place + 1), c.result_dims()));
  return out;
}

Values kthvalue(Call& c) {
  const Value x = at_least_1d(c.b, c.tensor(0));
  const int64_t dim = normalized_dim(c.integer_or(2, -1), x.rank());
  return at_place(c, sorted(c.b, x, dim, false), dim, c.integer(1) - 1);
}

// (median, position) along dim, dimension kept. The lower of two middle elements. A NaN is the median of what has one,
// unless they are left out.
Values median_along(Builder& b, const Value& x, int64_t dim, bool skip_nan) {
  const Values all = sorted(b, x, dim, false);
  const int64_t n = x.dim(dim), middle = (n - 1) / 2;
  const auto part = [&](int64_t at) {
    return Values{b.slice_dim(all[0], dim, at, at + 1), b.slice_dim(all[1], dim, at, at + 1)};
  };
  if (!is_float(x.dtype())) return part(middle);
  if (!skip_nan) {
    // NaN are last; the first of them is the answer.
    const Value nan = is_nan(b, all[0]), at = numbers_along(b, x.dims(), dim);
    const Value ends = b.select(nan, at, b.constant(at.type, n - 1));
    Dims kept = x.dims();
    kept[static_cast<size_t>(dim)] = 1;
    const Value any = b.reshape(b.reduce1(nan, b.constant({DType::Bool, {}}, false), {dim}, &Builder::or_), kept);
    const Value first = b.reshape(b.reduce1(ends, b.max_value({at.dtype(), {}}), {dim}, &Builder::min), kept);
    const Value where = b.select(any, first, b.constant(first.type, middle));
    return {read_along(b, all[0], dim, where), read_along(b, all[1], dim, where)};
  }
  const Value valid = b.convert(b.not_(is_nan(b, all[0])), numbers_along(b, x.dims(), dim).dtype());
  Dims kept = x.dims();
  kept[static_cast<size_t>(dim)] = 1;
  const Value count = b.reshape(sum_over(b, valid, {dim}), kept);
  const Value one = b.constant(count.type, 1), zero = b.constant(count.type, 0);
  const Value where = b.shrl(b.max(b.sub(count, one), zero), one);
  return {read_along(b, all[0], dim, where), read_along(b, all[1], dim, where)};
}

Values median_dim_with(Call& c, bool skip_nan) {
  const Value x = at_least_1d(c.b, c.tensor(0));
  const Values m = median_along(c.b, x, dim_with_elements(c.integer(1), x), skip_nan);
  return {c.b.reshape(m[0], c.result_dims()), c.b.reshape(m[1], c.result_dims())};
}

Values median_all_with(Call& c, bool skip_nan) {
  const Value x = c.tensor(0);
  // The median of nothing is NaN.
  if (x.type.numel() == 0)
    return {is_float(x.dtype()) ? nan_like(c.b, c.b.constant(c.result(), 0)) : c.b.min_value(c.result())};
  return {c.b.reshape(median_along(c.b, c.b.reshape(x, {x.type.numel()}), 0, skip_nan)[0], {})};
}

Values median(Call& c) { return median_all_with(c, false); }
Values median_dim(Call& c) { return median_dim_with(c, false); }
Values nanmedian(Call& c) { return median_all_with(c, true); }
Values nanmedian_dim(Call& c) { return median_dim_with(c, true); }

// The most frequent value, of several the least, and where it stands last: the longest run of equal sorted values.
Values mode(Call& c) {
  Builder& b = c.b;
  const Value x = at_least_1d(b, c.tensor(0));
  const int64_t dim = dim_with_elements(c.integer_or(1, -1), x), n = x.dim(dim);
  const Values all = sorted(b, x, dim, false);
  if (n <= 1) return {b.reshape(all[0], c.result_dims()), b.reshape(all[1], c.result_dims())};
  const Value at = numbers_along(b, x.dims(), dim), low = b.constant({at.dtype(), {}}, -1);
  const Value starts_here = b.compare(Cmp::NE, b.slice_dim(all[0], dim, 1, n), b.slice_dim(all[0], dim, 0, n - 1));
  Dims first = x.dims();
  first[static_cast<size_t>(dim)] = 1;
  const Value starts = b.concatenate({b.constant({DType::Bool, first}, true), starts_here}, dim);
  const Value start = running(b, b.select(starts, at, b.constant(at.type, 0)), dim, &Builder::max, low);
  const Value length = b.sub(at, start);
  // The first position with the greatest length ends the run that is sought.
  const Value none = b.max_value({at.dtype(), {}});
  const Values best = b.reduce({length, at}, {low, none}, {dim}, [&b](const Values& a) {
    const Value take =
        b.or_(b.compare(Cmp::GT, a[2], a[0]), b.and_(b.compare(Cmp::EQ, a[2], a[0]), b.compare(Cmp::LT, a[3], a[1])));
    return Values{b.select(take, a[2], a[0]), b.select(take, a[3], a[1])};
  });
  const Value where = b.reshape(best[1], first);
  return {b.reshape(read_along(b, all[0], dim, where), c.result_dims()),
          b.reshape(read_along(b, all[1], dim, where), c.result_dims())};
}

// ---- running reductions

Values cumulative(Call& c, Value (Builder::*op)(const Value&, const Value&), int identity) {
  const DType t = opmath(c.result().dtype);
  const Value x = cast(c.b, c.tensor(0), t);
  if (x.rank() == 0) return {x};
  return {running(c.b, x, normalized_dim(c.integer(1), x.rank()), op, c.b.constant({t, {}}, identity))};
}

Values cumsum(Call& c) { return cumulative(c, &Builder::add, 0); }
Values cumprod(Call& c) { return cumulative(c, &Builder::mul, 1); }

// log(exp(x) + exp(y)), the greater taken out so that nothing overflows.
Value log_add_exp(Builder& b, const Value& x, const Value& y) {
  if (is_complex(x.dtype())) {
    const Value greater = b.max(b.real(x), b.real(y));
    const Value shift = b.select(b.is_finite(greater), greater, b.like(greater, 0));
    const Value z = b.complex(shift, b.like(shift, 0));
    return b.add(z, b.log(b.add(b.exp(b.sub(x, z)), b.exp(b.sub(y, z)))));
  }
  const Value greater = b.max(x, y), less = b.min(x, y);
  const Value sum = b.add(greater, b.log1p(b.exp(b.sub(less, greater))));
  return b.select(b.is_finite(greater), sum, greater);
}

Values logcumsumexp(Call& c) {
  Builder& b = c.b;
  const DType t = opmath(c.result().dtype);
  const Value x = c.tensor(0, t);
  if (x.rank() == 0) return {x};
  const Type scalar{t, {}};
  const double lowest = -std::numeric_limits<double>::infinity();
  const Value identity = is_complex(t) ? b.complex_constant(scalar, lowest, 0) : b.constant(scalar, lowest);
  const Values out = running(b, Values{x}, normalized_dim(c.integer(1), x.rank()), {identity},
                             [&b](const Values& a) { return Values{log_add_exp(b, a[0], a[1])}; });
  if (t == c.result().dtype) return out;
  // One chip's compiler aborts when it narrows the running sum itself (tests/chips).
  return b.barrier(out);
}

// (running extreme, its position): of equal values the later, of NaN too. The position decides, so that the order in
// which a compiler joins partial results does not.
Values running_extreme(Call& c, bool greatest) {
  Builder& b = c.b;
  const Value x = at_least_1d(b, c.tensor(0));
  const int64_t dim = normalized_dim(c.integer(1), x.rank());
  const Value keys = is_bool(x.dtype()) ? b.convert(x, DType::U8) : x;
  const Value at = numbers_along(b, x.dims(), dim);
  const Type scalar{keys.dtype(), {}};
  const Values identities{greatest ? b.min_value(scalar) : b.max_value(scalar), b.constant({at.dtype(), {}}, -1)};
  const Values out = running(b, {keys, at}, dim, identities, [&](const Values& a) {
    const Value later = b.compare(Cmp::GE, a[3], a[1]);
    const Value better = b.compare(greatest ? Cmp::GT : Cmp::LT, a[2], a[0]);
    Value take = b.or_(better, b.and_(b.compare(Cmp::EQ, a[2], a[0]), later));
    if (is_float(keys.dtype())) {
      const Value nan_x = is_nan(b, a[0]), nan_y = is_nan(b, a[2]);
      take = b.or_(b.and_(take, b.not_(nan_x)), b.and_(nan_y, b.or_(b.not_(nan_x), later)));
    }
    return Values{b.select(take, a[2], a[0]), b.select(take, a[3], a[1])};
  });
  return {b.reshape(cast(b, out[0], x.dtype()), c.result_dims()), b.reshape(out[1], c.result_dims())};
}

Values cummax(Call& c) { return running_extreme(c, true); }
Values cummin(Call& c) { return running_extreme(c, false); }

// ---- binary search

}  // namespace

Value search(Builder& b, const Value& sequence, const Value& values, bool right) {
  const int64_t n = sequence.dim(sequence.rank() - 1);
  const Type index{DType::I32, values.dims()};
  Value count = b.constant(index, 0);
  int64_t bit = 1;
  while (bit * 2 <= n) bit *= 2;
  if (n == 0) return count;
  for (; bit > 0; bit /= 2) {
    // Keeps the invariant: all of the first `count` elements stand before.
    const Value candidate = b.add(count, b.constant(index, bit));
    const Value inside = b.compare(Cmp::LE, candidate, b.constant(index, n));
    const Value at = b.min(b.sub(candidate, b.constant(index, 1)), b.constant(index, n - 1));
    const Value element =
        sequence.rank() == 1 ? read_at(b, sequence, {{at}, {0}, 0}) : read_along(b, sequence, sequence.rank() - 1, at);
    // Negated, so that a NaN value goes behind everything.
    const Value stands_after = b.compare(right ? Cmp::GT : Cmp::GE, element, values);
    count = b.select(b.and_(inside, b.not_(stands_after)), candidate, count);
  }
  return count;
}

namespace {

// searchsorted: (sorted_sequence, self, out_int32, right, side, sorter)
Values searchsorted(Call& c) {
  Builder& b = c.b;
  const DType t = common_type(c);
  Value sequence = at_least_1d(b, c.tensor(0, t));
  const int64_t last = sequence.rank() - 1;
  if (c.has(5)) {
    const Value order = c.tensor(5);
    sequence = read_along(b, sequence, last, positions(b, at_least_1d(b, order), sequence.dim(last)));
  }
  const bool right = c.has(4) ? c.string(4) == "right" : c.flag(3);
  const Value values = input(c, 1, t, c.result_dims());
  return {search(b, sequence, values, right)};
}

// bucketize: (self, boundaries, out_int32, right)
Values bucketize(Call& c) {
  const DType t = common_type(c);
  return {search(c.b, c.tensor(1, t), input(c, 0, t, c.result_dims()), c.flag(3))};
}

}  // namespace

std::vector<Row> sort_scan_rows() {
  return {
      {"bucketize.Scalar", bucketize},
      {"bucketize.Tensor", bucketize},
      {"cummax", cummax},
      {"cummin", cummin},
      {"cumprod", cumprod},
      {"cumsum", cumsum},
      {"kthvalue", kthvalue},
      {"logcumsumexp", logcumsumexp},
      {"median", median},
      {"median.dim", median_dim, {.meta = "max.dim"}},
      {"mode", mode, {.meta = "max.dim"}},
      {"nanmedian", nanmedian},
      {"nanmedian.dim", nanmedian_dim, {.meta = "max.dim"}},
      {"searchsorted.Scalar", searchsorted},
      {"searchsorted.Tensor", searchsorted},
      {"sort", sort},
      {"sort.stable", sort_stable},
      {"topk", topk},
  };
}

}  // namespace tpj::lower
