// Index bounds, looked at before the call where that needs no wait: index tensors that are ready on a plugin whose
// memory is the host's.
#pragma once

#include <ATen/core/stack.h>

#include "lower/row.h"

namespace tpj::eager {

// True when some position is certainly or possibly out of range: the caller lets the CPU's kernel judge and word it.
// Errs on that side (a negative position counts as suspicious where only some operators take it).
bool suspicious_positions(lower::Positions kind, const c10::IValue* args);

}  // namespace tpj::eager
