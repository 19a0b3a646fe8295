// Eigenvalues of Hermitian matrices and singular values by Jacobi's rotations: n/2 pairs of columns at a time, in the
// round-robin order of Brent and Luk (1985), which meets every pair once in a sweep of n - 1 steps.
#include <cmath>

#include "lower/common.h"
#include "lower/linalg.h"
#include "lower/row.h"

namespace tpj::lower {
namespace {

constexpr int64_t kMostSweeps = 60;  // about 10 are usual

// Column i of the one half and column i of the other are a pair.
struct Halves {
  Value first, second;
};

Halves halves(Builder& b, const Value& x, int64_t dim) {
  const int64_t n = x.dim(dim);
  return {b.slice_dim(x, dim, 0, n / 2), b.slice_dim(x, dim, n / 2, n)};
}

Value joined(Builder& b, const Halves& x, int64_t dim) { return b.concatenate({x.first, x.second}, dim); }

// The next pairs: all columns but the very first move on by one place in a ring. After n - 1 moves all are back.
Halves moved(Builder& b, const Halves& x, int64_t dim) {
  const int64_t h = x.first.dim(dim);
  if (h == 1) return x;
  const auto part = [&](const Value& v, int64_t from, int64_t to) { return b.slice_dim(v, dim, from, to); };
  Values first{part(x.first, 0, 1), part(x.second, 0, 1)};
  if (h > 2) first.push_back(part(x.first, 1, h - 1));
  return {b.concatenate(first, dim), b.concatenate({part(x.second, 1, h), part(x.first, h - 1, h)}, dim)};
}

// Makes [[p, g], [conj(g), q]] diagonal: the unitary [[c, s w], [-s conj(w), c]] with w = g / |g| (Golub and Van Loan,
// Matrix Computations, 8.5.2). Real values but for w; where not `wanted`, nothing turns.
struct Rotation {
  Value c, s, w, t, size;  // t = s / c; size = |g|
};

Rotation rotation(Builder& b, const Value& p, const Value& q, const Value& g, const Value& wanted) {
  const Value size = b.abs(g), one = b.like(size, 1), zero = b.like(size, 0);
  const Value safe = b.select(wanted, size, one);
  const Value cot = b.div(b.sub(q, p), b.mul(b.like(size, 2), safe));
  const Value bottom = b.add(b.abs(cot), b.sqrt(b.add(one, b.mul(cot, cot))));
  const Value tangent = b.div(b.select(b.compare(Cmp::LT, cot, zero), b.like(cot, -1), one), bottom);
  const Value t = b.select(wanted, tangent, zero);
  const Value cosine = b.rsqrt(b.add(one, b.mul(t, t)));
  const Value w = b.select(wanted, b.div(g, in_type_of(b, g, safe)), splat(b, g.type, 1));
  return {cosine, b.mul(t, cosine), w, t, size};
}

// [batch, h] of the pairs' numbers as factors of the columns (dim 2) or rows (dim 1) of x.
Value factor(Builder& b, const Value& v, const Value& x, int64_t dim) {
  return b.broadcast_in_dim(is_complex(v.dtype()) ? v : in_type_of(b, x, v), x.dims(), {0, dim});
}

// x J for columns, J^H x for rows.
Halves turned(Builder& b, const Halves& x, const Rotation& r, int64_t dim) {
  const Value w = dim == 2 ? r.w : conjugate(b, r.w);
  const Value s = in_type_of(b, r.w, r.s), c = factor(b, r.c, x.first, dim);
  const Value into_first = factor(b, b.mul(s, conjugate(b, w)), x.first, dim),
              into_second = factor(b, b.mul(s, w), x.first, dim);
  return {b.sub(b.mul(c, x.first), b.mul(into_first, x.second)),
          b.add(b.mul(into_second, x.first), b.mul(c, x.second))};
}

Value even(Builder& b, const Value& x, int64_t dim) {
  if (x.dim(dim) % 2 == 0) return x;
  Dims high(3, 0);
  high[static_cast<size_t>(dim)] = 1;
  return b.pad(x, splat(b, {x.dtype(), {}}, 0), {0, 0, 0}, high, {0, 0, 0});
}

double epsilon(DType t) { return real_of(t) == DType::F64 ? 0x1p-52 : 0x1p-23; }

// Sweeps until none of the pairs of a whole sweep was turned. step(state) returns the state and whether some was.
Values sweeps(Builder& b, int64_t n, const Values& state,
              const std::function<std::pair<Values, Value>(const Values&)>& step) {
  const auto no = [&] { return b.constant({DType::Bool, {}}, false); };
  Values all = state;
  all.insert(all.begin(), {index(b, 0), b.constant({DType::Bool, {}}, true)});
  Values done = b.while_(
      all, [&](const Values& s) -> Values { return {b.and_(s[1], b.compare(Cmp::LT, s[0], index(b, kMostSweeps)))}; },
      [&](const Values& s) {
        Values inner(s.begin() + 2, s.end());
        inner.insert(inner.begin(), no());
        Values next = repeat(b, n - 1, inner, [&](const Value&, const Values& now) {
          auto [after, turned] = step(Values(now.begin() + 1, now.end()));
          after.insert(after.begin(), b.or_(now[0], turned));
          return after;
        });
        next.insert(next.begin(), b.add(s[0], index(b, 1)));
        return next;
      });
  return Values(done.begin() + 2, done.end());
}

Value any(Builder& b, const Value& x) {
  return b.reduce1(x, b.constant({DType::Bool, {}}, false), {0, 1}, &Builder::or_);
}

// Per matrix, what its greatest element is divided by so that squares neither overflow nor vanish: a power of 2.
Value scale_of(Builder& b, const Value& x) {
  const Value most = max_over(b, b.abs(x), {1, 2});
  const Value power = b.floor(b.div(b.log(most), b.like(most, std::log(2.0))));
  const Value usable = b.and_(b.compare(Cmp::GT, most, b.like(most, 0)), b.is_finite(most));
  return b.select(usable, b.pow(b.like(most, 2), power), b.like(most, 1));
}

Value over(Builder& b, const Value& x, const Value& scale) {
  return b.div(x, b.broadcast_in_dim(in_type_of(b, x, scale), x.dims(), {0}));
}

// values [batch, n] in order, and the columns of the matrices with them.
Values sorted(Builder& b, const Value& values, const Values& matrices, bool descending) {
  const Value at = b.iota({DType::I32, values.dims()}, 1);
  const Values order = b.sort({values, at}, 1, true, [&](const Values& a) -> Values {
    return {b.compare(descending ? Cmp::GT : Cmp::LT, a[0], a[1])};
  });
  Values out{order[0]};
  for (const Value& m : matrices) {
    hlo::GatherDims g;
    g.offset = {1};
    g.collapsed = g.start_index_map = {2};
    g.operand_batching = g.indices_batching = {0};
    g.index_vector_dim = 2;
    g.slice_sizes = {1, m.dim(1), 1};
    out.push_back(b.gather(m, order[1], g, m.dims()));
  }
  return out;
}

// ---- Hermitian matrices

struct Eigen {
  Value values, vectors;  // ascending [batch, n]; columns, if wanted
};

Eigen eigh(Builder& b, const Value& matrix, bool vectors) {
  const int64_t batch = matrix.dim(0), n = matrix.dim(1);
  if (n == 1) {
    const Value x = b.reshape(matrix, {batch, 1});
    return {is_complex(x.dtype()) ? b.real(x) : x, splat(b, matrix.type, 1)};
  }
  const Value scale = scale_of(b, matrix);
  const Value x = even(b, even(b, over(b, matrix, scale), 1), 2);
  const int64_t h = x.dim(1) / 2;
  const Halves top_bottom = halves(b, x, 1);
  const Halves top = halves(b, top_bottom.first, 2), bottom = halves(b, top_bottom.second, 2);
  Values state{top.first, top.second, bottom.first, bottom.second};
  if (vectors) {
    const Halves v = halves(b, identity(b, x.type), 2);
    state.insert(state.end(), {v.first, v.second});
  }
  const Type square{DType::I32, {batch, h, h}};
  const Value on_diagonal = b.compare(Cmp::EQ, b.iota(square, 1), b.iota(square, 2));
  const auto real = [&](const Value& v) { return is_complex(v.dtype()) ? b.real(v) : v; };
  const Values done = sweeps(b, 2 * h, state, [&](const Values& s) -> std::pair<Values, Value> {
    const Value p = real(diagonal(b, s[0])), q = real(diagonal(b, s[3])), g = diagonal(b, s[1]);
    const Value wanted = b.compare(Cmp::GT, b.abs(g), b.like(p, epsilon(x.dtype()) / 8));
    const Rotation r = rotation(b, p, q, g, wanted);
    const Halves up = turned(b, {s[0], s[1]}, r, 2), down = turned(b, {s[2], s[3]}, r, 2);
    const Halves left = turned(b, {up.first, down.first}, r, 1), right = turned(b, {up.second, down.second}, r, 1);
    // What the rotation makes of the pair itself, free of rounding.
    const auto set = [&](const Value& block, const Value& d) {
      return b.select(on_diagonal, b.broadcast_in_dim(d, block.dims(), {0, 1}), block);
    };
    const Value change = b.mul(r.t, r.size), off = b.select(wanted, splat(b, g.type, 0), g);
    const Value tl = set(left.first, in_type_of(b, g, b.sub(p, change)));
    const Value br = set(right.second, in_type_of(b, g, b.add(q, change)));
    const Value tr = set(right.first, off), bl = set(left.second, conjugate(b, off));
    const Halves over_columns_top = moved(b, {tl, tr}, 2), over_columns_bottom = moved(b, {bl, br}, 2);
    const Halves a = moved(b, {over_columns_top.first, over_columns_bottom.first}, 1);
    const Halves z = moved(b, {over_columns_top.second, over_columns_bottom.second}, 1);
    Values next{a.first, z.first, a.second, z.second};
    if (vectors) {
      const Halves v = moved(b, turned(b, {s[4], s[5]}, r, 2), 2);
      next.insert(next.end(), {v.first, v.second});
    }
    return {next, any(b, wanted)};
  });
  Value values = b.concatenate({real(diagonal(b, done[0])), real(diagonal(b, done[3]))}, 1);
  values = b.slice_dim(values, 1, 0, n);
  values = b.mul(values, b.broadcast_in_dim(scale, values.dims(), {0}));
  if (!vectors) return {sorted(b, values, {}, false)[0], {}};
  const Value v = b.slice(joined(b, {done[4], done[5]}, 2), {0, 0, 0}, {batch, n, n}, {1, 1, 1});
  const Values order = sorted(b, values, {v}, false);
  return {order[0], order[1]};
}

// The Hermitian matrix whose lower or upper triangle is given.
Value from_triangle(Builder& b, const Value& x, bool upper) {
  const Value u = upper ? x : adjoint(b, x);  // its upper triangle counts
  const Type at{DType::I32, u.dims()};
  const Value row = b.iota(at, 1), col = b.iota(at, 2);
  Value d = u;
  if (is_complex(x.dtype())) d = in_type_of(b, x, b.real(u));
  const Value off = b.select(b.compare(Cmp::LT, row, col), u, adjoint(b, u));
  return b.select(b.compare(Cmp::EQ, row, col), d, off);
}

// (A, UPLO, compute_v)
Values linalg_eigh(Call& c) {
  Builder& b = c.b;
  Values out{splat(b, c.result(0), 0), splat(b, c.result(1), 0)};
  if (c.type(0).numel() == 0) return out;
  const bool upper = c.string(1) == "U" || c.string(1) == "u", vectors = c.flag(2);
  const Eigen e = eigh(b, from_triangle(b, as_batch(b, c.tensor(0)), upper), vectors);
  out[0] = b.reshape(e.values, c.result_dims(0));
  if (vectors) out[1] = b.reshape(e.vectors, c.result_dims(1));
  return out;
}

// ---- singular values

// Turns the columns of A until they are orthogonal (Hestenes 1958): A V = U S.
struct Turned {
  Value s, av, v;  // descending [batch, n]; [batch, m, n] and [batch, n, n], if wanted
};

Turned orthogonal_columns(Builder& b, const Value& matrix, bool vectors) {
  const int64_t batch = matrix.dim(0), n = matrix.dim(2);
  const Value scale = scale_of(b, matrix);
  const Value x = even(b, over(b, matrix, scale), 2);
  const Halves a = halves(b, x, 2);
  Values state{a.first, a.second};
  if (vectors) {
    const Halves v = halves(b, identity(b, {x.dtype(), {batch, x.dim(2), x.dim(2)}}), 2);
    state.insert(state.end(), {v.first, v.second});
  }
  const auto dot = [&](const Value& y, const Value& z) {
    const Value sum = sum_along(b, b.mul(conjugate(b, y), z), 1);
    return b.reshape(sum, {batch, sum.dim(2)});
  };
  const auto square = [&](const Value& y) {
    const Value d = dot(y, y);
    return is_complex(d.dtype()) ? b.real(d) : d;
  };
  const double eps = epsilon(x.dtype());
  const Values done = sweeps(b, x.dim(2), state, [&](const Values& s) -> std::pair<Values, Value> {
    const Value p = square(s[0]), q = square(s[1]), g = dot(s[0], s[1]);
    const Value bound = b.mul(b.mul(b.sqrt(p), b.sqrt(q)), b.like(p, eps * std::sqrt(static_cast<double>(x.dim(1)))));
    const Value wanted =
        b.and_(b.compare(Cmp::GT, b.abs(g), bound), b.compare(Cmp::GT, b.abs(g), b.like(p, eps * eps * eps)));
    const Rotation r = rotation(b, p, q, g, wanted);
    const Halves columns = moved(b, turned(b, {s[0], s[1]}, r, 2), 2);
    Values next{columns.first, columns.second};
    if (vectors) {
      const Halves v = moved(b, turned(b, {s[2], s[3]}, r, 2), 2);
      next.insert(next.end(), {v.first, v.second});
    }
    return {next, any(b, wanted)};
  });
  const Value av = columns(b, joined(b, {done[0], done[1]}, 2), 0, n);
  Value s = b.sqrt(square(av));
  s = b.mul(s, b.broadcast_in_dim(scale, s.dims(), {0}));
  if (!vectors) return {sorted(b, s, {}, true)[0], {}, {}};
  const Value v = b.slice(joined(b, {done[2], done[3]}, 2), {0, 0, 0}, {batch, n, n}, {1, 1, 1});
  const Values order = sorted(b, s, {av, v}, true);
  return {order[0], order[1], order[2]};
}

// Orthonormal [batch, m, width] whose first columns have the directions of those of x, which are orthogonal or 0.
Value completed(Builder& b, const Value& x, int64_t width) {
  const int64_t batch = x.dim(0), m = x.dim(1), n = x.dim(2);
  const Value norm = b.sqrt(sum_along(b, b.mul(b.abs(x), b.abs(x)), 1));
  const Value is_zero = b.compare(Cmp::EQ, norm, b.like(norm, 0));
  const Value unit = b.div(x, b.broadcast_to(in_type_of(b, x, b.select(is_zero, b.like(norm, 1), norm)), x.dims()));
  const Reflectors r = householder(b, unit);
  const Value q = apply_reflectors(b, r, identity(b, {x.dtype(), {batch, m, width}}), false);
  const Value d = diagonal(b, r.packed);
  const Value against =
      b.compare(Cmp::LT, is_complex(d.dtype()) ? b.real(d) : d, b.constant({real_of(d.dtype()), d.dims()}, 0));
  Value turn = b.select(against, splat(b, d.type, -1), splat(b, d.type, 1));
  if (width > n) turn = b.concatenate({turn, splat(b, {d.dtype(), {batch, width - n}}, 1)}, 1);
  return b.mul(q, b.broadcast_in_dim(turn, q.dims(), {0, 2}));
}

// (A, full_matrices, compute_uv, driver): U, S, V^H.
Values linalg_svd(Call& c) {
  Builder& b = c.b;
  const bool vectors = c.arg_count() <= 2 || c.flag(2);
  Values out;
  for (size_t k = 0; k < 3; ++k) out.push_back(splat(b, c.result(k), 0));
  if (c.type(0).numel() == 0) {
    for (size_t k : {size_t{0}, size_t{2}})
      if (vectors && c.result(k).numel() != 0) out[k] = identity(b, c.result(k));
    return out;
  }
  const Value given = as_batch(b, c.tensor(0));
  const bool wide = given.dim(1) < given.dim(2);
  const Turned t = orthogonal_columns(b, wide ? adjoint(b, given) : given, vectors);
  out[1] = b.reshape(t.s, c.result_dims(1));
  if (!vectors) return out;
  const int64_t width = wide ? c.result_dims(2)[c.result_dims(2).size() - 2] : c.result_dims(0).back();
  const Value u = completed(b, t.av, width);
  out[0] = b.reshape(wide ? t.v : u, c.result_dims(0));
  out[2] = b.reshape(adjoint(b, wide ? u : t.v), c.result_dims(2));
  return out;
}

}  // namespace

std::vector<Row> jacobi_rows() {
  return {
      {"_linalg_eigh", linalg_eigh},
      {"_linalg_svd", linalg_svd},
  };
}

}  // namespace tpj::lower
