// Runs a graph of noted calls.
#pragma once

#include <exception>
#include <memory>

#include "exec/fuse.h"

namespace tpj::exec {

// A graph that is compiled as one program.
struct Compiled {
  Fused fused;
  std::unique_ptr<pjrt::Executable> executable;
};

// The numbers of the graph on the device, in the order of `fused.numbers`.
std::vector<runtime::BufferRef> upload_numbers(const CallGraph& graph, const Fused& fused, int device);

// Keeps the promises of the graph's values: as one program where it is compiled, else, and where that fails, call by
// call. What fails breaks the promises that depend on it, and nothing else; the first failure is returned. The graph's
// own references to what its last reader has read are gone then. `numbers`: those of the graph, if they are on the
// device already.
std::exception_ptr run_graph(CallGraph& graph, const Compiled* compiled, int device,
                             const std::vector<runtime::BufferRef>* numbers = nullptr);

}  // namespace tpj::exec
