// A graph of noted calls, and the one program that is made of it.
#pragma once

#include <array>
#include <functional>
#include <string>
#include <unordered_set>
#include <vector>

#include "exec/program.h"

namespace tpj::exec {

// Where a call's argument comes from; packed in a word of the graph's key.
struct Operand {
  enum class From : uint64_t { kInput, kValue, kNumber };
  From from;
  size_t index;  // of the graph's inputs or values, or of the numbers of its type

  Operand(From f, size_t i) : from(f), index(i) {}
  explicit Operand(uint64_t word) : from(static_cast<From>(word & 3)), index(word >> 2) {}
  uint64_t word() const { return static_cast<uint64_t>(from) | static_cast<uint64_t>(index) << 2; }
};

struct CallGraph {
  struct Call {
    const Program* program;
    size_t operands;     // where in `words`
    size_t first_value;  // of its outputs, in `values`
  };
  struct Value {
    runtime::BufferRef buffer;
    int64_t replaces = -1;  // the input whose cell got this value
  };
  static constexpr size_t kDTypes = static_cast<size_t>(DType::C128) + 1;

  std::vector<Call> calls;
  std::vector<uint64_t> words;  // the key: for each call its program and operands
  std::vector<runtime::BufferRef> inputs;
  std::vector<Value> values;
  std::array<std::string, kDTypes> numbers;  // of each type, packed: one buffer each
  bool reads = false;                        // some call reads something
  bool alone = false;                        // it is one call, which is not to be composed with others
  std::vector<bool> live;                    // of the values, when the graph is to run: somebody else holds them

  template <typename F>
  void each_operand(size_t call, F&& f) const {
    const Call& c = calls[call];
    for (size_t i = 0; i < c.program->params.size(); ++i) f(c.program->params[i], Operand(words[c.operands + i]));
  }
  size_t count(DType dtype) const { return numbers[static_cast<size_t>(dtype)].size() / size_of(dtype); }
  // Bytes of inputs that nobody else holds and nothing takes the place of.
  size_t bytes() const;
  void clear();
};

// The graph as one program: its parameters are the inputs, then the numbers of each type that occurs.
struct Fused {
  std::string text;
  std::vector<size_t> outputs;                               // which values they are
  std::vector<std::pair<DType, const BufferType*>> numbers;  // as one-dimensional arrays
  std::vector<size_t> taken;                                 // inputs whose memory an output takes
};
// `is_ours`: nobody outside of the notes holds that input, so that an output may take its memory.
Fused fuse(const CallGraph& graph, const std::function<bool(size_t input)>& is_ours);

// Is one program cheaper than the calls one by one? Counts the graph in the programs it holds when it is new. `soon`:
// the programs that will be compiled for the graphs before it.
bool is_worth_compiling(const CallGraph& graph, bool is_new, const std::unordered_set<const Program*>& soon);

// What the compiler is asked for; `fused` keeps the text.
compile::Request request_of(const CallGraph& graph, const Fused& fused, std::string reason, const std::string& where);

}  // namespace tpj::exec
