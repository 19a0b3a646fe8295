// Bounds of arguments' values, looked at before the call. Positions only where that needs no wait: index tensors that
// are ready on a plugin whose memory is the host's.
#pragma once

#include <ATen/core/stack.h>

#include <optional>
#include <span>

#include "lower/row.h"

namespace tpj::eager {

// True when some value is certainly or possibly out of bounds: the caller lets the CPU's kernel judge and word it.
// Errs on that side (a negative position counts as suspicious where only some operators take it).
bool out_of_bounds(lower::Bounds kind, std::span<const c10::IValue> args);

// The same of one index tensor: some value is not in [low, high) and is not `also`.
bool has_outside(const at::Tensor& index, int64_t low, int64_t high, std::optional<int64_t> also);

}  // namespace tpj::eager
