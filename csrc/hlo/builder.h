// Builds one StableHLO module with one function @main and prints it in generic form. Knows nothing of tensors, buffers
// or plugins.
//
// Every method appends one operation to the region that is open and returns its result; shapes are checked with
// TPJ_ASSERT, since a wrong shape here is a bug of the lowering, not of the user. Not thread-safe: one builder per
// program.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/limits.h"
#include "hlo/ops.h"
#include "hlo/type.h"

namespace tpj::hlo {

struct Op;

// The body of a reduction, sort, loop or branch: block arguments, operations, returned values.
struct Region {
  Values args;
  std::vector<Op> ops;
  Values results;
};

struct Op {
  std::string name;  // with dialect: "stablehlo.add"
  std::vector<int> operands;
  std::vector<Type> operand_types;
  int first_result = -1;  // ids of results are consecutive
  std::vector<Type> results;
  std::string attrs;  // printed attribute list without braces: `dimensions = array<i64: 0>`
  std::vector<Region> regions;
  std::string location;  // `loc(...)` without the word, or empty
};

enum class Cmp { EQ, NE, LT, LE, GT, GE };

// How dot_general pairs its operands' dimensions.
struct DotDims {
  Dims lhs_batch, rhs_batch, lhs_contract, rhs_contract;
};

// Window of reduce_window and select_and_scatter; every list has the operand's rank, padding is (low, high) per
// dimension.
struct Window {
  Dims dims, strides, base_dilations, dilations;
  std::vector<std::pair<int64_t, int64_t>> padding;
};

// Convolution of an [N, C, spatial...] input with an [O, I, spatial...] kernel to [N, O, spatial...]; the dimension
// numbers name where batch, feature and spatial dimensions of each operand stand.
struct ConvDims {
  int64_t input_batch = 0, input_feature = 1, kernel_output = 0, kernel_input = 1, output_batch = 0, output_feature = 1;
  Dims input_spatial, kernel_spatial, output_spatial;
  Dims strides, lhs_dilation, rhs_dilation;
  std::vector<std::pair<int64_t, int64_t>> padding;
  int64_t feature_groups = 1, batch_groups = 1;
};

struct GatherDims {
  Dims offset, collapsed, operand_batching, indices_batching, start_index_map;
  int64_t index_vector_dim = 0;
  Dims slice_sizes;
};

struct ScatterDims {
  Dims update_window, inserted_window, input_batching, indices_batching, scatter_to_operand;
  int64_t index_vector_dim = 0;
  bool unique_indices = false;
  bool sorted_indices = false;
};

// For messages: "[2, 3]".
std::string list(const Dims& values);

class Builder {
 public:
  // `limits`: what the operations that are emitted must do without.
  explicit Builder(const Limits& limits = {});
  const Limits& limits() const { return limits_; }

  // ---- inputs and constants
  Value parameter(const Type& type);
  // Splat constants: a scalar repeated over `type`. Integers are given as int64 (wrapped to the type), the rest as
  // double.
  Value constant(const Type& type, double value);
  Value constant(const Type& type, int64_t value);
  Value constant(const Type& type, int value) { return constant(type, static_cast<int64_t>(value)); }
  Value constant(const Type& type, bool value) { return constant(type, static_cast<int64_t>(value)); }
  Value complex_constant(const Type& type, double re, double im);
  Value scalar(DType dtype, double value) { return constant(Type{dtype, {}}, value); }
  // Same value in the type of `like`.
  Value like(const Value& v, double value) { return constant(v.type, value); }
  // Element by element, row-major; integer and bool types only.
  Value dense(const Type& type, const std::vector<int64_t>& values);
  // The greatest finite value or +infinity, the lowest or -infinity; the identities of min and max.
  Value max_value(const Type& type);
  Value min_value(const Type& type);
  Value iota(const Type& type, int64_t dim);

  // ---- element-wise
  Value div(const Value& x, const Value& y);
  Value rem(const Value& x, const Value& y);
#define X(method, mnemonic) \
  Value method(const Value& x) { return emit1("stablehlo." mnemonic, {x}, x.type); }
  TPJ_HLO_UNARY(X)
#undef X
#define X(method, mnemonic)                                                                          \
  Value method(const Value& x, const Value& y) {                                                     \
    TPJ_ASSERT(x.type == y.type, "stablehlo." mnemonic " of ", x.type.str(), " and ", y.type.str()); \
    return emit1("stablehlo." mnemonic, {x, y}, x.type);                                             \
  }
  TPJ_HLO_BINARY(X)
#undef X
  Value abs(const Value& x);   // complex: the magnitude, in the real type
  Value real(const Value& x);  // of complex
  Value imag(const Value& x);
  Value complex(const Value& re, const Value& im);
  Value is_finite(const Value& x);                         // -> Bool, floats only
  Value compare(Cmp dir, const Value& x, const Value& y);  // -> Bool; IEEE for floats
  // Floats in total order: -NaN < -inf < ... < -0 < +0 < ... < inf < NaN. For sorts.
  Value compare_total(Cmp dir, const Value& x, const Value& y);
  Value select(const Value& pred, const Value& on_true, const Value& on_false);  // pred of the same dims, or 0-d
  Value clamp(const Value& lo, const Value& x, const Value& hi);
  Value convert(const Value& x, DType dtype);       // StableHLO's rules; same dtype: x itself
  Value bitcast(const Value& x, const Type& type);  // bitcast_convert: same bits
  Value reduce_precision(const Value& x, int exponent_bits, int mantissa_bits);
  // CHLO's functions of one float operand: "erf", "erf_inv", "lgamma", "digamma", "acos", "sinh", ...
  Value chlo(std::string_view mnemonic, const Values& operands);
  // (values, int32 positions) of the k greatest along the last dimension, by TOTALORDER.
  Values top_k(const Value& x, int64_t k);

