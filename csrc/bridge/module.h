// A traced function as one StableHLO module, for a compiler that is not the client's.
#pragma once

#include <string>
#include <vector>

#include "exec/graph.h"
#include "pjrt/types.h"

namespace tpj::bridge {

struct Module {
  std::string text;
  std::vector<pjrt::TensorType> parameters, results;
  std::vector<int> sources;  // per parameter: which input it is; -1: the state of the random generator
};

// `inputs` are the tensors of the graph in order, each with memory of its own. Inputs that the graph writes come back
// as results in place of their parameters. Throws Error(kNotImplemented) for an operator without a row, and PyTorch's
// own errors.
Module lower(const std::string& name, const exec::Graph& graph, const std::vector<exec::TensorDescription>& inputs,
             exec::FindForm find_form, const Limits& limits);

}  // namespace tpj::bridge
