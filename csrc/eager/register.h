// Registers every kernel with PyTorch's dispatcher. Once per process, after runtime::register_device.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "exec/graph.h"

namespace tpj::eager {

void register_operators();

// Overloads that run through a row, with the row's name: for the reference page and tests.
std::vector<std::pair<std::string, std::string>> registered_rows();

// ---- decompositions: called with an operator and its arguments, returns its graph of rows if PyTorch has one. Set by
// the bindings.
using Tracer = std::function<std::optional<exec::Graph>(const std::string& overload, const exec::PlainList& arguments)>;
void set_tracer(Tracer tracer);

// ---- functions that Python has traced, for torch.ops.tpj.run_traced: their number, until it is given back. The
// graph's first values are the `inputs` tensors.
int64_t add_traced(std::string name, exec::Graph graph, size_t inputs);
void drop_traced(int64_t number);
// Key and bytes of each program that it has run; nothing where the plugin cannot serialize.
std::vector<std::pair<std::string, std::string>> traced_programs(int64_t number);

// ---- CPU fallback: counted per operator since the start or the last reset.
std::map<std::string, int64_t> fallbacks();
void reset_fallbacks();

// ---- printing: tells whether it is PyTorch's code for printing tensors that calls an operator. Set by the bindings.
void set_is_printing(bool (*hook)());

}  // namespace tpj::eager
