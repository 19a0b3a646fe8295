// Sorting, shared by the families that need an order. NaN is the greatest number, as in PyTorch.
#pragma once

#include "lower/call.h"

namespace tpj::lower {

// `keys` sorted along dim, and `others` (of the same sizes) in their order. Stable in both directions.
Values sort_by(Builder& b, const Value& keys, const Value& others, int64_t dim, bool descending);

// (sorted values, their positions).
Values sorted(Builder& b, const Value& x, int64_t dim, bool descending);

// How many elements of the sorted last dimension of `sequence` stand before each value: below it, or (right) not above
// it, by binary search. The leading dimensions agree, or the sequence has one dimension.
Value search(Builder& b, const Value& sequence, const Value& values, bool right);

}  // namespace tpj::lower
