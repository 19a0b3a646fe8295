#include "hlo/builder.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "hlo/literal.h"

namespace tpj::hlo {
namespace {

Dims iota_dims(int64_t n) {
  Dims d(static_cast<size_t>(n));
  std::iota(d.begin(), d.end(), 0);
  return d;
}

// `dense<[[0, 1], [2, 3]]> : tensor<2x2xi64>`
std::string padding_attr(const std::vector<std::pair<int64_t, int64_t>>& padding) {
  std::string s = "padding = dense<[";
  for (size_t i = 0; i < padding.size(); ++i)
    s += str(i ? ", " : "", "[", padding[i].first, ", ", padding[i].second, "]");
  return str(s, "]> : tensor<", padding.size(), "x2xi64>");
}

const char* name_of(Cmp dir) {
  static constexpr const char* kNames[] = {"EQ", "NE", "LT", "LE", "GT", "GE"};
  return kNames[static_cast<int>(dir)];
}

const char* compare_type(DType t) {
  if (is_float(t) || is_complex(t)) return "FLOAT";
  return info(t).kind == DKind::kSigned ? "SIGNED" : "UNSIGNED";
}

std::string compare_attrs(Cmp dir, const char* type) {
  return str("compare_type = #stablehlo<comparison_type ", type,
             ">, comparison_direction = #stablehlo<comparison_direction ", name_of(dir), ">");
}

std::string window_attrs(const Window& w) {
  return str("window_dimensions = ", i64_array(w.dims), ", window_strides = ", i64_array(w.strides),
             ", base_dilations = ", i64_array(w.base_dilations), ", window_dilations = ", i64_array(w.dilations), ", ",
             padding_attr(w.padding));
}

std::vector<Type> scalar_types(const Values& xs, int copies) {
  std::vector<Type> types;
  for (int c = 0; c < copies; ++c)
    for (const Value& x : xs) types.push_back({x.dtype(), {}});
  return types;
}

void append_uses(const Region& region, std::vector<int>& uses) {
  for (const Op& op : region.ops) {
    uses.insert(uses.end(), op.operands.begin(), op.operands.end());
    for (const Region& r : op.regions) append_uses(r, uses);
  }
  for (const Value& v : region.results) uses.push_back(v.id);
}

// Operations of ordered numbers: PyTorch refuses complex ones, and XLA's CPU plugin crashes on some (remainder).
bool is_for_reals(std::string_view name) {
  constexpr std::array<std::string_view, 8> kNames{
      "stablehlo.atan2",   "stablehlo.cbrt",    "stablehlo.ceil",      "stablehlo.floor",
      "stablehlo.maximum", "stablehlo.minimum", "stablehlo.remainder", "stablehlo.round_nearest_even"};
  return std::find(kNames.begin(), kNames.end(), name) != kNames.end();
}

// Operations on bits: PyTorch refuses floats.
bool is_for_bits(std::string_view name) {
  constexpr std::array<std::string_view, 8> kNames{"stablehlo.and",
                                                   "stablehlo.not",
                                                   "stablehlo.or",
                                                   "stablehlo.popcnt",
                                                   "stablehlo.shift_left",
                                                   "stablehlo.shift_right_arithmetic",
                                                   "stablehlo.shift_right_logical",
                                                   "stablehlo.xor"};
  return std::find(kNames.begin(), kNames.end(), name) != kNames.end();
}

bool is_within(const Dims& dims, int64_t rank) {
  return std::all_of(dims.begin(), dims.end(), [&](int64_t d) { return d >= 0 && d < rank; });
}

bool is_positive(const Dims& values) {
  return std::all_of(values.begin(), values.end(), [](int64_t v) { return v > 0; });
}

}  // namespace

std::string list(const Dims& values) {
  std::string s = "[";
  for (size_t i = 0; i < values.size(); ++i) s += (i ? ", " : "") + std::to_string(values[i]);
  return s + "]";
}

std::string i64_array(const Dims& values) {
  if (values.empty()) return "array<i64>";
  std::string s = "array<i64: ";
  for (size_t i = 0; i < values.size(); ++i) s += (i ? ", " : "") + std::to_string(values[i]);
  return s + ">";
}

std::string Type::str() const {
  std::string s = "tensor<";
  for (int64_t d : dims) s += std::to_string(d) + "x";
  return s + info(dtype).name + ">";
}

Builder::Builder(const Limits& limits) : limits_(limits) { open_.push_back(&main_); }

Values Builder::emit(std::string_view name, const Values& operands, const std::vector<Type>& results, std::string attrs,
                     std::vector<Region> regions) {
  TPJ_CHECK(operands.empty() || !is_complex(operands[0].dtype()) || !is_for_reals(name), name, " of complex numbers");
  TPJ_CHECK(
      operands.empty() || is_integer(operands[0].dtype()) || operands[0].dtype() == DType::Bool || !is_for_bits(name),
      name, " of ", operands[0].type.str());
  Op op;
  op.name = name;
  for (const Value& v : operands) {
    TPJ_ASSERT(v, name, " with an operand that was never made");
    op.operands.push_back(v.id);
    op.operand_types.push_back(v.type);
  }
  op.first_result = static_cast<int>(uniform_.size());
  op.results = results;
  op.attrs = std::move(attrs);
  op.regions = std::move(regions);
  op.location = location_;
  const bool splat = name == "stablehlo.constant" && op.attrs.find('[') == std::string::npos;
  Uniform all = operands.empty() && !splat ? Uniform::kNo : Uniform::kYes;
  for (const Value& v : operands) all = std::min(all, uniform(v));
  Values out;
  for (const Type& t : results) {
    if (is_integer(t.dtype)) check_dtype(limits_, t.dtype);
    out.push_back({add_value(t, all), t});
  }
  open_.back()->ops.push_back(std::move(op));
  return out;
}

namespace {

// In MLIR's quotes: bytes that it does not take as they are become two hexadecimal digits.
std::string quoted(std::string_view s) {
  static constexpr std::string_view kDigits = "0123456789ABCDEF";
  std::string out = "\"";
  for (const char c : s) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x20 && byte < 0x7f && c != '"' && c != '\\')
      out += c;
    else
      out += {'\\', kDigits[byte >> 4], kDigits[byte & 15]};
  }
  return out + "\"";
}

}  // namespace

