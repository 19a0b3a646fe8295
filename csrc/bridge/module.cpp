#include "bridge/module.h"

#include <ATen/ATen.h>

#include "exec/lowering.h"
#include "runtime/scalar_type.h"

namespace tpj::bridge {

Module lower(const std::string& name, const exec::Graph& graph, const std::vector<exec::TensorDescription>& inputs,
             exec::FindForm find_form, const Limits& limits) {
  exec::Lowering lowering(name, /*device=*/-1, limits);
  std::vector<at::Tensor> tensors;
  torch::jit::Stack arguments;
  for (const exec::TensorDescription& input : inputs) {
    const auto dtype = static_cast<c10::ScalarType>(input.dtype);
    const at::Tensor like = at::empty_strided(input.sizes, input.strides, at::device(at::kMeta).dtype(dtype));
    // The memory's natural shape: that of the tensor where it is dense in its own order.
    const std::vector<int64_t> dims =
        like.is_contiguous() ? input.sizes
                             : std::vector<int64_t>{static_cast<int64_t>(like.storage().nbytes() / like.itemsize())};
    const int cell =
        lowering.add_cell(exec::BufferType::intern(runtime::to_dtype(dtype), dims), like.storage().nbytes(), dtype);
    tensors.push_back(
        lowering.tensor(cell, *like.unsafeGetTensorImpl(), {static_cast<int>(tensors.size()), -1}, false));
    arguments.emplace_back(tensors.back());
  }
  const torch::jit::Stack returns = exec::lower_graph(lowering, graph, tensors, find_form);
  const std::unique_ptr<exec::Program> program = lowering.finish(returns, arguments, arguments);
  Module module;
  module.text = program->text;
  for (const exec::Param& p : program->params) {
    module.parameters.push_back(exec::type_of(p));
    module.sources.push_back(p.kind == exec::Param::Kind::kCell ? p.cell : -1);
  }
  for (const exec::BufferType* type : program->outputs) module.results.push_back({type->dtype, type->dims});
  return module;
}

}  // namespace tpj::bridge
