// Sorting, shared by the families that need an order. NaN is the greatest number, as in PyTorch.
#pragma once

#include "lower/call.h"

namespace tpj::lower {

// `keys` sorted along dim, and `others` (of the same sizes) in their order. Stable in both directions.
Values sort_by(Builder& b, const Value& keys, const Value& others, int64_t dim, bool descending);

// (sorted values, their positions).
Values sorted(Builder& b, const Value& x, int64_t dim, bool descending);

}  // namespace tpj::lower