void Builder::locate(std::string_view name, std::string_view file, int line) {
  location_ = quoted(name);
  if (!file.empty()) location_ += "(" + quoted(file) + ":" + std::to_string(line) + ":0)";
}

int Builder::add_value(const Type& type, Uniform uniform) {
  uniform_.push_back(type.numel() == 1 ? Uniform::kYes : uniform);
  return static_cast<int>(uniform_.size()) - 1;
}

Value Builder::parameter(const Type& wanted) {
  const Type type{fitting(limits_, wanted.dtype), wanted.dims};
  check_dtype(limits_, type.dtype);
  main_.args.push_back({add_value(type, Uniform::kIfParametersAre), type});
  return main_.args.back();
}

Value Builder::constant(const Type& wanted, double value) {
  const Type type{fitting(limits_, wanted.dtype), wanted.dims};
  return emit1("stablehlo.constant", {}, type, str("value = dense<", literal(type.dtype, value), "> : ", type.str()));
}

Value Builder::constant(const Type& wanted, int64_t value) {
  const bool fits = static_cast<int32_t>(value) == value;
  const Type type{fits || !is_integer(wanted.dtype) ? fitting(limits_, wanted.dtype) : wanted.dtype, wanted.dims};
  return emit1("stablehlo.constant", {}, type, str("value = dense<", literal(type.dtype, value), "> : ", type.str()));
}

Value Builder::complex_constant(const Type& wanted, double re, double im) {
  const Type type{fitting(limits_, wanted.dtype), wanted.dims};
  return emit1("stablehlo.constant", {}, type,
               str("value = dense<(", literal(real_of(type.dtype), re), ", ", literal(real_of(type.dtype), im),
                   ")> : ", type.str()));
}

Value Builder::dense(const Type& type, const std::vector<int64_t>& values) {
  TPJ_ASSERT(type.numel() == static_cast<int64_t>(values.size()), type.str(), " from ", values.size(), " values");
  return emit1("stablehlo.constant", {}, type, str("value = ", dense_literal(type, values), " : ", type.str()));
}

Value Builder::max_value(const Type& type) {
  return is_float(type.dtype) ? constant(type, extreme_float(type.dtype, true))
                              : constant(type, extreme_int(type.dtype, true));
}

Value Builder::min_value(const Type& type) {
  return is_float(type.dtype) ? constant(type, extreme_float(type.dtype, false))
                              : constant(type, extreme_int(type.dtype, false));
}

Value Builder::iota(const Type& wanted, int64_t dim) {
  const Type type{fitting(limits_, wanted.dtype), wanted.dims};
  return emit1("stablehlo.iota", {}, type, str("iota_dimension = ", dim, " : i64"));
}

