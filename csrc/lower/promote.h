// PyTorch's type promotion for lowerings. Between tensors of equal dimensionality it is a lattice over dtypes:
// https://docs.pytorch.org/docs/stable/tensor_attributes.html#type-promotion-doc
#pragma once

#include "lower/call.h"

namespace tpj::lower {

// torch.promote_types(a, b).
DType promote(DType a, DType b);

// Result type of a tensor of `tensor` with a Python number of that kind: a higher category gives the default dtype.
DType promote_number(DType tensor, NumberKind number);

// torch.result_type over tensors of these types: 0-d ones only count where their category is higher.
DType result_type(const std::vector<Type>& tensors);

// float32 for bool and integers (PyTorch's int-to-float operators), the type itself otherwise.
inline DType to_float(DType t) { return is_float(t) || is_complex(t) ? t : DType::F32; }

}  // namespace tpj::lower
