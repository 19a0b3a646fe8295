// A compiled graph with all that a cache hit needs. Immutable once made; any thread may run it.
#pragma once

#include <ATen/core/stack.h>
#include <c10/core/ScalarType.h>
#include <c10/util/SmallVector.h>

#include <memory>
#include <string>
#include <vector>

#include "pjrt/executable.h"
#include "runtime/buffer.h"

namespace tpj::exec {

using runtime::BufferType;

// Where an argument stands in a call: schema position, and place in a list there (-1: not a list).
struct ArgPath {
  int arg = -1;
  int item = -1;
  auto operator<=>(const ArgPath&) const = default;
};

// What the executable takes, in order.
struct Param {
  enum class Kind : uint8_t { kBlock, kCell, kNumber, kRng };
  Kind kind = Kind::kCell;
  DType dtype = DType::F32;          // kNumber: 0-d of this type
  int cell = -1;                     // kCell: index among the call's distinct cells
  ArgPath path;                      // kNumber; kBlock: the tensor whose block number this is
  const BufferType* type = nullptr;  // kCell: what the program expects (what an unwritten cell is filled as)
  bool cell_is_written = false;      // kCell
  int written_by = -1;               // kCell: output that replaces the cell's buffer and may take its memory; -1: none
  uint64_t counters = 0;             // kRng
};

struct TensorSpec {
  c10::SmallVector<int64_t, 5> sizes, strides;
  int64_t offset = 0;
  size_t storage_nbytes = 0;
  c10::ScalarType dtype = c10::ScalarType::Float;
};

// One value that the operator returns.
struct Result {
  enum class Kind : uint8_t { kFresh, kArgument, kUndefined, kList };
  Kind kind;
  TensorSpec spec;            // kFresh
  int output = -1;            // kFresh: index of the buffer, -1 for an empty tensor
  ArgPath path;               // kArgument: this argument itself is returned
  std::vector<Result> items;  // kList
};

struct Write {
  int cell;    // index among the call's distinct cells
  int output;  // whose buffer it gets
};

// An out= tensor that PyTorch's meta kernel resized.
struct Resize {
  ArgPath path;
  TensorSpec spec;
};

struct Program {
  std::string name;                              // operator; also the producer of its buffers
  std::unique_ptr<pjrt::Executable> executable;  // null when nothing is to compute (all results empty)
  std::vector<Param> params;
  std::vector<const BufferType*> outputs;
  std::vector<Resize> resizes;
  std::vector<Write> writes;
  std::vector<Result> results;
};

}  // namespace tpj::exec