Value Builder::abs(const Value& x) {
  if (is_complex(x.dtype())) return emit1("stablehlo.abs", {x}, {real_of(x.dtype()), x.dims()});
  return info(x.dtype()).kind == DKind::kUnsigned || is_bool(x.dtype()) ? x : abs_(x);
}

Value Builder::real(const Value& x) { return emit1("stablehlo.real", {x}, {real_of(x.dtype()), x.dims()}); }
Value Builder::imag(const Value& x) { return emit1("stablehlo.imag", {x}, {real_of(x.dtype()), x.dims()}); }

Value Builder::complex(const Value& re, const Value& im) {
  return emit1("stablehlo.complex", {re, im}, {complex_of(re.dtype()), re.dims()});
}

Value Builder::is_finite(const Value& x) { return emit1("stablehlo.is_finite", {x}, {DType::Bool, x.dims()}); }

Value Builder::compare(Cmp dir, const Value& x, const Value& y) {
  TPJ_ASSERT(x.type == y.type, "compare ", x.type.str(), " with ", y.type.str());
  TPJ_CHECK(!is_complex(x.dtype()) || dir == Cmp::EQ || dir == Cmp::NE, "complex numbers have no order");
  return emit1("stablehlo.compare", {x, y}, {DType::Bool, x.dims()}, compare_attrs(dir, compare_type(x.dtype())));
}

Value Builder::compare_total(Cmp dir, const Value& x, const Value& y) {
  TPJ_ASSERT(x.type == y.type, "compare ", x.type.str(), " with ", y.type.str());
  const char* type = is_float(x.dtype()) ? "TOTALORDER" : compare_type(x.dtype());
  return emit1("stablehlo.compare", {x, y}, {DType::Bool, x.dims()}, compare_attrs(dir, type));
}

Value Builder::select(const Value& pred, const Value& on_true, const Value& on_false) {
  TPJ_ASSERT(
      on_true.type == on_false.type && is_bool(pred.dtype()) && (pred.rank() == 0 || pred.dims() == on_true.dims()),
      "select ", pred.type.str(), " ? ", on_true.type.str(), " : ", on_false.type.str());
  return emit1("stablehlo.select", {pred, on_true, on_false}, on_true.type);
}

Value Builder::clamp(const Value& lo, const Value& x, const Value& hi) {
  return emit1("stablehlo.clamp", {lo, x, hi}, x.type);
}

Value Builder::convert(const Value& x, DType wanted) {
  const DType dtype = fitting(limits_, wanted);
  return x.dtype() == dtype ? x : emit1("stablehlo.convert", {x}, {dtype, x.dims()});
}

Value Builder::bitcast(const Value& x, const Type& type) {
  TPJ_CHECK(is_complex(x.dtype()) == is_complex(type.dtype), "bits of ", x.type.str(), " as ", type.str());
  if (!limits_.float64 && x.dims() == type.dims && size_of(x.dtype()) != size_of(type.dtype))
    check_dtype(limits_, DType::F64);  // x would be one
  return x.type == type ? x : emit1("stablehlo.bitcast_convert", {x}, type);
}

Value Builder::reduce_precision(const Value& x, int exponent_bits, int mantissa_bits) {
  return emit1("stablehlo.reduce_precision", {x}, x.type,
               str("exponent_bits = ", exponent_bits, " : i32, mantissa_bits = ", mantissa_bits, " : i32"));
}

Value Builder::chlo(std::string_view mnemonic, const Values& operands) {
  return emit1(str("chlo.", mnemonic), operands, operands[0].type);
}

Values Builder::top_k(const Value& x, int64_t k) {
  Dims dims = x.dims();
  TPJ_ASSERT(!dims.empty() && 0 <= k && k <= dims.back(), "top ", k, " of ", x.type.str());
  dims.back() = k;
  return emit("chlo.top_k", {x}, {{x.dtype(), dims}, {DType::I32, dims}}, str("k = ", k, " : i64"));
}

namespace {

bool is_wide(const Type& t) { return is_integer(t.dtype) && size_of(t.dtype) == 8 && !t.dims.empty(); }

}  // namespace

Value Builder::div(const Value& x, const Value& y) {
  if (is_wide(x.type) && !limits_.int64_division) return divide_by_steps(x, y)[0];
  if (!is_float(x.dtype()) || uniform(y) != Uniform::kYes) return div_(x, y);
  // XLA (0.11) multiplies by the reciprocal of a divisor that is one number for all elements: 123 / 41 < 3. It does not
  // see that this condition always holds; LLVM, after it, does.
  return div_(x, select(or_(compare(Cmp::EQ, x, x), compare(Cmp::NE, x, x)), y, x));
}

