// The boxed kernel of one operator overload with a row: key, lookup, run; on a miss, lower and compile.
#pragma once

#include <ATen/core/boxing/KernelFunction.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include "compile/cache.h"
#include "exec/inputs.h"
#include "exec/lowering.h"

namespace tpj::eager {

class OpKernel final : public c10::OperatorKernel {
 public:
  OpKernel(const c10::OperatorHandle& op, exec::Form form, std::vector<int> host_args);
  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) { call(op, *stack); }
  void call(const c10::OperatorHandle& op, torch::jit::Stack& stack);

 private:
  const exec::Program& program(const c10::OperatorHandle& op, exec::Inputs& inputs, torch::jit::Stack& stack);
  std::unique_ptr<exec::Program> compile(const c10::OperatorHandle& op, const exec::Inputs& inputs,
                                         const torch::jit::Stack& stack);
  void expand_masks(torch::jit::Stack& stack) const;

  exec::Form form_;
  std::vector<int> host_args_;  // arguments whose CPU tensors are uploaded (indices)
  std::string name_;            // "aten::add.Tensor"
  size_t n_args_;
};

// ---- keys, for every kernel that caches programs
// Appends the arguments to inputs.key and its cells. CPU tensors other than 0-d ones are an error, or uploaded where
// `host_args` says.
void add_arguments(exec::Inputs& inputs, const c10::OperatorHandle& op, const exec::Form& form,
                   torch::jit::Stack& stack, const std::vector<int>& host_args);
// The arguments with meta tensors in place of device tensors, for Lowering.
torch::jit::Stack meta_arguments(exec::Lowering& lowering, const exec::Form& form, const exec::Inputs& inputs,
                                 const torch::jit::Stack& stack);
// Why this key is new: compared with the last key of the operator.
std::string miss_reason(const void* op, const exec::Inputs& inputs, const c10::OperatorHandle& handle,
                        const torch::jit::Stack& stack);

// The plugin's compiler overrides, if the program needs them.
pjrt::Options overrides_for(std::string_view text);

// All programs of the process.
compile::Cache<exec::Program>& programs();

// Inputs for a call on this thread; nested calls get their own.
class InputsScope {
 public:
  InputsScope();
  ~InputsScope();
  exec::Inputs& operator*() { return *inputs_; }

 private:
  exec::Inputs* inputs_;
};

}  // namespace tpj::eager
