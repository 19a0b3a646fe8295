// Reductions. Sums of narrow floats are kept in float32; a result is reshaped to what the meta kernel says, which
// settles keepdim.
#include "lower/common.h"
#include "lower/indexing.h"
#include "lower/row.h"

namespace tpj::lower {
namespace {

using BinaryOp = Value (Builder::*)(const Value&, const Value&);

constexpr double kInf = std::numeric_limits<double>::infinity();

// The dimensions that argument `i` (a list, one number, or nothing: all) reduces, of tensor argument 0.
Dims reduced_dims(Call& c, size_t i) {
  const int64_t rank = c.type(0).rank();
  if (!c.has(i)) return normalized_dims({}, rank);
  return normalized_dims(c.arg(i).kind == Arg::Kind::kInt ? Dims{c.integer(i)} : c.ints(i), rank);
}

Value shaped(Call& c, const Value& x, size_t k = 0) { return c.b.reshape(x, c.result_dims(k)); }

// Tensor 0 in the type that sums towards result `k` are kept in.
Value summand(Call& c, size_t k = 0) { return cast(c.b, c.tensor(0), opmath(c.result(k).dtype)); }

// ---- sums, products, means

template <size_t dims>
Values sum(Call& c) {
  return {shaped(c, sum_over(c.b, summand(c), reduced_dims(c, dims)))};
}

template <size_t dims>
Values mean(Call& c) {
  return {shaped(c, mean_over(c.b, summand(c), reduced_dims(c, dims)))};
}

Values nansum(Call& c) {
  Value x = summand(c);
  if (is_float(x.dtype())) x = c.b.select(is_nan(c.b, x), c.b.like(x, 0), x);
  return {shaped(c, sum_over(c.b, x, reduced_dims(c, 1)))};
}

template <size_t dims>
Values prod(Call& c) {
  const Value x = summand(c), one = c.b.scalar(x.dtype(), 1);
  return {shaped(c, c.b.reduce1(x, one, reduced_dims(c, dims), is_bool(x.dtype()) ? &Builder::and_ : &Builder::mul))};
}

Values count_nonzero(Call& c) {
  const Value hit = c.b.convert(cast(c.b, c.tensor(0), DType::Bool), DType::I64);
  return {shaped(c, sum_over(c.b, hit, reduced_dims(c, 1)))};
}

// The bits of all elements, as int64 or float64, by exclusive or.
Values hash_tensor(Call& c) {
  Builder& b = c.b;
  const Value x = c.tensor(0);
  const Type words{DType::U64, x.dims()};
  const Value bits = is_float(x.dtype()) ? b.bitcast(b.convert(x, DType::F64), words) : b.convert(x, DType::U64);
  return {shaped(c, b.reduce1(bits, b.constant({DType::U64, {}}, 0), reduced_dims(c, 1), &Builder::xor_))};
}

// How many numbers fall into each of `bins` equal intervals of [min, max], or of the data's own range if those are
// equal; the last interval has both its ends. (self, bins, min, max)
Values histc(Call& c) {
  Builder& b = c.b;
  const DType narrow = c.result().dtype, t = opmath(narrow);
  const int64_t bins = c.integer(1), n = c.type(0).numel();
  const Value x = b.reshape(c.tensor(0, t), {n});
  if (n == 0) return {b.constant(c.result(), 0)};
  // Every step rounds to the data's type, as on the CPU.
  const auto rounded = [&](const Value& v) { return b.convert(b.convert(v, narrow), t); };
  Value low = rounded(c.scalar(2, t)), high = rounded(c.scalar(3, t)), same = b.compare(Cmp::EQ, low, high);
  low = b.select(same, b.reduce1(x, b.max_value({t, {}}), {0}, &Builder::min), low);
  high = b.select(same, max_over(b, x, {0}), high);
  same = b.compare(Cmp::EQ, low, high);
  low = b.select(same, b.sub(low, b.like(low, 1)), low);
  high = b.select(same, b.add(high, b.like(high, 1)), high);
  const auto wide = [&](const Value& v) { return b.broadcast_to(v, x.dims()); };
  const Value scaled = rounded(b.mul(rounded(b.sub(x, wide(low))), b.like(x, static_cast<double>(bins))));
  Value at = b.convert(rounded(b.div(scaled, wide(rounded(b.sub(high, low))))), DType::I32);
  at = b.min(at, b.constant(at.type, bins - 1));
  const Value inside = b.and_(b.compare(Cmp::GE, x, wide(low)), b.compare(Cmp::LE, x, wide(high)));
  at = b.select(inside, at, b.constant(at.type, -1));
  return {write_at(b, b.constant({t, {bins}}, 0), {{at}, {0}, 0}, b.like(x, 1), accumulate(b))};
}

// log(sum(e^(x - max))) + max, with 0 for an infinite max.
Values logsumexp(Call& c) {
  Builder& b = c.b;
  const Value x = summand(c);
  const Dims dims = reduced_dims(c, 1);
  Value big = max_over(b, is_complex(x.dtype()) ? b.real(x) : x, dims);
  big = b.select(b.compare(Cmp::EQ, b.abs(big), inf_like(b, big)), b.like(big, 0), big);
  if (is_complex(x.dtype())) big = b.complex(big, b.like(big, 0));
  const Value sum = sum_over(b, b.exp(b.sub(x, broadcast_over(b, big, x.dims(), dims))), dims);
  return {shaped(c, b.add(b.log(sum), big))};
}

// ---- any, all

template <BinaryOp op, size_t dims>
Values truth(Call& c) {
  const Value x = cast(c.b, c.tensor(0), DType::Bool);
  // An empty list of dimensions reduces none where the result keeps them.
  if (c.has(dims) && c.arg(dims).kind == Arg::Kind::kInts && c.ints(dims).empty() && c.result_dims() == x.dims())
    return {x};
  constexpr bool identity = op == BinaryOp{&Builder::and_};
  return {shaped(c, c.b.reduce1(x, c.b.constant({DType::Bool, {}}, identity), reduced_dims(c, dims), op))};
}

// ---- extremes

enum class Extreme { kMax, kMin };

// NaN wins, as maximum and minimum have it.
template <Extreme e>
Value extreme_over(Builder& b, const Value& x, const Dims& dims) {
  const Type element{x.dtype(), {}};
  if (is_bool(x.dtype()))
    return b.reduce1(x, b.constant(element, e == Extreme::kMin), dims,
                     e == Extreme::kMax ? &Builder::or_ : &Builder::and_);
  return e == Extreme::kMax ? b.reduce1(x, b.min_value(element), dims, &Builder::max)
                            : b.reduce1(x, b.max_value(element), dims, &Builder::min);
}

// Where along `dim` the extreme `best` stands: the first place of several. Two plain reductions are faster than one
// that carries pairs, which compilers do not vectorise.
Value place_of(Builder& b, const Value& x, const Value& best, int64_t dim) {
  const Value all = broadcast_over(b, best, x.dims(), {dim});
  Value hit = b.compare(Cmp::EQ, x, all);
  if (is_float(x.dtype())) hit = b.or_(hit, is_nan(b, x));
  const DType index = x.dim(dim) < (int64_t{1} << 31) ? DType::I32 : DType::I64;
  const Value last = b.max_value({index, {}});
  const Value place = b.select(hit, b.iota({index, x.dims()}, dim), b.broadcast_to(last, x.dims()));
  return b.reduce1(place, last, {dim}, &Builder::min);
}

template <Extreme e>
Values extreme_all(Call& c) {
  TPJ_CHECK(c.type(0).numel() > 0, "[", c.name(),
            "] expected a non-empty input: the extreme of nothing is not defined");
  return {shaped(c, extreme_over<e>(c.b, c.tensor(0), normalized_dims({}, c.type(0).rank())))};
}

template <Extreme e>
Values extreme_dims(Call& c) {
  return {shaped(c, extreme_over<e>(c.b, c.tensor(0), reduced_dims(c, 1)))};
}

// (values, indices) along one dimension.
template <Extreme e>
Values extreme_dim(Call& c) {
  const Value x = c.tensor(0);
  if (x.rank() == 0) return {x, c.b.constant(c.result(1), 0)};
  const int64_t dim = dim_with_elements(c.integer(1), x);
  const Value best = extreme_over<e>(c.b, x, {dim});
  return {shaped(c, best), shaped(c, place_of(c.b, x, best, dim), 1)};
}

// Without a dim, the place in the flat tensor.
template <Extreme e>
Values arg_extreme(Call& c) {
  const bool flat = !c.has(1) || c.type(0).rank() == 0;
  const Value x = flat ? c.b.reshape(c.tensor(0), {c.type(0).numel()}) : c.tensor(0);
  const int64_t dim = flat ? 0 : normalized_dim(c.integer(1), x.rank());
  return {shaped(c, place_of(c.b, x, extreme_over<e>(c.b, x, {dim}), dim))};
}

template <size_t dims>
Values aminmax(Call& c) {
  const Value x = c.tensor(0);
  const Dims over = reduced_dims(c, dims);
  return {shaped(c, extreme_over<Extreme::kMin>(c.b, x, over)),
          shaped(c, extreme_over<Extreme::kMax>(c.b, x, over), 1)};
}

// ---- variance

struct Moments {
  Value var, mean;
};

// Two passes: the mean, then the squares about it, over max(0, n - correction). Of a complex tensor, the sum of both
// parts' variances.
Moments moments(Call& c, const Value& x, const Dims& dims, size_t correction) {
  Builder& b = c.b;
  if (is_complex(x.dtype())) {
    const Moments re = moments(c, b.real(x), dims, correction), im = moments(c, b.imag(x), dims, correction);
    return {b.add(re.var, im.var), b.complex(re.mean, im.mean)};
  }
  const Value mean = mean_over(b, x, dims);
  const Value off = b.sub(x, broadcast_over(b, mean, x.dims(), dims)), squares = sum_over(b, b.mul(off, off), dims);
  const Value n = b.scalar(x.dtype(), static_cast<double>(size_over(x.dims(), dims)));
  const Value free = b.sub(n, c.has(correction) ? c.scalar(correction, x.dtype()) : b.like(n, 1));
  return {b.div(squares, b.broadcast_to(b.max(free, b.like(n, 0)), squares.dims())), mean};
}

// (self, dim, correction, keepdim)
Moments moments(Call& c) {
  const DType t = c.type(0).dtype;
  TPJ_CHECK(is_float(t) || is_complex(t), c.name(), " of ", info(t).name);
  return moments(c, c.tensor(0, opmath(t)), reduced_dims(c, 1), 2);
}

Values var(Call& c) { return {shaped(c, moments(c).var)}; }
Values std_(Call& c) { return {shaped(c, c.b.sqrt(moments(c).var))}; }

Values var_mean(Call& c) {
  const Moments m = moments(c);
  return {shaped(c, m.var), shaped(c, m.mean, 1)};
}

Values std_mean(Call& c) {
  const Moments m = moments(c);
  return {shaped(c, c.b.sqrt(m.var)), shaped(c, m.mean, 1)};
}

// ---- norms

// sum |x|^ord over `dims`, `ord` being a number argument, or absent for 2; then the root, unless `power` is asked for.
Value norm_over(Call& c, Value x, const Dims& dims, size_t ord, bool power = false) {
  Builder& b = c.b;
  const auto is = [&](double p) { return c.is(ord, p); };
  if (!c.has(ord) || is(2)) {
    if (is_complex(x.dtype())) x = b.abs(x);
    const Value squares = sum_over(b, b.mul(x, x), dims);
    return power ? squares : b.sqrt(squares);
  }
  x = b.abs(x);
  if (is(1)) return sum_over(b, x, dims);
  if (is(0)) return sum_over(b, b.convert(b.compare(Cmp::NE, x, b.like(x, 0)), x.dtype()), dims);
  if (is(kInf)) return b.reduce1(x, b.scalar(x.dtype(), 0), dims, &Builder::max);
  if (is(-kInf)) return extreme_over<Extreme::kMin>(b, x, dims);
  const Value p = c.scalar(ord, x.dtype());
  const Value sum = sum_over(b, b.pow(x, b.broadcast_to(p, x.dims())), dims);
  return power ? sum : b.pow(sum, b.broadcast_to(b.div(b.like(p, 1), p), sum.dims()));
}

// Tensor 0 in the opmath of the result's real type, complex if it is complex.
Value norm_input(Call& c) {
  const DType t = opmath(c.result().dtype);
  return c.tensor(0, is_complex(c.type(0).dtype) ? complex_of(t) : t);
}

// (self, ord, dim...): `dims` is the position of the list, if there is one.
template <size_t dims, bool power = false>
Values norm(Call& c) {
  return {shaped(c, norm_over(c, norm_input(c), reduced_dims(c, dims), 1, power))};
}

constexpr size_t kNoDims = 99;

Row::Options ord(std::string_view name) { return {.special = {{name, {0, 1, 2, kInf, -kInf}}}}; }

}  // namespace

std::vector<Row> reduce_rows() {
  return {
      {"_is_all_true", truth<&Builder::and_, kNoDims>},
      {"_is_any_true", truth<&Builder::or_, kNoDims>},
      {"all", truth<&Builder::and_, kNoDims>},
      {"all.dim", truth<&Builder::and_, 1>},
      {"all.dims", truth<&Builder::and_, 1>},
      {"amax", extreme_dims<Extreme::kMax>},
      {"amin", extreme_dims<Extreme::kMin>},
      {"aminmax", aminmax<1>},
      {"any", truth<&Builder::or_, kNoDims>},
      {"any.dim", truth<&Builder::or_, 1>},
      {"any.dims", truth<&Builder::or_, 1>},
      {"argmax", arg_extreme<Extreme::kMax>},
      {"argmin", arg_extreme<Extreme::kMin>},
      {"count_nonzero", count_nonzero},
      {"count_nonzero.dim_IntList", count_nonzero},
      {"linalg_vector_norm", norm<2>, ord("ord")},
      {"hash_tensor", hash_tensor},
      {"histc", histc},
      {"logsumexp", logsumexp},
      {"max", extreme_all<Extreme::kMax>},
      {"max.dim", extreme_dim<Extreme::kMax>},
      {"mean", mean<kNoDims>},
      {"mean.dim", mean<1>},
      {"min", extreme_all<Extreme::kMin>},
      {"min.dim", extreme_dim<Extreme::kMin>},
      {"nansum", nansum},
      {"norm.Scalar", norm<kNoDims>, ord("p")},
      {"norm.ScalarOpt_dim", norm<2>, ord("p")},
      {"norm.ScalarOpt_dim_dtype", norm<2>, ord("p")},
      {"norm.ScalarOpt_dtype", norm<kNoDims>, ord("p")},
      {"prod", prod<kNoDims>},
      {"prod.dim_int", prod<1>},
      {"std.correction", std_},
      {"std_mean.correction", std_mean},
      {"sum", sum<kNoDims>},
      {"sum.dim_IntList", sum<1>},
      {"var.correction", var},
      {"var_mean.correction", var_mean},
  };
}

}  // namespace tpj::lower
