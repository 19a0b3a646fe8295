// The boxed kernel of one operator overload with a row: key, lookup, run; on a miss, lower and compile.
#pragma once

#include <ATen/core/boxing/KernelFunction.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include "compile/cache.h"
#include "exec/inputs.h"
#include "exec/lowering.h"
#include "exec/run.h"

namespace tpj::eager {

class OpKernel final : public c10::OperatorKernel {
 public:
  OpKernel(const c10::OperatorHandle& op, exec::Form form, std::vector<int> host_args);
  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) { call(op, *stack); }
  void call(const c10::OperatorHandle& op, torch::jit::Stack& stack);
  // The same without references to the arguments (tensors and scalars, first the one that is written if Return is a
  // reference): a reference to a tensor whose only other one is Python's enters the interpreter twice.
  template <typename Return, typename... Args>
  Return call_unboxed(const c10::OperatorHandle& op, Args&... args);

 private:
  // The arguments are on top of the stack and stay there.
  void run(const c10::OperatorHandle& op, exec::Inputs& inputs, torch::jit::Stack& stack, exec::Results* results);
  // Null when the call was done without a program of its own (changing.h).
  const exec::Program* program(const c10::OperatorHandle& op, exec::Inputs& inputs, torch::jit::Stack& stack,
                               exec::Results* results);
  std::unique_ptr<exec::Program> compile(const c10::OperatorHandle& op, const exec::Inputs& inputs,
                                         const torch::jit::Stack& stack, const std::string& why);
  void expand_masks(torch::jit::Stack& stack) const;

  exec::Form form_;
  std::vector<int> host_args_;  // arguments whose CPU tensors are uploaded (indices)
  std::string name_;            // "aten::add.Tensor"
  size_t n_args_;
  int check_errors_;  // that argument of a factorisation, whose last return says what went wrong; -1: it has none
};

// ---- keys, for every kernel that caches programs
// Appends the arguments to inputs.key and its cells. CPU tensors other than 0-d ones are an error, or uploaded where
// `host_args` says.
void add_arguments(exec::Inputs& inputs, const exec::Form& form, torch::jit::Stack& stack,
                   const std::vector<int>& host_args);
// The arguments with meta tensors in place of device tensors, for Lowering.
torch::jit::Stack meta_arguments(exec::Lowering& lowering, const exec::Form& form, const exec::Inputs& inputs,
                                 const torch::jit::Stack& stack);
// Why this key is new: compared with the last key of the operator.
std::string miss_reason(const void* op, const exec::Inputs& inputs, const c10::OperatorHandle& handle,
                        const torch::jit::Stack& stack);

// A call failed before it ran. The CPU's kernel words the mistake best: if the same call fails there, that error is
// raised.
void raise_as_cpu(const c10::OperatorHandle& op, const torch::jit::Stack& stack, size_t n_args,
                  int64_t largest = int64_t{1} << 24 /* elements: larger arguments are not worth a copy */);

// All programs of the process.
compile::Cache<exec::Program>& programs();

// Inputs for a call on this thread; nested calls get their own.
class InputsScope {
 public:
  InputsScope();
  ~InputsScope();
  exec::Inputs& operator*() { return *inputs_; }
  exec::Inputs* operator->() { return inputs_; }

 private:
  exec::Inputs* inputs_;
};

// A stack of arguments that somebody else keeps alive.
class BorrowedArguments {
 public:
  explicit BorrowedArguments(torch::jit::Stack& stack) : stack_(stack) {}
  ~BorrowedArguments() {
    for (c10::IValue& v : stack_)
      if (v.isTensor()) (void)std::move(v).toTensor().unsafeReleaseTensorImpl();
    stack_.clear();
  }
  void push(const at::Tensor& t) { stack_.emplace_back(c10::MaybeOwnedTraits<at::Tensor>::createBorrow(t)); }
  void push(const c10::Scalar& s) { stack_.emplace_back(s); }

 private:
  torch::jit::Stack& stack_;
};

template <typename Return, typename... Args>
Return OpKernel::call_unboxed(const c10::OperatorHandle& op, Args&... args) {
  InputsScope inputs;
  BorrowedArguments borrowed(inputs->borrowed);
  (borrowed.push(args), ...);
  if constexpr (std::is_reference_v<Return>) {
    run(op, *inputs, inputs->borrowed, nullptr);
    return std::get<0>(std::tie(args...));
  } else {
    exec::Results results;
    run(op, *inputs, inputs->borrowed, &results);
    return std::move(results[0]).toTensor();
  }
}

}  // namespace tpj::eager
