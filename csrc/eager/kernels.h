// The parts that register_operators() puts together, one source file each.
#pragma once

#include <torch/library.h>

#include <memory>

#include "eager/op_kernel.h"

namespace tpj::eager {

// rows.cpp: all operators with a row.
void register_rows(torch::Library& lib);
std::unique_ptr<OpKernel> make_kernel(const lower::Row& row, const c10::OperatorHandle& op);

// storage_ops.cpp: factories, views, resizes: metadata only.
void register_storage_ops(torch::Library& lib);

// copy_ops.cpp: copies in every direction, reading a scalar, equality.
void register_copy_ops(torch::Library& lib);

// fallback.cpp: the boxed kernel for everything else.
void register_fallback();

// autocast.cpp
void register_autocast();

}  // namespace tpj::eager