Value Builder::rem(const Value& x, const Value& y) {
  return is_wide(x.type) && !limits_.int64_division ? divide_by_steps(x, y)[1] : rem_(x, y);
}

Values Builder::divide_by_steps(const Value& x, const Value& y) {
  const bool has_sign = x.dtype() == DType::I64;
  const Type wide{DType::U64, x.dims()}, counter{DType::I32, {}};
  const auto magnitude = [&](const Value& v) { return has_sign ? convert(abs(v), DType::U64) : v; };
  const Value n = magnitude(x), d = magnitude(y), zero = constant(wide, 0), one = constant(wide, 1);
  // From the highest bit on: the remainder takes the next bit of n, and the quotient a 1 where d fits.
  const Values done = while_(
      {constant(counter, 0), n, zero, zero},
      [&](const Values& a) { return Values{compare(Cmp::LT, a[0], constant(counter, 64))}; },
      [&](const Values& a) {
        const Value top = shrl(a[1], constant(wide, 63)), r = or_(shl(a[3], one), top);
        const Value fits = or_(compare(Cmp::GE, r, d), compare(Cmp::NE, shrl(a[3], constant(wide, 63)), zero));
        const Value q = or_(shl(a[2], one), select(fits, one, zero));
        return Values{add(a[0], constant(counter, 1)), shl(a[1], one), q, select(fits, sub(r, d), r)};
      });
  Value q = done[2], r = done[3];
  if (!has_sign) return {q, r};
  q = convert(q, DType::I64), r = convert(r, DType::I64);
  const Value none = like(x, 0), x_minus = compare(Cmp::LT, x, none), y_minus = compare(Cmp::LT, y, none);
  q = select(xor_(x_minus, y_minus), neg(q), q);
  return {select(compare(Cmp::EQ, y, none), like(x, -1), q), select(x_minus, neg(r), r)};
}

Value Builder::reshape(const Value& x, const Dims& dims) {
  if (x.dims() == dims) return x;
  TPJ_ASSERT(numel(dims) == x.type.numel(), "reshape of ", x.type.str(), " to ", list(dims));
  return emit1("stablehlo.reshape", {x}, {x.dtype(), dims});
}

Value Builder::transpose(const Value& x, const Dims& permutation) {
  TPJ_ASSERT(permutation.size() == x.dims().size(), "transpose of ", x.type.str(), " by ", list(permutation));
  if (permutation == iota_dims(x.rank())) return x;
  Type t{x.dtype(), {}};
  for (int64_t p : permutation) t.dims.push_back(x.dim(p));
  return emit1("stablehlo.transpose", {x}, t, str("permutation = ", i64_array(permutation)));
}

Value Builder::broadcast_in_dim(const Value& x, const Dims& result, const Dims& dims_map) {
  if (x.dims() == result && dims_map == iota_dims(x.rank())) return x;
  TPJ_ASSERT(dims_map.size() == x.dims().size(), "broadcast_in_dim of ", x.type.str(), " by ", list(dims_map));
  TPJ_CHECK(is_within(dims_map, static_cast<int64_t>(result.size())), "broadcast_in_dim of ", x.type.str(), " by ",
            list(dims_map));
  for (size_t i = 0; i < dims_map.size(); ++i)
    TPJ_ASSERT(x.dims()[i] == 1 || x.dims()[i] == result[static_cast<size_t>(dims_map[i])], "broadcast_in_dim of ",
               x.type.str(), " to ", list(result), " by ", list(dims_map));
  return emit1("stablehlo.broadcast_in_dim", {x}, {x.dtype(), result},
               str("broadcast_dimensions = ", i64_array(dims_map)));
}

Value Builder::broadcast_to(const Value& x, const Dims& result) {
  const int64_t shift = static_cast<int64_t>(result.size()) - x.rank();
  TPJ_ASSERT(shift >= 0, "broadcast of ", x.type.str(), " to ", list(result));
  Dims map = iota_dims(x.rank());
  for (int64_t& d : map) d += shift;
  return broadcast_in_dim(x, result, map);
}

