// Numbers as StableHLO text.
#pragma once

#include <string>
#include <vector>

#include "hlo/type.h"

namespace tpj::hlo {

// One element of `dtype`; non-finite floats as bit patterns, bool as true/false, complex with a zero imaginary part.
std::string literal(DType dtype, double value);
std::string literal(DType dtype, int64_t value);

// `dense<[[1, 2], [3, 4]]>` (integers and bool).
std::string dense_literal(const Type& type, const std::vector<int64_t>& values);

// +-infinity.
double extreme_float(DType dtype, bool greatest);
// The greatest or least value; as a bit pattern for unsigned 64-bit.
int64_t extreme_int(DType dtype, bool greatest);

}  // namespace tpj::hlo
