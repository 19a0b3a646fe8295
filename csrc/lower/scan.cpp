#include "lower/scan.h"

namespace tpj::lower {
namespace {

Values by_window(Builder& b, const Values& xs, int64_t dim, const Values& identities, const Builder::Body& body) {
  const Value& x = xs[0];
  hlo::Window w;
  w.dims = w.strides = w.base_dilations = w.dilations = Dims(x.dims().size(), 1);
  w.padding.assign(x.dims().size(), {0, 0});
  w.dims[static_cast<size_t>(dim)] = x.dim(dim);
  w.padding[static_cast<size_t>(dim)] = {x.dim(dim) - 1, 0};
  return b.reduce_window(xs, identities, w, body);
}

constexpr int64_t kBlock = 32;

// Blocks first, then the running values of their totals, then both joined. XLA does this to a window of one operand by
// itself; with two it runs out of memory.
Values by_blocks(Builder& b, const Values& xs, int64_t dim, const Values& identities, const Builder::Body& body) {
  const int64_t n = xs[0].dim(dim), blocks = (n + kBlock - 1) / kBlock;
  const auto d = static_cast<size_t>(dim);
  Dims zeros(xs[0].dims().size(), 0), fill = zeros, split = xs[0].dims(), outer = split, one = split;
  fill[d] = blocks * kBlock - n;
  outer[d] = blocks, one[d] = 1, split[d] = blocks;
  split.insert(split.begin() + dim + 1, kBlock);
  Values inner;
  for (size_t i = 0; i < xs.size(); ++i)
    inner.push_back(b.reshape(b.pad(xs[i], identities[i], zeros, fill, zeros), split));
  inner = by_window(b, inner, dim + 1, identities, body);
  Values totals;
  for (const Value& v : inner) totals.push_back(b.reshape(b.slice_dim(v, dim + 1, kBlock - 1, kBlock), outer));
  totals = running(b, totals, dim, identities, body);
  Dims map;
  for (int64_t i = 0; i <= xs[0].rank(); ++i)
    if (i != dim + 1) map.push_back(i);
  Values operands;
  for (size_t i = 0; i < xs.size(); ++i) {
    const Value first = b.broadcast_to(identities[i], one);
    const Value before = b.concatenate({first, b.slice_dim(totals[i], dim, 0, blocks - 1)}, dim);
    operands.push_back(b.broadcast_in_dim(before, split, map));
  }
  operands.insert(operands.end(), inner.begin(), inner.end());
  Values out = body(operands);
  Dims whole = xs[0].dims();
  whole[d] = blocks * kBlock;
  for (Value& v : out) v = b.slice_dim(b.reshape(v, whole), dim, 0, n);
  return out;
}

}  // namespace

Values running(Builder& b, const Values& xs, int64_t dim, const Values& identities, const Builder::Body& body) {
  const Value& x = xs[0];
  if (x.rank() == 0 || x.type.numel() == 0) return xs;
  return xs.size() == 1 || x.dim(dim) <= 2 * kBlock ? by_window(b, xs, dim, identities, body)
                                                    : by_blocks(b, xs, dim, identities, body);
}

Value running(Builder& b, const Value& x, int64_t dim, Value (Builder::*op)(const Value&, const Value&),
              const Value& identity) {
  return running(b, Values{x}, dim, {identity}, [&](const Values& a) { return Values{(b.*op)(a[0], a[1])}; })[0];
}

Value order_of_true(Builder& b, const Value& mask) {
  const Value row = b.reshape(mask, {mask.type.numel()});
  const Value rank = running(b, b.convert(row, DType::I32), 0, &Builder::add, b.constant({DType::I32, {}}, 0));
  return b.select(row, b.sub(rank, b.constant(rank.type, 1)), b.constant(rank.type, -1));
}

}  // namespace tpj::lower