Value Builder::slice(const Value& x, const Dims& start, const Dims& limit, const Dims& stride) {
  Type t{x.dtype(), {}};
  for (size_t i = 0; i < start.size(); ++i) {
    TPJ_ASSERT(start[i] >= 0 && limit[i] <= x.dims()[i] && start[i] <= limit[i] && stride[i] > 0, "slice of ",
               x.type.str(), " ", list(start), " ", list(limit), " ", list(stride));
    t.dims.push_back((limit[i] - start[i] + stride[i] - 1) / stride[i]);
  }
  if (t.dims == x.dims()) return x;
  return emit1("stablehlo.slice", {x}, t,
               str("start_indices = ", i64_array(start), ", limit_indices = ", i64_array(limit),
                   ", strides = ", i64_array(stride)));
}

Value Builder::slice_dim(const Value& x, int64_t dim, int64_t start, int64_t limit, int64_t stride) {
  Dims lo(x.dims().size(), 0), hi = x.dims(), step(x.dims().size(), 1);
  const auto d = static_cast<size_t>(dim);
  lo[d] = start, hi[d] = limit, step[d] = stride;
  return slice(x, lo, hi, step);
}

Value Builder::dynamic_slice(const Value& x, const Values& start, const Dims& sizes) {
  Values operands{x};
  operands.insert(operands.end(), start.begin(), start.end());
  return emit1("stablehlo.dynamic_slice", operands, {x.dtype(), sizes}, str("slice_sizes = ", i64_array(sizes)));
}

Value Builder::dynamic_update_slice(const Value& x, const Value& update, const Values& start) {
  if (update.type == x.type) return update;
  Values operands{x, update};
  operands.insert(operands.end(), start.begin(), start.end());
  return emit1("stablehlo.dynamic_update_slice", operands, x.type);
}

Value Builder::pad(const Value& x, const Value& fill, const Dims& low, const Dims& high, const Dims& interior) {
  Type t{x.dtype(), {}};
  for (size_t i = 0; i < low.size(); ++i)
    t.dims.push_back(low[i] + high[i] + x.dims()[i] + std::max<int64_t>(x.dims()[i] - 1, 0) * interior[i]);
  if (t.dims == x.dims() && std::all_of(low.begin(), low.end(), [](int64_t v) { return v == 0; })) return x;
  return emit1("stablehlo.pad", {x, fill}, t,
               str("edge_padding_low = ", i64_array(low), ", edge_padding_high = ", i64_array(high),
                   ", interior_padding = ", i64_array(interior)));
}

Value Builder::concatenate(const Values& xs, int64_t dim) {
  if (xs.size() == 1) return xs[0];
  Type t = xs[0].type;
  TPJ_CHECK(is_within({dim}, t.rank()), "concatenate along ", dim, " of ", t.str());
  t.dims[static_cast<size_t>(dim)] = 0;
  for (const Value& x : xs) {
    TPJ_CHECK(x.rank() == t.rank() && x.dtype() == t.dtype, "concatenate ", xs[0].type.str(), " and ", x.type.str());
    t.dims[static_cast<size_t>(dim)] += x.dim(dim);
  }
  return emit1("stablehlo.concatenate", xs, t, str("dimension = ", dim, " : i64"));
}

Value Builder::reverse(const Value& x, const Dims& dims) {
  return dims.empty() ? x : emit1("stablehlo.reverse", {x}, x.type, str("dimensions = ", i64_array(dims)));
}

Region Builder::region(const std::vector<Type>& args, const Body& body) {
  Region r;
  for (const Type& t : args) r.args.push_back({add_value(t, Uniform::kNo), t});
  open_.push_back(&r);
  r.results = body(r.args);
  open_.pop_back();
  return r;
}

Values Builder::reduce(const Values& xs, const Values& inits, const Dims& dims, const Body& body) {
  std::vector<Type> results;
  for (const Value& x : xs) {
    TPJ_CHECK(is_within(dims, x.rank()), "reduce ", x.type.str(), " over ", list(dims));
    Type t{x.dtype(), {}};
    for (int64_t i = 0; i < x.rank(); ++i)
      if (std::find(dims.begin(), dims.end(), i) == dims.end()) t.dims.push_back(x.dim(i));
    results.push_back(t);
  }
  Values operands = xs;
  operands.insert(operands.end(), inits.begin(), inits.end());
  std::vector<Region> regions;
  regions.push_back(region(scalar_types(xs, 2), body));
  return emit("stablehlo.reduce", operands, results, str("dimensions = ", i64_array(dims)), std::move(regions));
}

Value Builder::reduce1(const Value& x, const Value& init, const Dims& dims,
                       Value (Builder::*op)(const Value&, const Value&)) {
  return reduce({x}, {init}, dims, [&](const Values& a) { return Values{(this->*op)(a[0], a[1])}; })[0];
}

