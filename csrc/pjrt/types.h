// Element types and shapes at the C border: DType <-> PJRT_Buffer_Type, and the size arithmetic that must not overflow.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "xla/pjrt/c/pjrt_c_api.h"

namespace tpj::pjrt {

// Throws Error(kInternal) for a value outside the table (the plugin aborts on INVALID).
PJRT_Buffer_Type to_pjrt(DType dtype);

// Throws Error(kNotImplemented) for an element type that base/dtype.h does not have (4-bit integers, tokens, ...).
DType from_pjrt(PJRT_Buffer_Type type);

// What a parameter or a result of a program is: element type and (upper bounds of the) dimensions.
struct TensorType {
  DType dtype = DType::F32;
  std::vector<int64_t> dims;

  bool operator==(const TensorType&) const = default;
};

// "f32[2,3]"
std::string show(DType dtype, std::span<const int64_t> dims);
inline std::string show(const TensorType& t) { return show(t.dtype, t.dims); }

// Dense size in bytes. Throws Error(kRuntime), starting with "[where]", for a negative dimension or a size that does
// not fit in 63 bits.
int64_t byte_size(const char* where, DType dtype, std::span<const int64_t> dims);

}  // namespace tpj::pjrt
