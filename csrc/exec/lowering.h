// Turns operator calls into one StableHLO module. Calls are executed on meta tensors (PyTorch says what the results
// look like and words the errors) while their values are built symbolically: a meta storage stands for a cell, so
// views, in-place and out= forms need no code of their own here.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <functional>
#include <map>
#include <optional>
#include <unordered_map>

#include "exec/program.h"
#include "exec/views.h"
#include "lower/row.h"

namespace tpj::exec {

// How a row applies to one overload: derived from the schemas once, at registration.
struct Form {
  const lower::Row* row = nullptr;
  std::vector<bool> is_out;                  // per argument: an out= tensor, which the call may resize
  std::vector<int> mutated;                  // positions of arguments that the call writes, in order
  std::vector<bool> is_number;               // per argument: Scalar, float or a list of Scalars
  std::vector<bool> is_static;               // numbers that are part of the key
  std::vector<std::vector<double>> special;  // numbers that are part of the key when equal to one of these
  std::optional<c10::OperatorHandle> meta;   // whose meta kernel to ask, when not the operator's own
};

// Of a Scalar.
// A Scalar: an integer above the greatest int64 is one, too.
inline bool is_number(const c10::IValue& v) { return v.isScalar() || v.isUnsigned(); }
lower::NumberKind kind_of(const c10::IValue& number);

// Is this number part of the key, given the form?
bool is_known(const Form& form, size_t arg, const c10::IValue& value);

class Lowering {
 public:
  // `device`: whose memory the results must fit; -1: a device that is not here.
  Lowering(std::string name, int device, const Limits& limits) : name_(std::move(name)), device_(device), b_(limits) {}

  // ---- inputs, in the order of the call's distinct cells. `type` is null for a cell that was never written.
  int add_cell(const BufferType* type, size_t nbytes, c10::ScalarType fallback_dtype);
  // A meta tensor that stands for a view of a cell; `path` is where it stands in the call.
  at::Tensor tensor(int cell, const c10::TensorImpl& like, ArgPath path, bool may_move);
  // Notes that this CPU 0-d tensor is an argument whose value is an input; returns what stands for it.
  at::Tensor number(const at::Tensor& cpu, ArgPath path);

  // Runs one call: `stack` holds the arguments (meta tensors instead of device tensors) and gets the returns.
  // `numbers_are_inputs`: unknown numbers become parameters named by their path; else they are constants.
  // `dtypes`: of the results, where an out= tensor has another one.
  void call(const c10::OperatorHandle& op, const Form& form, torch::jit::Stack& stack, bool numbers_are_inputs,
            const std::vector<c10::ScalarType>& dtypes = {});

  // Writes the value of one meta tensor to another, with its cast.
  void copy(const at::Tensor& to, const at::Tensor& from) { write(to, read(from)); }
  // Makes the memory of a meta tensor known, without contents.
  void add_empty(const at::Tensor& meta) { cell_of(meta); }
  // True for tensors (also in lists) whose storages have a value here: views of what is known.
  bool knows(const c10::IValue& value) const;

  // ---- parts that run once, never, or again and again: calls on tensors that stand for the operands there
  using Part = std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>& operands)>;
  std::vector<at::Tensor> branch(const at::Tensor& condition, const std::vector<at::Tensor>& operands,
                                 const Part& when_true, const Part& when_false);
  // The body gives the first operands anew, as long as the condition holds; the others stay.
  std::vector<at::Tensor> loop(const std::vector<at::Tensor>& operands, const Part& condition, const Part& body);

  // Where the calls from here on come from.
  void locate(const std::string& op, const std::string& file, int line) { b_.locate(op, file, line); }

  // After the last call: `returns` are the meta values to return, `arguments` the meta arguments of the outermost call
  // (to recognise what is returned as it came and what was resized). Compiles nothing.
  std::unique_ptr<Program> finish(const torch::jit::Stack& returns, const torch::jit::Stack& arguments,
                                  const torch::jit::Stack& originals);

 private:
  struct SymbolicCell {
    const BufferType* type = nullptr;  // natural type of the input
    size_t nbytes = 0;
    c10::ScalarType fallback_dtype;
    bool is_input = false;
    Value parameter;  // made at the first read
    Value current;    // empty: the parameter, or undefined
    bool written = false;
  };

  SymbolicCell& cell_of(const at::Tensor& meta);
  Value base_value(SymbolicCell& cell);
  // The offset of this tensor and the number that belongs to it; an empty value when all of it is fixed.
  std::pair<Offset, Value> offset_of(const at::Tensor& meta);
  Value read(const at::Tensor& meta);
  Value merge_repetitions(const at::Tensor& meta, Value value, View& view);
  void write(const at::Tensor& meta, const Value& value);
  Value number_parameter(ArgPath path, DType dtype);
  lower::Arg make_arg(const c10::IValue& value, const Form& form, size_t arg, int item, bool numbers_are_inputs);
  lower::Arg make_number(const c10::IValue& value, const Form& form, size_t arg, int item, bool numbers_are_inputs);
  Result make_result(const c10::IValue& value, const torch::jit::Stack& arguments);
  int output_of(int cell);
  hlo::Values read_all(const std::vector<at::Tensor>& metas);
  // New meta tensors with these values.
  std::vector<at::Tensor> made(const std::vector<at::Tensor>& like, const hlo::Values& values);

  std::string name_;
  int device_;
  hlo::Builder b_;
  std::vector<SymbolicCell> cells_;
  std::unordered_map<const c10::StorageImpl*, int> by_storage_;
  std::vector<at::Tensor> keep_alive_;  // meta tensors whose storages are keys above
  std::unordered_map<const c10::StorageImpl*, std::pair<ArgPath, c10::ScalarType>> scalar_tensors_;
  struct LazyBits {
    bool conj = false, neg = false;
  };
  // What is read through such a meta tensor, or written, with its lazy conjugation and negation done.
  Value resolved(const at::Tensor& meta, const Value& value);
  std::unordered_map<const c10::TensorImpl*, LazyBits> lazy_;  // meta tensors of arguments with one of the bits
  // Meta tensors that have a part of their offset as input.
  std::unordered_map<const c10::TensorImpl*, std::pair<ArgPath, Offset>> moving_;
  std::map<ArgPath, std::pair<Offset, Value>> offset_params_;
  std::map<std::pair<ArgPath, DType>, Value> number_params_;
  Value rng_;
  uint64_t counters_ = 0;
  hlo::Values outputs_;
  std::vector<int> output_cells_;
};

}  // namespace tpj::exec
