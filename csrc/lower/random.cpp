// Random numbers. Bits come from Philox at the (key, counter) that the runtime hands out; every element uses its own
// bits, so that results depend neither on the plugin nor on how a program is cut.
#include <cmath>
#include <numbers>

#include "lower/common.h"
#include "lower/indexing.h"
#include "lower/row.h"
#include "lower/scan.h"
#include "lower/sort.h"

namespace tpj::lower {
namespace {

// Raw bits of the unsigned type `t`.
Value bits(Call& c, DType t, const Dims& dims) {
  const Type type{t, dims};
  if (type.numel() == 0) return c.b.constant(type, 0);
  const uint64_t bytes = static_cast<uint64_t>(type.numel()) * size_of(t);
  return c.b.rng_philox(c.rng_state((bytes + 15) / 16), type)[1];
}

// The real type that a distribution computes in: float64 only for float64 results.
DType draw_type(DType t) { return real_of(t) == DType::F64 ? DType::F64 : DType::F32; }

// The upper 24 (53) of the bits times 2^-24 (2^-53): all multiples of it in [0, 1).
Value to_unit(Builder& b, const Value& raw) {
  const bool wide = raw.dtype() == DType::U64;
  const DType t = wide ? DType::F64 : DType::F32;
  const Value whole = b.convert(b.shrl(raw, b.constant(raw.type, wide ? 11 : 8)), t);
  return b.mul(whole, b.like(whole, wide ? 0x1p-53 : 0x1p-24));
}

// Uniform in [0, 1), in float32 or float64.
Value unit(Call& c, DType t, const Dims& dims) {
  return to_unit(c.b, bits(c, t == DType::F64 ? DType::U64 : DType::U32, dims));
}

// Uniform in (0, 1]: safe for log.
Value positive_unit(Call& c, DType t, const Dims& dims) {
  const Value u = unit(c, t, dims);
  return c.b.sub(c.b.like(u, 1), u);
}

// Standard normal numbers by Box and Muller (1958), from two uniform numbers each.
Value gaussian(Call& c, DType t, const Dims& dims) {
  Builder& b = c.b;
  const DType raw = t == DType::F64 ? DType::U64 : DType::U32;
  // One draw for both numbers, so that the state is read once.
  const int64_t n = hlo::numel(dims);
  const Value both = to_unit(b, bits(c, raw, {2, n}));
  const Value u = b.reshape(b.slice_dim(both, 0, 0, 1), dims), v = b.reshape(b.slice_dim(both, 0, 1, 2), dims);
  const Value radius = b.sqrt(b.mul(b.log(b.sub(b.like(u, 1), u)), b.like(u, -2)));
  return b.mul(radius, b.cos(b.mul(v, b.like(v, 2 * std::numbers::pi))));
}

// The type of the argument that an in-place operator fills, or of the result.
const Type& filled(Call& c) { return c.result(); }

// ---- in-place distributions: self, then one or two numbers

Values uniform(Call& c) {
  const Type& out = filled(c);
  TPJ_CHECK(is_float(out.dtype) || is_complex(out.dtype), "uniform_: of ", info(out.dtype).name);
  const DType t = draw_type(out.dtype);
  Value u = unit(c, t, out.dims);
  // Narrow floats get no more digits than they have, or rounding would favour some and reach `to` often.
  if (const double steps = out.dtype == DType::BF16 ? 0x1p8 : out.dtype == DType::F16 ? 0x1p11 : 0; steps != 0)
    u = c.b.mul(c.b.floor(c.b.mul(u, c.b.like(u, steps))), c.b.like(u, 1 / steps));
  const Value low = c.number(1, t, out.dims), high = c.number(2, t, out.dims);
  const Value x = cast(c.b, c.b.add(low, c.b.mul(u, c.b.sub(high, low))), out.dtype);
  // Rounding may still reach `to`, which does not belong to the interval.
  const Value end = cast(c.b, high, out.dtype);
  return {c.b.select(c.b.compare(Cmp::EQ, x, end), cast(c.b, low, out.dtype), x)};
}

// mean + std * normal; complex numbers have half the variance in each part.
Value normal_of(Call& c, const Type& out, const Value& mean, const Value& std) {
  Builder& b = c.b;
  const DType t = draw_type(out.dtype);
  if (!is_complex(out.dtype)) return b.add(mean, b.mul(std, gaussian(c, t, out.dims)));
  Dims pair = out.dims;
  pair.insert(pair.begin(), 2);
  const Value z = b.mul(gaussian(c, t, pair), b.constant({t, pair}, std::numbers::sqrt2 / 2));
  const auto part = [&](int64_t i) { return b.mul(std, b.reshape(b.slice_dim(z, 0, i, i + 1), out.dims)); };
  return b.complex(b.add(mean, part(0)), part(1));
}

Values normal_(Call& c) {
  const Type& out = filled(c);
  const DType t = draw_type(out.dtype);
  return {normal_of(c, out, c.number(1, t, out.dims), c.number(2, t, out.dims))};
}

// mean and std are tensors or numbers.
Values normal(Call& c) {
  const Type& out = c.result();
  if (is_complex(out.dtype)) {
    const Value z = normal_of(c, out, c.b.constant({real_of(out.dtype), out.dims}, 0),
                              c.b.constant({real_of(out.dtype), out.dims}, 1));
    return {c.b.add(input(c, 0, out.dtype, out.dims), c.b.mul(input(c, 1, out.dtype, out.dims), z))};
  }
  const DType t = draw_type(out.dtype);
  return {normal_of(c, out, input(c, 0, t, out.dims), input(c, 1, t, out.dims))};
}

Values log_normal(Call& c) { return {c.b.exp(normal_(c)[0])}; }

Values exponential(Call& c) {
  const Type& out = filled(c);
  const DType t = draw_type(out.dtype);
  return {c.b.div(c.b.neg(c.b.log(positive_unit(c, t, out.dims))), c.number(1, t, out.dims))};
}

Values cauchy(Call& c) {
  const Type& out = filled(c);
  const DType t = draw_type(out.dtype);
  const Value u = unit(c, t, out.dims);
  const Value angle = c.b.mul(c.b.sub(u, c.b.like(u, 0.5)), c.b.like(u, std::numbers::pi));
  return {c.b.add(c.number(1, t, out.dims), c.b.mul(c.number(2, t, out.dims), c.b.tan(angle)))};
}

// Number of trials until the first success: ceil(log(u) / log(1 - p)), at least 1.
Values geometric(Call& c) {
  const Type& out = filled(c);
  const DType t = draw_type(is_float(out.dtype) ? out.dtype : DType::F64);
  const Value u = positive_unit(c, t, out.dims), p = c.number(1, t, out.dims);
  const Value trials = c.b.ceil(c.b.div(c.b.log(u), c.b.log1p(c.b.neg(p))));
  return {cast(c.b, c.b.max(trials, c.b.like(trials, 1)), out.dtype)};
}

// ---- integers

// The upper half of the 128-bit product of x and a constant, in 32-bit parts.
Value multiply_high(Builder& b, const Value& x, uint64_t by) {
  const auto number = [&](uint64_t v) { return b.constant(x.type, static_cast<int64_t>(v)); };
  const Value shift = number(32), low_mask = number(0xffffffffu);
  const Value x1 = b.shrl(x, shift), x0 = b.and_(x, low_mask), y1 = number(by >> 32), y0 = number(by & 0xffffffffu);
  const Value middle = b.add(b.mul(x1, y0), b.shrl(b.mul(x0, y0), shift));
  const Value carry = b.add(b.mul(x0, y1), b.and_(middle, low_mask));
  return b.add(b.mul(x1, y1), b.add(b.shrl(middle, shift), b.shrl(carry, shift)));
}

// Uniform whole numbers below `range` (0: all of 64 bits), as bits * range / 2^32 or 2^64: no division, which chips
// without 64-bit integers hardly have.
Value below(Call& c, const Dims& dims, uint64_t range) {
  Builder& b = c.b;
  if (range == 0) return bits(c, DType::U64, dims);
  if (range > 0xffffffffu) return multiply_high(b, bits(c, DType::U64, dims), range);
  const Value x = b.convert(bits(c, DType::U32, dims), DType::U64);
  return b.shrl(b.mul(x, b.constant(x.type, static_cast<int64_t>(range))), b.constant(x.type, 32));
}

// from + a whole number below `range`, in the type to fill.
Value integers(Call& c, int64_t from, uint64_t range) {
  Builder& b = c.b;
  TPJ_CHECK(!is_complex(filled(c).dtype), "random_: of ", info(filled(c).dtype).name);
  const Value x = b.bitcast(below(c, filled(c).dims, range), {DType::I64, filled(c).dims});
  return cast(b, b.add(x, b.constant(x.type, from)), filled(c).dtype);
}

// One past the greatest whole number that random_() gives: floats hold all up to 2^digits.
uint64_t natural_range(DType t) {
  switch (t) {
    case DType::Bool:
      return 2;
    case DType::F16:
      return (1u << 11) + 1;
    case DType::BF16:
      return (1u << 8) + 1;
    case DType::F32:
      return (1u << 24) + 1;
    case DType::F64:
      return (uint64_t{1} << 53) + 1;
    default:
      break;
  }
  const uint64_t bits = 8 * size_of(t) - (is_unsigned(t) ? 0 : 1);
  return bits == 64 ? 0 : uint64_t{1} << bits;
}

Values random(Call& c) { return {integers(c, 0, natural_range(filled(c).dtype))}; }

Values random_to(Call& c) { return {integers(c, 0, static_cast<uint64_t>(c.integer(1)))}; }

Values random_from(Call& c) {
  const int64_t from = c.integer(1);
  if (c.has(2)) return {integers(c, from, static_cast<uint64_t>(c.integer(2)) - static_cast<uint64_t>(from))};
  // Without `to`: up to the greatest number of the type.
  const DType t = filled(c).dtype;
  uint64_t end = natural_range(t);
  if (t == DType::I64 || t == DType::U64) end = uint64_t{1} << 63;
  return {integers(c, from, end - static_cast<uint64_t>(from))};
}

// ---- choices

Value bernoulli_with(Call& c, const Value& p) { return c.b.compare(Cmp::LT, unit(c, p.dtype(), p.dims()), p); }

// Probabilities are float32 or, if they come so, float64.
DType probability_type(Call& c, size_t i) { return c.type(i).dtype == DType::F64 ? DType::F64 : DType::F32; }

Values bernoulli(Call& c) {
  const Type& out = c.result();
  return {cast(c.b, bernoulli_with(c, c.operand(0, probability_type(c, 0), out.dims)), out.dtype)};
}

// Argument 1 is the probability, a number or a tensor.
Values bernoulli_p(Call& c) {
  const Type& out = filled(c);
  const DType t = is_number(c, 1) ? draw_type(out.dtype) : probability_type(c, 1);
  return {cast(c.b, bernoulli_with(c, input(c, 1, t, out.dims)), out.dtype)};
}

// (x * mask / (1 - p), mask). With p = 1 everything is dropped.
Values native_dropout(Call& c) {
  Builder& b = c.b;
  const DType t = opmath(c.result().dtype);
  const Value x = c.tensor(0, t);
  if (c.has(2) && !c.flag(2)) return {x, b.constant(c.result(1), true)};
  const DType real = real_of(t);
  const Value keep = b.sub(b.scalar(real, 1), c.scalar(1, real));
  const Value mask = bernoulli_with(c, b.broadcast_to(keep, x.dims()));
  const Value dropped = b.compare(Cmp::EQ, keep, b.like(keep, 0));
  const Value scale = b.select(dropped, b.like(keep, 0), b.div(b.like(keep, 1), keep));
  // PyTorch multiplies by the mask: a dropped NaN stays NaN.
  const Value factor = b.select(mask, b.broadcast_to(scale, x.dims()), b.constant({real, x.dims()}, 0));
  return {b.mul(x, cast(b, factor, t)), mask};
}

Values native_dropout_backward(Call& c) {
  Builder& b = c.b;
  const DType t = opmath(c.result().dtype);
  const Value grad = c.tensor(0, t);
  return {b.mul(grad, b.mul(cast(b, c.tensor(1), t), c.number(2, t, grad.dims())))};
}

// rrelu_with_noise: (self, noise, lower, upper, training) -> (result, noise). In training each number that is not
// positive has its own slope, kept as noise; else all have the mean slope and the noise stays.
Values rrelu(Call& c) {
  Builder& b = c.b;
  const DType t = opmath(c.type(0).dtype);
  const Value x = c.tensor(0, t);
  const Value low = c.number(2, t, x.dims()), high = c.number(3, t, x.dims());
  const Value leaks = b.compare(Cmp::LE, x, b.like(x, 0));
  if (!c.flag(4)) {
    const Value slope = b.mul(b.add(low, high), b.like(x, 0.5));
    return {b.select(leaks, b.mul(x, slope), x), {}};
  }
  const Value u = b.convert(unit(c, draw_type(t), x.dims()), t), drawn = b.add(low, b.mul(u, b.sub(high, low)));
  const Value noise = b.select(leaks, drawn, b.like(x, 1));
  return {b.select(leaks, b.mul(x, noise), x), noise};
}

// ---- permutations and samples

// The numbers 0 .. n-1 in the order of 64 random bits each; equal keys keep their order, which at 2^-64 nobody sees.
Values randperm(Call& c) {
  Builder& b = c.b;
  const Type& out = c.result();
  const Value keys = bits(c, DType::U64, out.dims);
  const Value numbers = b.iota({DType::I64, out.dims}, 0);
  if (out.numel() <= 1) return {cast(b, numbers, out.dtype)};
  const Values sorted =
      b.sort({keys, numbers}, 0, true, [&b](const Values& a) { return Values{b.compare(Cmp::LT, a[0], a[1])}; });
  return {cast(b, sorted[1], out.dtype)};
}

// Exponential races (Efraimidis and Spirakis 2006): the k least of E / p are a sample without replacement, the first of
// n independent ones a sample with replacement.
Values multinomial(Call& c) {
  TPJ_CHECK(is_float(c.type(0).dtype), "multinomial: probabilities of ", info(c.type(0).dtype).name);
  Builder& b = c.b;
  const int64_t samples = c.integer(1);
  TPJ_CHECK(samples > 0, "cannot sample n_sample <= 0 samples");
  const bool replacement = c.flag(2);
  const DType t = draw_type(c.type(0).dtype);
  const Value p = c.tensor(0, t);
  const int64_t last = p.rank() - 1, n = p.dim(last);
  TPJ_CHECK(n <= int64_t{1} << 24, "number of categories cannot exceed 2^24");
  const Dims& out = c.result_dims();
  if (c.result().numel() == 0) return {b.constant(c.result(), 0)};
  if (!replacement) {
    const Value race = b.div(b.neg(b.log(positive_unit(c, t, p.dims()))), p);
    const Value at = b.iota({DType::I32, p.dims()}, last);
    const Values order =
        b.sort({race, at}, last, true, [&b](const Values& a) { return Values{b.compare_total(Cmp::LT, a[0], a[1])}; });
    return {b.slice_dim(order[1], last, 0, samples)};
  }
  // By the inverse of the distribution: how many running sums are at or below u * total.
  const Value sums = running(b, p, last, &Builder::add, b.scalar(t, 0));
  const Value total = b.slice_dim(sums, last, n - 1, n);
  const Value u = b.mul(unit(c, t, out), b.broadcast_to(total, out));
  const Value count = search(b, sums, u, /*right=*/true);
  return {b.min(count, b.constant(count.type, n - 1))};
}

// ---- parameters that a distribution does not take

using Numbers = std::span<const GivenNumber>;

template <size_t I>
bool not_positive(Numbers args, DType) {
  return !(args[I].value > 0);
}

bool negative_deviation(Numbers args, DType) {
  return args[args.size() - 2].given && !(args[args.size() - 2].value >= 0);
}

bool no_probability(Numbers args, DType) { return args[1].given && !(args[1].value >= 0 && args[1].value <= 1); }

bool no_proper_probability(Numbers args, DType) { return !(args[1].value > 0 && args[1].value < 1); }

// random_ from args[1] (or 0) below args[last] (or to the greatest number): PyTorch takes what the type holds exactly,
// warns of what it holds otherwise, and refuses the rest.
template <size_t Last>
bool no_integers(Numbers args, DType t) {
  const double from = Last == 1 ? 0 : args[1].value, limit = static_cast<double>(natural_range(t));
  const double most = limit == 0 ? greatest(t) : limit, least = is_unsigned(t) || is_bool(t) ? 0 : -most;
  const double end = args[Last].given ? args[Last].value : most;
  return !(from < end && from >= least && end <= most);
}

// randperm: as many numbers as the type has.
bool too_many(Numbers args, DType t) {
  const double limit = static_cast<double>(natural_range(t));
  return limit != 0 && args[0].value > limit;
}

// The ends are numbers of the type, in order, and so is their difference.
bool no_interval(Numbers args, DType t) {
  const double from = args[1].value, to = args[2].value, most = greatest(t);
  return !(std::abs(from) <= most && std::abs(to) <= most && from <= to && to - from <= most);
}

}  // namespace

std::vector<Row> random_rows() {
  return {
      {"bernoulli", bernoulli},
      {"bernoulli.p", bernoulli_p, {.refuses = no_probability}},
      {"bernoulli_.Tensor", bernoulli_p},
      {"bernoulli_.float", bernoulli_p, {.refuses = no_probability}},
      {"cauchy_", cauchy, {.refuses = not_positive<2>}},
      {"exponential_", exponential, {.refuses = not_positive<1>}},
      {"geometric_", geometric, {.refuses = no_proper_probability}},
      {"log_normal_", log_normal, {.refuses = not_positive<2>}},
      {"multinomial", multinomial},
      {"native_dropout", native_dropout, {.refuses = no_probability}},
      {"native_dropout_backward", native_dropout_backward},
      {"normal.Tensor_Tensor", normal, {.bounds = Bounds::kDeviations}},
      {"normal.Tensor_float", normal, {.refuses = negative_deviation}},
      {"normal.float_Tensor", normal, {.bounds = Bounds::kDeviations}},
      {"normal_", normal_, {.refuses = negative_deviation}},
      {"random_", random},
      {"random_.from", random_from, {.refuses = no_integers<2>}},
      {"random_.to", random_to, {.refuses = no_integers<1>}},
      {"randperm.generator_out", randperm, {.refuses = too_many}},
      {"rrelu_with_noise", rrelu},
      {"rrelu_with_noise_", rrelu},
      {"uniform_", uniform, {.refuses = no_interval}},
  };
}

}  // namespace tpj::lower
