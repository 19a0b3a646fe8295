// A graph of operator calls as plain data: what a decomposition is traced to, and what any later door hands in.
#pragma once

#include <complex>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "exec/lowering.h"

namespace tpj::exec {

// A value of the graph: inputs first, then one per node; `item` picks one of several results (-1: the only one).
struct Ref {
  int value;
  int item;
};

// A tensor argument of the call that is traced.
struct TensorDescription {
  int64_t dtype;  // c10::ScalarType
  std::vector<int64_t> sizes, strides;
};

struct Plain;
using PlainList = std::vector<Plain>;
struct Plain {
  std::variant<std::monostate, bool, int64_t, double, std::complex<double>, std::string, Ref, TensorDescription,
               PlainList>
      v;
};

struct Graph;

struct Node {
  std::string op;         // "aten::add.Tensor"; "cond" and "while_loop" have graphs
  PlainList args;         // all of the schema's, in its order; "cond": the condition and the operands
  std::string file = {};  // the user's line: empty when it is not known
  int line = -1;          // -1: the node is not to be named in messages at all
  // "cond": when true, when false, of the operands. "while_loop": the condition and the body, of all operands; the body
  // gives the first ones anew.
  std::vector<Graph> graphs = {};
};

struct Graph {
  std::vector<Node> nodes;
  PlainList outputs;
};

// The form of an overload with a row; nullptr when it has none.
using FindForm = const Form* (*)(const std::string& overload);

// Runs the graph's calls in the lowering; `inputs` are the meta tensors of the outer call in order. Returns the
// outputs. Throws Error(kNotImplemented) for a call that has no row and is no view.
torch::jit::Stack lower_graph(Lowering& lowering, const Graph& graph, const std::vector<at::Tensor>& inputs,
                              FindForm find_form);

}  // namespace tpj::exec
