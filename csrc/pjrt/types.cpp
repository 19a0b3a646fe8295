#include "pjrt/types.h"

#include <limits>

namespace tpj::pjrt {

PJRT_Buffer_Type to_pjrt(DType dtype) {
  switch (dtype) {
#define X(name, hlo, size, kind, suffix, ...) \
  case DType::name:                           \
    return PJRT_Buffer_Type_##suffix;
    TPJ_DTYPES(X)
#undef X
  }
  TPJ_ASSERT(false, "element type ", static_cast<int>(dtype), " is not in the table");
}

DType from_pjrt(PJRT_Buffer_Type type) {
  switch (type) {
#define X(name, hlo, size, kind, suffix, ...) \
  case PJRT_Buffer_Type_##suffix:             \
    return DType::name;
    TPJ_DTYPES(X)
#undef X
    default:
      break;
  }
  fail(ErrorKind::kNotImplemented, "PJRT element type ", static_cast<int>(type), " has no counterpart here");
}

std::string show(DType dtype, std::span<const int64_t> dims) {
  std::string out = str(info(dtype).name, "[");
  for (size_t i = 0; i < dims.size(); ++i) out += (i == 0 ? "" : ",") + std::to_string(dims[i]);
  return out + "]";
}

int64_t byte_size(const char* where, DType dtype, std::span<const int64_t> dims) {
  to_pjrt(dtype);  // a value outside the table has no size
  int64_t bytes = static_cast<int64_t>(size_of(dtype));
  bool overflow = false;
  bool empty = false;
  for (const int64_t d : dims) {
    TPJ_CHECK(d >= 0, "[", where, "] negative dimension in ", show(dtype, dims));
    if (d == 0) empty = true;
    // Zeros are left out of the product, so that an overflow in the other dimensions is seen whatever their order:
    // strides of such a shape would overflow too.
    if (d != 0 && __builtin_mul_overflow(bytes, d, &bytes)) overflow = true;
  }
  TPJ_CHECK(!overflow, "[", where, "] size of ", show(dtype, dims), " overflows 63 bits");
  return empty ? 0 : bytes;
}

}  // namespace tpj::pjrt
