// A lowered call with all that a cache hit needs. Immutable once made, but for what is compiled when it is first run by
// itself; any thread may use it.
#pragma once

#include <ATen/core/stack.h>
#include <c10/core/ScalarType.h>
#include <c10/util/SmallVector.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "compile/compiler.h"
#include "exec/views.h"
#include "hlo/type.h"
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
  enum class Kind : uint8_t { kCell, kNumber, kOffset, kRng };
  Kind kind = Kind::kCell;
  DType dtype = DType::F32;          // of all but kCell: 0-d, and kRng two elements
  int cell = -1;                     // kCell: index among the call's distinct cells
  ArgPath path;                      // kNumber; kOffset: the tensor
  Offset offset;                     // kOffset: of that tensor, whose number this is
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
  std::string name;               // operator; also the producer of its buffers
  std::string text;               // StableHLO; empty when nothing is to compute (all results empty)
  bool is_heavy = false;          // a matrix product or a convolution: nothing before it becomes a part of it
  bool reads = false;             // some cell
  bool runs_alone = false;        // in fused eager, too: a compiled function, or double precision
  compile::CompileRecord record;  // why the call was lowered, and where
  std::vector<Param> params;
  std::vector<const BufferType*> outputs;
  std::vector<hlo::Uniform> uniform;  // of the outputs
  std::vector<Resize> resizes;
  std::vector<Write> writes;
  std::vector<Result> results;

  // The program by itself, which stays in memory as long as the value lives; compiles at the first call. Throws what
  // the compiler says.
  class Executable {
   public:
    explicit Executable(const Program& program);
    ~Executable() { program_.users_.fetch_sub(1, std::memory_order_release); }
    Executable(const Executable&) = delete;
    Executable& operator=(const Executable&) = delete;
    const pjrt::Executable* operator->() const { return executable_; }

   private:
    const Program& program_;
    const pjrt::Executable* executable_;
  };
  Executable executable() const { return Executable(*this); }
  bool is_compiled() const { return compiled_.load(std::memory_order_acquire) != nullptr; }
  // For who compiles several at once: what the compiler is asked for, and where its answer goes.
  compile::Request request() const;
  void set_executable(std::unique_ptr<pjrt::Executable> executable) const;

  mutable std::atomic<int> graphs{0};  // how many graphs that ran for the first time held it

  // Takes the half of all programs from memory that nobody called for longest; they compile again when they are called.
  static void free_oldest();

 private:
  const pjrt::Executable& compiled() const;
  void keep(std::unique_ptr<pjrt::Executable> executable) const;  // under the mutex
  bool try_free() const;

  mutable std::mutex mutex_;
  mutable std::unique_ptr<pjrt::Executable> owned_;
  mutable std::atomic<const pjrt::Executable*> compiled_{nullptr};
  mutable std::atomic<int> users_{0};
  mutable std::atomic<int64_t> last_use_{0};  // in compiles of the process
};

// What the executable takes there.
pjrt::TensorType type_of(const Param& param);

}  // namespace tpj::exec