Values Builder::reduce_window(const Values& xs, const Values& inits, const Window& w, const Body& body) {
  std::vector<Type> results;
  for (const Value& x : xs) {
    Type t{x.dtype(), {}};
    for (size_t i = 0; i < w.dims.size(); ++i) {
      const int64_t size = x.dims()[i] == 0 ? 0 : (x.dims()[i] - 1) * w.base_dilations[i] + 1;
      const int64_t padded = size + w.padding[i].first + w.padding[i].second,
                    reach = (w.dims[i] - 1) * w.dilations[i] + 1;
      t.dims.push_back(padded < reach ? 0 : (padded - reach) / w.strides[i] + 1);
    }
    results.push_back(t);
  }
  Values operands = xs;
  operands.insert(operands.end(), inits.begin(), inits.end());
  std::vector<Region> regions;
  regions.push_back(region(scalar_types(xs, 2), body));
  return emit("stablehlo.reduce_window", operands, results, window_attrs(w), std::move(regions));
}

Value Builder::select_and_scatter(const Value& x, const Value& source, const Value& init, const Window& w,
                                  const Body& select, const Body& scatter) {
  std::vector<Region> regions;
  regions.push_back(region(scalar_types({x}, 2), select));
  regions.push_back(region(scalar_types({x}, 2), scatter));
  return emit1("stablehlo.select_and_scatter", {x, source, init}, x.type,
               str("window_dimensions = ", i64_array(w.dims), ", window_strides = ", i64_array(w.strides), ", ",
                   padding_attr(w.padding)),
               std::move(regions));
}

Values Builder::sort(const Values& xs, int64_t dim, bool stable, const Body& less) {
  std::vector<Type> args, results;
  for (const Value& x : xs) {
    args.insert(args.end(), 2, Type{x.dtype(), {}});
    results.push_back(x.type);
  }
  std::vector<Region> regions;
  regions.push_back(region(args, less));
  return emit("stablehlo.sort", xs, results,
              str("dimension = ", dim, " : i64, is_stable = ", stable ? "true" : "false"), std::move(regions));
}

Values Builder::while_(const Values& init, const Body& cond, const Body& body) {
  std::vector<Type> types;
  for (const Value& v : init) types.push_back(v.type);
  std::vector<Region> regions;
  regions.push_back(region(types, cond));
  regions.push_back(region(types, body));
  return emit("stablehlo.while", init, types, {}, std::move(regions));
}

Values Builder::if_(const Value& pred, const std::function<Values()>& then_, const std::function<Values()>& else_) {
  std::vector<Region> regions;
  std::vector<Type> types;
  for (const std::function<Values()>* part : {&then_, &else_})
    regions.push_back(region({}, [&](const Values&) {
      const Values results = (*part)();
      std::vector<Type> given;
      for (const Value& v : results) given.push_back(v.type);
      TPJ_CHECK(part == &then_ || given == types, "the two branches give other types");
      types = std::move(given);
      return results;
    }));
  return emit("stablehlo.if", {pred}, types, {}, std::move(regions));
}

Value Builder::dot_by_steps(const Value& lhs, const Value& rhs, const DotDims& d) {
  // As [batch, rows, k] and [batch, columns, k].
  Dims result;
  const auto flat = [&](const Value& v, const Dims& batch, const Dims& contract, bool first) {
    Dims order = batch, free;
    for (int64_t i = 0; i < v.rank(); ++i)
      if (std::find(batch.begin(), batch.end(), i) == batch.end() &&
          std::find(contract.begin(), contract.end(), i) == contract.end())
        free.push_back(i);
    const auto count = [&](const Dims& dims) {
      int64_t n = 1;
      for (const int64_t i : dims) n *= v.dim(i);
      return n;
    };
    if (first)
      for (const int64_t i : batch) result.push_back(v.dim(i));
    for (const int64_t i : free) result.push_back(v.dim(i));
    order.insert(order.end(), free.begin(), free.end());
    order.insert(order.end(), contract.begin(), contract.end());
    return reshape(transpose(v, order), {count(batch), count(free), count(contract)});
  };
  const Value a = flat(lhs, d.lhs_batch, d.lhs_contract, true), b = flat(rhs, d.rhs_batch, d.rhs_contract, false);
  const Type sum{a.dtype(), {a.dim(0), a.dim(1), b.dim(1)}}, counter{DType::I32, {}};
  if (sum.numel() == 0 || a.dim(2) == 0) return constant(Type{a.dtype(), result}, 0);
  const Values done = while_(
      {constant(counter, 0), constant(sum, 0)},
      [&](const Values& s) { return Values{compare(Cmp::LT, s[0], constant(counter, a.dim(2)))}; },
      [&](const Values& s) {
        const Value zero = constant(counter, 0);
        const auto column = [&](const Value& v, int64_t at) {
          const Value part = dynamic_slice(v, {zero, zero, s[0]}, {v.dim(0), v.dim(1), 1});
          return broadcast_in_dim(reshape(part, {v.dim(0), v.dim(1)}), sum.dims, {0, at});
        };
        return Values{add(s[0], constant(counter, 1)), add(s[1], mul(column(a, 1), column(b, 2)))};
      });
  return reshape(done[1], result);
}