  // ---- shape
  Value reshape(const Value& x, const Dims& dims);
  Value transpose(const Value& x, const Dims& permutation);
  // Operand dimension i becomes result dimension dims_map[i]; a size of 1 is repeated.
  Value broadcast_in_dim(const Value& x, const Dims& result, const Dims& dims_map);
  // NumPy rules: aligned from the right; same dims: x itself.
  Value broadcast_to(const Value& x, const Dims& result);
  Value slice(const Value& x, const Dims& start, const Dims& limit, const Dims& stride);
  // One dimension, the others whole.
  Value slice_dim(const Value& x, int64_t dim, int64_t start, int64_t limit, int64_t stride = 1);
  Value dynamic_slice(const Value& x, const Values& start, const Dims& sizes);
  Value dynamic_update_slice(const Value& x, const Value& update, const Values& start);
  Value pad(const Value& x, const Value& fill, const Dims& low, const Dims& high, const Dims& interior);
  Value concatenate(const Values& xs, int64_t dim);
  Value reverse(const Value& x, const Dims& dims);

  // ---- with regions
  using Body = std::function<Values(const Values&)>;
  // Opens a region with arguments of these types, runs `body` inside it, closes it with what body returns.
  Region region(const std::vector<Type>& args, const Body& body);
  // `xs` and 0-d `inits` of one count; body gets (accumulators..., elements...).
  Values reduce(const Values& xs, const Values& inits, const Dims& dims, const Body& body);
  // Usual reductions of one operand by a binary method, e.g. reduce1(x, zero, dims, &Builder::add).
  Value reduce1(const Value& x, const Value& init, const Dims& dims, Value (Builder::*op)(const Value&, const Value&));
  Values reduce_window(const Values& xs, const Values& inits, const Window& window, const Body& body);
  Value select_and_scatter(const Value& x, const Value& source, const Value& init, const Window& window,
                           const Body& select, const Body& scatter);
  // Sorts the operands together along dim; `less` gets (a0, b0, a1, b1, ...) as 0-d values and returns one Bool.
  Values sort(const Values& xs, int64_t dim, bool stable, const Body& less);
  Values while_(const Values& init, const Body& cond, const Body& body);
  Values if_(const Value& pred, const std::function<Values()>& then_, const std::function<Values()>& else_);

  // The same values, made before anything that uses them: keeps a compiler from making them a part of each use.
  Values barrier(const Values& xs);

  // ---- linear algebra, convolution, indexing, others
  Value dot_general(const Value& lhs, const Value& rhs, const DotDims& dims, DType result);
  Value convolution(const Value& input, const Value& kernel, const ConvDims& dims, const Dims& result_dims);
  Value gather(const Value& x, const Value& indices, const GatherDims& dims, const Dims& result_dims);
  // body(current, update) -> new value, both 0-d; the default replaces.
  Value scatter(const Value& x, const Value& indices, const Value& updates, const ScatterDims& dims, const Body& body);
  // Philox: state is tensor<2xui64> (key, counter); returns (new state, bits of type `bits`).
  Values rng_philox(const Value& state, const Type& bits);
  Value fft(const Value& x, std::string_view kind, const Dims& lengths, const Type& result);
  Value cholesky(const Value& x, bool lower);
  Value triangular_solve(const Value& a, const Value& b, bool left, bool lower, bool unit,
                         std::string_view transpose_a);
  Values custom_call(std::string_view target, const Values& operands, const std::vector<Type>& results,
                     std::string_view attrs);

  // Operations from here on are `name`'s at `file` (may be empty), line `line`: what a compiler's message then names.
  void locate(std::string_view name, std::string_view file, int line);

  // The general form; `attrs` as in Op.
  Values emit(std::string_view name, const Values& operands, const std::vector<Type>& results, std::string attrs = {},
              std::vector<Region> regions = {});

  // ---- the finished module
  Uniform uniform(const Value& v) const { return uniform_[static_cast<size_t>(v.id)]; }
  // True when some operation, or a result, reads the parameter.
  bool is_used(const Value& parameter, const Values& results) const;
  // Prints @main(parameters) -> results. `parameters` chooses and orders the arguments (those unused may be left out);
  // `aliases[i]` = index of the result that may take argument i's memory, or -1 (tf.aliasing_output).
  std::string print(const Values& parameters, const Values& results, const std::vector<int>& aliases = {}) const;

 private:
  Value emit1(std::string_view name, const Values& operands, const Type& result, std::string attrs = {},
              std::vector<Region> regions = {}) {
    return emit(name, operands, {result}, std::move(attrs), std::move(regions))[0];
  }

  // (quotient, remainder) of 64-bit integers by shifts and subtractions, with what StableHLO says of division by 0.
  Values divide_by_steps(const Value& x, const Value& y);
  // A product of matrices as a sum of outer products.
  Value dot_by_steps(const Value& lhs, const Value& rhs, const DotDims& dims);

  // A new value's number.
  int add_value(const Type& type, Uniform uniform);

  Limits limits_;
  std::vector<Uniform> uniform_;  // by a value's number
  std::string location_;
  Region main_;
  std::vector<Region*> open_;  // innermost last
};

// `array<i64: 1, 2>`, for attributes.
std::string i64_array(const Dims& values);

}  // namespace tpj::hlo
