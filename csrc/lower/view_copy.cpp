// Copies and casts, tensors put together from others, moved elements, regular patterns.
#include "lower/common.h"
#include "lower/row.h"

namespace tpj::lower {
namespace {

// ---- copies

Values copy(Call& c) { return {c.b.broadcast_to(cast(c.b, c.tensor(1), c.result().dtype), c.result_dims())}; }

// ---- put together

// PyTorch skips tensors of shape [0] whatever the rank of the others.
bool is_legacy_empty(const Type& t) { return t.rank() == 1 && t.dims[0] == 0; }

Values cat(Call& c) {
  const DType t = c.result().dtype;
  Values parts;
  for (size_t k = 0; k < c.count(0); ++k)
    if (!is_legacy_empty(c.type_at(0, k))) parts.push_back(cast(c.b, c.tensor_at(0, k), t));
  if (parts.empty()) return {c.b.constant(c.result(), 0)};
  return {c.b.concatenate(parts, normalized_dim(c.integer_or(1, 0), parts[0].rank()))};
}

Values stack(Call& c) {
  const int64_t dim = normalized_dim(c.integer_or(1, 0), c.result().rank());
  Values parts;
  for (size_t k = 0; k < c.count(0); ++k) {
    Dims dims = c.type_at(0, k).dims;
    dims.insert(dims.begin() + dim, 1);
    parts.push_back(c.b.reshape(cast(c.b, c.tensor_at(0, k), c.result().dtype), dims));
  }
  return {c.b.concatenate(parts, dim)};
}

// Matrices along the diagonal of a matrix; a vector counts as one row, a number as 1x1.
Values block_diag(Call& c) {
  const int64_t columns = c.result_dims()[1];
  int64_t left = 0;
  Values rows;
  for (size_t k = 0; k < c.count(0); ++k) {
    Value x = cast(c.b, c.tensor_at(0, k), c.result().dtype);
    if (x.rank() < 2) x = c.b.reshape(x, {1, x.type.numel()});
    const int64_t right = columns - left - x.dim(1);
    rows.push_back(c.b.pad(x, c.b.scalar(x.dtype(), 0), {0, left}, {0, right}, {0, 0}));
    left += x.dim(1);
  }
  return {c.b.concatenate(rows, 0)};
}

// `pad` lists (low, high) from the last dimension on; negative numbers cut.
Values constant_pad_nd(Call& c) {
  const Value x = c.tensor(0);
  const Dims pad = c.ints(1);
  Dims low(x.dims().size(), 0), high = low;
  for (size_t i = 0; i + 1 < pad.size(); i += 2) {
    const size_t d = low.size() - 1 - i / 2;
    low[d] = pad[i], high[d] = pad[i + 1];
  }
  return {c.b.pad(x, c.scalar(2, x.dtype()), low, high, Dims(low.size(), 0))};
}

Values repeat(Call& c) {
  const Value x = c.tensor(0);
  const Dims repeats = c.ints(1);
  // [d0, d1] repeated by [r0, r1] is [r0, d0, r1, d1] flattened in pairs.
  const size_t extra = repeats.size() - x.dims().size();
  Dims spread, from;
  for (size_t i = 0; i < repeats.size(); ++i) {
    spread.push_back(repeats[i]);
    if (i < extra) continue;
    from.push_back(static_cast<int64_t>(spread.size()));
    spread.push_back(x.dims()[i - extra]);
  }
  return {c.b.reshape(c.b.broadcast_in_dim(x, spread, from), c.result_dims())};
}

// ---- elements moved

Values flip(Call& c) {
  const Value x = c.tensor(0);
  Dims dims = c.ints(1);
  for (int64_t& d : dims) d = normalized_dim(d, x.rank());
  return {x.rank() == 0 ? x : c.b.reverse(x, dims)};
}

Value roll_dim(Builder& b, const Value& x, int64_t dim, int64_t shift) {
  const int64_t size = x.dim(dim);
  if (size == 0) return x;
  const int64_t start = ((-shift) % size + size) % size;
  if (start == 0) return x;
  return b.concatenate({b.slice_dim(x, dim, start, size), b.slice_dim(x, dim, 0, start)}, dim);
}

Values roll(Call& c) {
  Value x = c.tensor(0);
  const Dims shifts = c.ints(1), dims = c.ints(2);
  // Without dims the flattened tensor rolls.
  if (dims.empty()) return {c.b.reshape(roll_dim(c.b, c.b.reshape(x, {x.type.numel()}), 0, shifts[0]), x.dims())};
  for (size_t i = 0; i < dims.size(); ++i) x = roll_dim(c.b, x, normalized_dim(dims[i], x.rank()), shifts[i]);
  return {x};
}

// A triangle of the last two dimensions: where column - row `keep` diagonal.
Values triangle(Call& c, Cmp keep) {
  const Value x = c.tensor(0);
  const Dims plane{x.dim(x.rank() - 2), x.dim(x.rank() - 1)};
  const Type index{DType::I32, plane};
  // Beyond the plane every diagonal is alike, and clamped it fits 32 bits.
  const int64_t diagonal = std::clamp(c.integer_or(1, 0), -plane[0] - 1, plane[1] + 1);
  const Value offset = c.b.sub(c.b.iota(index, 1), c.b.iota(index, 0));
  const Value mask = c.b.compare(keep, offset, c.b.constant(index, diagonal));
  return {c.b.select(c.b.broadcast_to(mask, x.dims()), x, c.b.constant(x.type, 0))};
}

Values tril(Call& c) { return triangle(c, Cmp::LE); }
Values triu(Call& c) { return triangle(c, Cmp::GE); }

// [N, C, H, W] in r x r pixels per channel: [N, C/r^2, H*r, W*r]. And back.
Values pixel_shuffle(Call& c) {
  const Value x = c.tensor(0);
  const int64_t r = c.integer(1), n = x.rank();
  const Dims batch(x.dims().begin(), x.dims().end() - 3);
  const int64_t channels = x.dim(n - 3) / (r * r), h = x.dim(n - 2), w = x.dim(n - 1), k = n - 3;
  Dims split = batch, order;
  for (int64_t i = 0; i < k; ++i) order.push_back(i);
  for (int64_t d : {channels, r, r, h, w}) split.push_back(d);
  for (int64_t d : {0, 3, 1, 4, 2}) order.push_back(k + d);
  return {c.b.reshape(c.b.transpose(c.b.reshape(x, split), order), c.result_dims())};
}

Values pixel_unshuffle(Call& c) {
  const Value x = c.tensor(0);
  const int64_t r = c.integer(1), n = x.rank(), k = n - 3;
  Dims split(x.dims().begin(), x.dims().end() - 3), order;
  for (int64_t i = 0; i < k; ++i) order.push_back(i);
  for (int64_t d : {x.dim(n - 3), x.dim(n - 2) / r, r, x.dim(n - 1) / r, r}) split.push_back(d);
  for (int64_t d : {0, 2, 4, 1, 3}) order.push_back(k + d);
  return {c.b.reshape(c.b.transpose(c.b.reshape(x, split), order), c.result_dims())};
}

Values channel_shuffle(Call& c) {
  const Value x = c.tensor(0);
  const int64_t groups = c.integer(1);
  Dims split = x.dims(), order{0, 2, 1};
  split[1] = x.dim(1) / groups;
  split.insert(split.begin() + 1, groups);
  for (int64_t i = 3; i <= x.rank(); ++i) order.push_back(i);
  return {c.b.reshape(c.b.transpose(c.b.reshape(x, split), order), x.dims())};
}

// ---- a part put into a whole: gradients of views, and *_scatter

// The update at positions start, start + step, ... of dimension dim of x.
Value put_slice(Builder& b, const Value& x, const Value& update, int64_t dim, int64_t start, int64_t step) {
  if (update.dim(dim) == 0) return x;
  if (update.type == x.type) return update;
  if (step == 1) {
    Values at(static_cast<size_t>(x.rank()), b.constant({DType::I32, {}}, 0));
    at[static_cast<size_t>(dim)] = b.constant({DType::I32, {}}, start);
    return b.dynamic_update_slice(x, update, at);
  }
  Dims low(x.dims().size(), 0), high = low, interior = low;
  const auto d = static_cast<size_t>(dim);
  low[d] = start, interior[d] = step - 1;
  high[d] = x.dim(dim) - start - (update.dim(dim) - 1) * step - 1;
  const Value yes = b.constant({DType::Bool, update.dims()}, true), no = b.constant({DType::Bool, {}}, false);
  return b.select(b.pad(yes, no, low, high, interior), b.pad(update, b.scalar(update.dtype(), 0), low, high, interior),
                  x);
}

// Python's rule for a slice bound.
int64_t slice_bound(int64_t at, int64_t size) { return std::clamp<int64_t>(at < 0 ? at + size : at, 0, size); }

Value unsqueeze(Builder& b, const Value& x, int64_t dim) {
  Dims dims = x.dims();
  dims.insert(dims.begin() + dim, 1);
  return b.reshape(x, dims);
}

Values select_backward(Call& c) {
  const Type whole = {c.type(0).dtype, c.ints(1)};
  const int64_t dim = normalized_dim(c.integer(2), whole.rank()), at = c.integer(3);
  const int64_t size = whole.dims[static_cast<size_t>(dim)];
  return {put_slice(c.b, c.b.constant(whole, 0), unsqueeze(c.b, c.tensor(0), dim), dim, at < 0 ? at + size : at, 1)};
}

Values select_scatter(Call& c) {
  const Value x = c.tensor(0);
  const int64_t dim = normalized_dim(c.integer(2), x.rank()), at = c.integer(3);
  return {put_slice(c.b, x, unsqueeze(c.b, c.tensor(1, x.dtype()), dim), dim, at < 0 ? at + x.dim(dim) : at, 1)};
}

Values slice_backward(Call& c) {
  const Type whole = {c.type(0).dtype, c.ints(1)};
  const int64_t dim = normalized_dim(c.integer(2), whole.rank());
  const int64_t start = slice_bound(c.integer(3), whole.dims[static_cast<size_t>(dim)]);
  return {put_slice(c.b, c.b.constant(whole, 0), c.tensor(0), dim, start, c.integer(5))};
}

Values slice_scatter(Call& c) {
  const Value x = c.tensor(0);
  const int64_t dim = normalized_dim(c.integer_or(2, 0), x.rank());
  return {
      put_slice(c.b, x, c.tensor(1, x.dtype()), dim, slice_bound(c.integer_or(3, 0), x.dim(dim)), c.integer_or(5, 1))};
}

// ---- diagonals

// `diagonal`, the last dimension of `x`, along the diagonal of two new dimensions dim1 and dim2 of a tensor of `sizes`;
// zero elsewhere.
struct Diagonal {
  int64_t offset, dim1, dim2;
};

Value spread_diagonal(Builder& b, const Value& x, const Dims& sizes, const Diagonal& at) {
  Dims map;
  for (int64_t d = 0; d < static_cast<int64_t>(sizes.size()); ++d)
    if (d != at.dim1 && d != at.dim2) map.push_back(d);
  // Lay the diagonal along dim1's rows, shifted by how many rows come before it.
  const int64_t rows = sizes[static_cast<size_t>(at.dim1)], before = std::max<int64_t>(-at.offset, 0),
                last = x.rank() - 1;
  Dims low(x.dims().size(), 0), high = low;
  low.back() = before;
  high.back() = rows - before - x.dim(last);
  map.push_back(at.dim1);
  return b.broadcast_in_dim(b.pad(x, b.scalar(x.dtype(), 0), low, high, Dims(low.size(), 0)), sizes, map);
}

Value on_diagonal(Builder& b, const Dims& sizes, const Diagonal& at) {
  const Type index{DType::I32, sizes};
  return b.compare(Cmp::EQ, b.iota(index, at.dim2), b.add(b.iota(index, at.dim1), b.constant(index, at.offset)));
}

Value put_diagonal(Builder& b, const Value& x, const Value& update, const Diagonal& at) {
  if (update.type.numel() == 0) return x;
  return b.select(on_diagonal(b, x.dims(), at), spread_diagonal(b, update, x.dims(), at), x);
}

Values diag_embed(Call& c) {
  const int64_t rank = c.result().rank();
  const Diagonal at{c.integer_or(1, 0), normalized_dim(c.integer_or(2, -2), rank),
                    normalized_dim(c.integer_or(3, -1), rank)};
  return {put_diagonal(c.b, c.b.constant(c.result(), 0), c.tensor(0), at)};
}

Values diagonal_backward(Call& c) {
  const Type whole = {c.type(0).dtype, c.ints(1)};
  const Diagonal at{c.integer(2), normalized_dim(c.integer(3), whole.rank()),
                    normalized_dim(c.integer(4), whole.rank())};
  return {put_diagonal(c.b, c.b.constant(whole, 0), c.tensor(0), at)};
}

Values diagonal_scatter(Call& c) {
  const Value x = c.tensor(0);
  const Diagonal at{c.integer_or(2, 0), normalized_dim(c.integer_or(3, 0), x.rank()),
                    normalized_dim(c.integer_or(4, 1), x.rank())};
  return {put_diagonal(c.b, x, c.tensor(1, x.dtype()), at)};
}

Values trace(Call& c) {
  const Value x = cast(c.b, c.tensor(0), c.result().dtype);
  const Value kept = c.b.select(on_diagonal(c.b, x.dims(), {0, 0, 1}), x, c.b.constant(x.type, 0));
  return {sum_over(c.b, kept, {0, 1})};
}

// ---- patterns

// The type in which a sequence is computed: PyTorch uses double for float32 steps and int64 for integers.
DType sequence_type(DType t) { return is_complex(t) ? t : is_float(t) ? DType::F64 : DType::I64; }

Values arange(Call& c) {
  const Type out = c.result();
  const DType t = sequence_type(out.dtype);
  const Value i = c.b.iota({t, out.dims}, 0);
  const Value sequence = c.b.add(c.number(0, t, out.dims), c.b.mul(i, c.number(2, t, out.dims)));
  return {cast(c.b, sequence, out.dtype)};
}

Values eye(Call& c) {
  const Dims& dims = c.result_dims();
  return {cast(c.b, on_diagonal(c.b, dims, {0, 0, 1}), c.result().dtype)};
}

// The first half counts from start, the second back from end, so that both ends are exact.
Value linear_sequence(Call& c, DType t) {
  const Type out{t, c.result_dims()};
  const int64_t steps = c.integer(2);
  const Value start = c.number(0, t, out.dims), end = c.number(1, t, out.dims);
  if (steps <= 1) return start;
  // Positions are counted in a real type; complex numbers scale by it.
  const Type real{real_of(t), out.dims};
  const Value i = c.b.iota(real, 0), back = c.b.sub(c.b.constant(real, static_cast<double>(steps - 1)), i);
  Value step = c.b.div(c.b.sub(c.scalar(1, t), c.scalar(0, t)), c.b.scalar(t, static_cast<double>(steps - 1)));
  // PyTorch rounds the step to narrow floats.
  if (opmath(c.result().dtype) != c.result().dtype) step = cast(c.b, cast(c.b, step, c.result().dtype), t);
  step = c.b.broadcast_to(step, out.dims);
  const Value up = c.b.add(start, c.b.mul(step, cast(c.b, i, t))),
              down = c.b.sub(end, c.b.mul(step, cast(c.b, back, t)));
  return c.b.select(c.b.compare(Cmp::LT, i, c.b.constant(real, static_cast<double>(steps / 2))), up, down);
}

// float64 for integers, as PyTorch on the CPU; elsewhere it costs nothing here and keeps the ends exact.
DType linear_type(DType t) { return is_complex(t) ? t : is_float(t) && size_of(t) == 4 ? DType::F32 : DType::F64; }

Values linspace(Call& c) { return {cast(c.b, linear_sequence(c, linear_type(c.result().dtype)), c.result().dtype)}; }

Values logspace(Call& c) {
  const DType t = is_complex(c.result().dtype) ? c.result().dtype : DType::F64;
  const Value exponents = linear_sequence(c, t);
  return {cast(c.b, c.b.pow(c.number(3, t, exponents.dims()), exponents), c.result().dtype)};
}

// Coordinates [2, n] of the entries below (or above) a diagonal, row by row. A pattern of static sizes: made here.
Values triangle_indices(Call& c, bool lower) {
  const int64_t rows = c.integer(0), columns = c.integer(1), offset = c.integer_or(2, 0);
  std::vector<int64_t> r, q;
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < columns; ++j)
      if (lower ? j - i <= offset : j - i >= offset) r.push_back(i), q.push_back(j);
  r.insert(r.end(), q.begin(), q.end());
  return {c.b.dense(c.result(), r)};
}

Values tril_indices(Call& c) { return triangle_indices(c, true); }
Values triu_indices(Call& c) { return triangle_indices(c, false); }

}  // namespace

std::vector<Row> view_copy_rows() {
  return {
      {"arange.start_out", arange},
      {"block_diag", block_diag},
      {"cat", cat},
      {"channel_shuffle", channel_shuffle},
      {"constant_pad_nd", constant_pad_nd},
      {"copy", copy, {.internal = true}},
      {"diag_embed", diag_embed},
      {"diagonal_backward", diagonal_backward},
      {"diagonal_scatter", diagonal_scatter},
      {"eye.m_out", eye},
      {"eye.out", eye},
      {"flip", flip},
      {"linspace.out", linspace},
      {"logspace.out", logspace},
      {"pixel_shuffle", pixel_shuffle},
      {"pixel_unshuffle", pixel_unshuffle},
      {"repeat", repeat},
      {"roll", roll},
      {"select_backward", select_backward},
      {"select_scatter", select_scatter},
      {"slice_backward", slice_backward},
      {"slice_scatter", slice_scatter},
      {"stack", stack},
      {"trace", trace},
      {"tril", tril},
      {"tril_indices", tril_indices},
      {"triu", triu},
      {"triu_indices", triu_indices},
  };
}

}  // namespace tpj::lower