Values Builder::barrier(const Values& xs) {
  std::vector<Type> types;
  for (const Value& x : xs) types.push_back(x.type);
  return emit("stablehlo.optimization_barrier", xs, types);
}

Value Builder::dot_general(const Value& lhs, const Value& rhs, const DotDims& d, DType result) {
  Type t{result, {}};
  for (int64_t b : d.lhs_batch) t.dims.push_back(lhs.dim(b));
  const auto free_dims = [&t](const Value& v, const Dims& batch, const Dims& contract) {
    for (int64_t i = 0; i < v.rank(); ++i)
      if (std::find(batch.begin(), batch.end(), i) == batch.end() &&
          std::find(contract.begin(), contract.end(), i) == contract.end())
        t.dims.push_back(v.dim(i));
  };
  free_dims(lhs, d.lhs_batch, d.lhs_contract);
  free_dims(rhs, d.rhs_batch, d.rhs_contract);
  if (size_of(result) == 8 && is_integer(result) && !limits_.int64_dot) return dot_by_steps(lhs, rhs, d);
  // XLA's CPU compiler (0.11) makes one kernel of a batched product, its scalar operand's broadcast and a reduction
  // that follows, which reads what nobody wrote.
  const auto apart = [this](const Value& v) {
    return v.type.numel() == 1 || uniform(v) != Uniform::kYes ? v : barrier({v})[0];
  };
  // HIGHEST: float32 products are float32 products on every chip.
  return emit1("stablehlo.dot_general", {apart(lhs), apart(rhs)}, t,
               str("dot_dimension_numbers = #stablehlo.dot<lhs_batching_dimensions = ", list(d.lhs_batch),
                   ", rhs_batching_dimensions = ", list(d.rhs_batch), ", lhs_contracting_dimensions = ",
                   list(d.lhs_contract), ", rhs_contracting_dimensions = ", list(d.rhs_contract),
                   ">, precision_config = [#stablehlo<precision HIGHEST>, #stablehlo<precision HIGHEST>]"));
}

namespace {

// `[b, f, 0, 1]`: what stands at each dimension of an operand.
std::string conv_side(int64_t first, char first_name, int64_t second, char second_name, const Dims& spatial) {
  std::vector<std::string> at(spatial.size() + 2);
  at[static_cast<size_t>(first)] = first_name;
  at[static_cast<size_t>(second)] = second_name;
  for (size_t i = 0; i < spatial.size(); ++i) at[static_cast<size_t>(spatial[i])] = std::to_string(i);
  std::string s = "[";
  for (size_t i = 0; i < at.size(); ++i) s += (i ? ", " : "") + at[i];
  return s + "]";
}

}  // namespace

Value Builder::convolution(const Value& input, const Value& kernel, const ConvDims& d, const Dims& result_dims) {
  if (!limits_.int64_dot && is_integer(input.dtype()) && size_of(input.dtype()) == 8)
    fail(ErrorKind::kNotImplemented,
         "the device has no convolutions of 64-bit integers (capability int64_dot): use int32");
  TPJ_CHECK(is_positive(d.strides) && is_positive(d.lhs_dilation) && is_positive(d.rhs_dilation),
            "convolution with strides ", list(d.strides), ", dilations ", list(d.lhs_dilation), " and ",
            list(d.rhs_dilation));
  return emit1("stablehlo.convolution", {input, kernel}, {input.dtype(), result_dims},
               str("window_strides = ", i64_array(d.strides), ", ", padding_attr(d.padding),
                   ", lhs_dilation = ", i64_array(d.lhs_dilation), ", rhs_dilation = ", i64_array(d.rhs_dilation),
                   ", dimension_numbers = #stablehlo.conv<",
                   conv_side(d.input_batch, 'b', d.input_feature, 'f', d.input_spatial), "x",
                   conv_side(d.kernel_output, 'o', d.kernel_input, 'i', d.kernel_spatial), "->",
                   conv_side(d.output_batch, 'b', d.output_feature, 'f', d.output_spatial),
                   ">, feature_group_count = ", d.feature_groups, " : i64, batch_group_count = ", d.batch_groups,
                   " : i64, precision_config = [#stablehlo<precision HIGHEST>, #stablehlo<precision HIGHEST>]"));
}

