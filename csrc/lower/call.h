// What a lowering sees of one operator call: its arguments by position in the ATen schema, the types of its results, a
// builder. No tensor, no buffer, no torch: exec/lower_graph fills it in for every door.
#pragma once

#include <complex>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "hlo/builder.h"

namespace tpj::lower {

using hlo::Builder;
using hlo::Cmp;
using hlo::Dims;
using hlo::Type;
using hlo::Value;
using hlo::Values;

enum class NumberKind { kBool, kInt, kFloat, kComplex };

// One argument. Tensors and numbers are read on demand: what a lowering does not read is not an input of the program.
struct Arg {
  enum class Kind { kNone, kTensor, kNumber, kInt, kBool, kString, kDType, kInts, kTensors, kNumbers, kOther };

  Kind kind = Kind::kNone;
  Type type;                                    // kTensor: logical sizes and dtype
  std::function<Value()> read;                  // kTensor: the dense logical value
  bool contiguous = true;                       // kTensor: as the caller holds it
  NumberKind number_kind = NumberKind::kFloat;  // kNumber
  std::optional<std::complex<double>>
      known;                         // kNumber: set when the value is part of the key (Row::Options::statics, special)
  std::optional<int64_t> known_int;  // kNumber of kind int or bool that is known: its exact value
  std::function<Value(DType)> number;  // kNumber: the value as a 0-d value of that dtype
  int64_t integer = 0;                 // kInt, kBool, kDType (a DType)
  std::string text;                    // kString
  Dims ints;                           // kInts
  std::vector<Arg> items;              // kTensors (kTensor or kNone each), kNumbers
};

class Call {
 public:
  Call(Builder& builder, std::string_view op_name, std::vector<Arg> args, std::vector<Type> results, DType common)
      : b(builder), common_dtype(common), name_(op_name), args_(std::move(args)), results_(std::move(results)) {}

  Builder& b;
  // PyTorch's result type over all tensor arguments (0-d and wrapped-number rules applied); Scalar arguments not
  // included.
  DType common_dtype;

  // ---- arguments; `i` is the position in the functional schema
  bool has(size_t i) const { return i < args_.size() && args_[i].kind != Arg::Kind::kNone; }
  const Arg& arg(size_t i) const { return args_[i]; }
  size_t arg_count() const { return args_.size(); }
  const Type& type(size_t i) const { return get(i, Arg::Kind::kTensor).type; }
  Value tensor(size_t i) const { return get(i, Arg::Kind::kTensor).read(); }
  // Integers that meet narrow floats are rounded to those first, as PyTorch promotes them.
  Value tensor(size_t i, DType dtype) const {
    Value x = tensor(i);
    if (is_integer(x.dtype()) && is_float(dtype) && is_float(common_dtype) && size_of(common_dtype) < size_of(dtype))
      x = b.convert(b.convert(x, DType::F32), common_dtype);
    return b.convert(x, dtype);
  }
  size_t count(size_t i) const { return args_[i].items.size(); }
  bool has(size_t i, size_t k) const { return args_[i].items[k].kind != Arg::Kind::kNone; }
  Value tensor_at(size_t i, size_t k) const { return args_[i].items[k].read(); }
  const Type& type_at(size_t i, size_t k) const { return args_[i].items[k].type; }
  int64_t integer(size_t i) const { return get(i, Arg::Kind::kInt).integer; }
  int64_t integer_or(size_t i, int64_t otherwise) const { return has(i) ? integer(i) : otherwise; }
  bool flag(size_t i) const { return has(i) && args_[i].integer != 0; }
  Dims ints(size_t i) const { return has(i) ? get(i, Arg::Kind::kInts).ints : Dims{}; }
  DType dtype_or(size_t i, DType otherwise) const { return has(i) ? static_cast<DType>(args_[i].integer) : otherwise; }
  std::string_view string(size_t i) const { return args_[i].text; }

  // ---- numbers (Scalar, float). scalar() is a run-time input of the program; known() is set when the value is part of
  // the key, because the row lists the argument as static or the value as special.
  Value scalar(size_t i, DType dtype) const { return get(i, Arg::Kind::kNumber).number(dtype); }
  Value scalar_at(size_t i, size_t k, DType dtype) const { return args_[i].items[k].number(dtype); }
  NumberKind number_kind(size_t i) const { return get(i, Arg::Kind::kNumber).number_kind; }
  std::optional<double> known(size_t i) const {
    if (!has(i) || !args_[i].known) return std::nullopt;
    return args_[i].known->real();
  }
  bool is(size_t i, double value) const { return known(i) == value; }
  // True when the argument is absent or known to be `value`.
  bool absent_or(size_t i, double value) const { return !has(i) || is(i, value); }

  // ---- results, as PyTorch's meta kernel says. exec converts a returned value to the result's dtype; its sizes must
  // match.
  size_t result_count() const { return results_.size(); }
  const Type& result(size_t k = 0) const { return results_[k]; }
  const Dims& result_dims(size_t k = 0) const { return results_[k].dims; }

  // Philox state (key, counter) as tensor<2xui64>, a run-time input; this call consumes `counters` counters of 128
  // bits.
  Value rng_state(uint64_t counters) { return rng_(counters); }
  void set_rng(std::function<Value(uint64_t)> rng) { rng_ = std::move(rng); }

  // ---- usual steps
  // Tensor i in `dtype`, broadcast to `dims`.
  Value operand(size_t i, DType dtype, const Dims& dims) const { return b.broadcast_to(tensor(i, dtype), dims); }
  // Number i in `dtype`, broadcast to `dims`.
  Value number(size_t i, DType dtype, const Dims& dims) const { return b.broadcast_to(scalar(i, dtype), dims); }

  std::string_view name() const { return name_; }

 private:
  const Arg& get(size_t i, Arg::Kind kind) const {
    TPJ_ASSERT(i < args_.size() && args_[i].kind == kind, name_, " has no argument of that kind at ", i);
    return args_[i];
  }

  std::string_view name_;
  std::vector<Arg> args_;
  std::vector<Type> results_;
  std::function<Value(uint64_t)> rng_;
};

}  // namespace tpj::lower
