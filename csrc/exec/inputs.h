// The inputs of one call as the key and the run see them: distinct cells, in order of appearance.
#pragma once

#include <ATen/core/stack.h>

#include <array>
#include <vector>

#include "compile/key.h"
#include "exec/program.h"
#include "runtime/cell.h"
#include "runtime/device.h"

namespace tpj::exec {

// Reused from call to call by its thread.
struct Inputs {
  compile::KeyBuilder key;
  std::vector<runtime::Cell*> cells;
  std::vector<const BufferType*> types;  // of each cell when it was first seen; null: never written
  int device = -1;                       // of all cells; -1 while there is none
  torch::jit::Stack borrowed;            // arguments of a call without a stack of its own

  // Where the call runs.
  int device_or_current() const { return device < 0 ? runtime::current_device() : device; }

  Inputs* next = nullptr;  // of this thread's spare ones

  void clear() {
    key.clear();
    cells.clear();
    types.clear();
    lookup_.clear();
    device = -1;
  }

  // Appends everything the program depends on of this device tensor; returns its cell's index.
  // `may_move`: part of its offset may be an input (not for out=, which may be resized).
  int add_tensor(const c10::TensorImpl& t, bool may_move);
  // The offset of a tensor in its cell's buffer. The same answer as when it was added.
  static Offset offset_of(const c10::TensorImpl& t, const BufferType* type);

 private:
  int add_cell(runtime::Cell* cell);
  std::vector<std::pair<runtime::Cell*, int>> lookup_;  // open addressing, only for many cells
};

// The value of a CPU 0-d tensor.
c10::Scalar read_scalar(const at::Tensor& t);

// The bytes of a scalar; zeros follow.
using Number = std::array<uint64_t, 2>;
// A number or CPU 0-d tensor as a scalar of `dtype`. Throws PyTorch's overflow error when it does not fit.
Number number_of(const c10::IValue& value, DType dtype);
// As a buffer, which is cached.
runtime::BufferRef number_buffer(const Number& number, DType dtype, int device);

}  // namespace tpj::exec