Value Builder::gather(const Value& x, const Value& indices, const GatherDims& d, const Dims& result_dims) {
  const int64_t positions = d.index_vector_dim < indices.rank() ? indices.dim(d.index_vector_dim) : 1;
  TPJ_CHECK(positions == static_cast<int64_t>(d.start_index_map.size()), "gather by ", indices.type.str(), " along ",
            list(d.start_index_map));
  return emit1("stablehlo.gather", {x, indices}, {x.dtype(), result_dims},
               str("dimension_numbers = #stablehlo.gather<offset_dims = ", list(d.offset), ", collapsed_slice_dims = ",
                   list(d.collapsed), ", operand_batching_dims = ", list(d.operand_batching),
                   ", start_indices_batching_dims = ", list(d.indices_batching),
                   ", start_index_map = ", list(d.start_index_map), ", index_vector_dim = ", d.index_vector_dim,
                   ">, slice_sizes = ", i64_array(d.slice_sizes), ", indices_are_sorted = false"));
}

Value Builder::scatter(const Value& x, const Value& indices, const Value& updates, const ScatterDims& d,
                       const Body& body) {
  std::vector<Region> regions;
  regions.push_back(region(scalar_types({x}, 2), body));
  return emit1(
      "stablehlo.scatter", {x, indices, updates}, x.type,
      str("scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = ", list(d.update_window),
          ", inserted_window_dims = ", list(d.inserted_window), ", input_batching_dims = ", list(d.input_batching),
          ", scatter_indices_batching_dims = ", list(d.indices_batching),
          ", scatter_dims_to_operand_dims = ", list(d.scatter_to_operand), ", index_vector_dim = ", d.index_vector_dim,
          ">, indices_are_sorted = ", d.sorted_indices ? "true" : "false",
          ", unique_indices = ", d.unique_indices ? "true" : "false"),
      std::move(regions));
}

Values Builder::rng_philox(const Value& state, const Type& bits) {
  return emit("stablehlo.rng_bit_generator", {state}, {state.type, bits},
              "rng_algorithm = #stablehlo<rng_algorithm PHILOX>");
}

Value Builder::fft(const Value& x, std::string_view kind, const Dims& lengths, const Type& result) {
  if (!limits_.complex128_fft && (x.dtype() == DType::C128 || x.dtype() == DType::F64))
    fail(ErrorKind::kNotImplemented,
         "the device has no Fourier transforms in 64-bit floats (capability complex128_fft): use complex64");
  return emit1("stablehlo.fft", {x}, result,
               str("fft_type = #stablehlo<fft_type ", kind, ">, fft_length = ", i64_array(lengths)));
}

Value Builder::cholesky(const Value& x, bool lower) {
  return emit1("stablehlo.cholesky", {x}, x.type, str("lower = ", lower ? "true" : "false"));
}

Value Builder::triangular_solve(const Value& a, const Value& b, bool left, bool lower, bool unit,
                                std::string_view transpose_a) {
  return emit1(
      "stablehlo.triangular_solve", {a, b}, b.type,
      str("left_side = ", left ? "true" : "false", ", lower = ", lower ? "true" : "false",
          ", unit_diagonal = ", unit ? "true" : "false", ", transpose_a = #stablehlo<transpose ", transpose_a, ">"));
}

Values Builder::custom_call(std::string_view target, const Values& operands, const std::vector<Type>& results,
                            std::string_view attrs) {
  return emit("stablehlo.custom_call", operands, results,
              str("call_target_name = \"", target, "\"", attrs.empty() ? "" : ", ", attrs));
}

bool Builder::is_used(const Value& parameter, const Values& results) const {
  std::vector<int> uses;
  append_uses(main_, uses);
  for (const Value& v : results) uses.push_back(v.id);
  return std::find(uses.begin(), uses.end(), parameter.id) != uses.end();
}

}  // namespace tpj::hlo
