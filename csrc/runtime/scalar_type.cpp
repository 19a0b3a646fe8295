#include "runtime/scalar_type.h"

#include <c10/util/Exception.h>

namespace tpj::runtime {

std::optional<DType> find_dtype(c10::ScalarType type) {
  switch (type) {
#define X(name, hlo, size, kind, pjrt, torch) \
  case c10::ScalarType::torch:                \
    return DType::name;
    TPJ_DTYPES(X)
#undef X
    default:
      return std::nullopt;
  }
}

DType to_dtype(c10::ScalarType type) {
  const std::optional<DType> t = find_dtype(type);
  TORCH_CHECK_TYPE(t.has_value(), "the device does not support tensors of type ", c10::toString(type));
  return *t;
}

c10::ScalarType to_scalar_type(DType dtype) {
  static constexpr c10::ScalarType kTable[] = {
#define X(name, hlo, size, kind, pjrt, torch) c10::ScalarType::torch,
      TPJ_DTYPES(X)
#undef X
  };
  return kTable[static_cast<size_t>(dtype)];
}

}  // namespace tpj::runtime
