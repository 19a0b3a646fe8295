// The parts that register_operators() puts together, one source file each.
#pragma once

#include <torch/library.h>

#include <memory>

#include "eager/op_kernel.h"

namespace tpj::eager {

// rows.cpp: all operators with a row.
void register_rows(torch::Library& lib);
std::unique_ptr<OpKernel> make_kernel(const lower::Row& row, const c10::OperatorHandle& op);

// The form of an overload that has a row; nullptr otherwise.
const exec::Form* find_form(const std::string& overload);
// For keys of operators without a row: every number is part of the key, since a decomposition may look at it.
exec::Form form_without_row(const c10::FunctionSchema& schema);

// counted.cpp: operators whose results' sizes are data, of rows that say so.
torch::CppFunction counted_function(const lower::Row& row, const c10::OperatorHandle& op);
// An out= form as the functional call and a copy.
torch::CppFunction out_function(const c10::OperatorHandle& functional);
// The least power of two that is not less: sizes for programs that serve many sizes.
int64_t power_of_two(int64_t n);

// composed.cpp: operators made of others, where PyTorch says nothing about their results.
void register_composed(torch::Library& lib);

// decomposed.cpp: PyTorch's decomposition, traced once for each key. False when there is none: nothing was done.
bool run_decomposed(const c10::OperatorHandle& op, torch::jit::Stack& stack);

// storage_ops.cpp: factories, views, resizes: metadata only.
void register_storage_ops(torch::Library& lib);

// copy_ops.cpp: copies in every direction, reading a scalar, equality.
void register_copy_ops(torch::Library& lib);

// A CPU tensor with the device tensor's geometry over its bytes: the buffer itself where the plugin's memory is the
// host's, else a copy. Waits. Never write to it.
at::Tensor host_view(const at::Tensor& src);

// fallback.cpp: the boxed kernel for everything else.
void register_fallback();
// Does PyTorch's code for printing tensors make this call? Then the CPU runs it, and nothing is compiled.
bool is_printing();

// traced.cpp: tpj::run_traced.
void register_traced(torch::Library& lib);

// autocast.cpp
void register_autocast();
void register_graph();

}  // namespace tpj::eager
