// base/dtype.h's table <-> c10::ScalarType.
#pragma once

#include <c10/core/ScalarType.h>

#include <optional>

#include "base/dtype.h"

namespace tpj::runtime {

// Throws TypeError for a type that no plugin has (quantized and sub-byte types).
DType to_dtype(c10::ScalarType type);
std::optional<DType> find_dtype(c10::ScalarType type);
c10::ScalarType to_scalar_type(DType dtype);

}  // namespace tpj::runtime
