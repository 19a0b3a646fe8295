// What a chip's compiler may lack, so that a lowering does without. Each is a capability of the plugin (pjrt/caps.h).
#pragma once

#include "base/dtype.h"
#include "base/errors.h"

namespace tpj {

// VALUE(name, type, default, help)
#define TPJ_LIMITS(VALUE)                                                                  \
  VALUE(complex128_fft, bool, true, "Fourier transforms in 64-bit floats")                 \
  VALUE(donation, bool, true, "an input buffer may be reused for an output")               \
  VALUE(float64, bool, true, "64-bit floats, native or emulated")                          \
  VALUE(int64, bool, true, "64-bit integers, native or emulated")                          \
  VALUE(int64_division, bool, true, "vectors of 64-bit integers divide in one operation")  \
  VALUE(int64_dot, bool, true, "products of matrices and convolutions of 64-bit integers") \
  VALUE(sort_functions, bool, true, "sorts compare by any function, not only by one < or >")

struct Limits {
#define TPJ_LIMIT(name, type, def, help) type name = def;
  TPJ_LIMITS(TPJ_LIMIT)
#undef TPJ_LIMIT
};

// Throws Error(kNotImplemented) for a type that the device does not have.
inline void check_dtype(const Limits& limits, DType dtype) {
  if (!limits.float64 && (dtype == DType::F64 || dtype == DType::C128))
    fail(ErrorKind::kNotImplemented, "the device has no 64-bit floats (capability float64): use ",
         dtype == DType::F64 ? "float32" : "complex64");
  if (!limits.int64 && (dtype == DType::I64 || dtype == DType::U64))
    fail(ErrorKind::kNotImplemented, "the device has no 64-bit integers (capability int64)",
         dtype == DType::I64 ? ": use int32" : "");
}

// The type that numbers of this type have inside a program: on a device without 64-bit floats or integers the next
// narrower one. Tensors are never narrowed: see check_dtype(). Nor are unsigned integers, which hold bits.
inline DType fitting(const Limits& limits, DType dtype) {
  if (!limits.int64 && dtype == DType::I64) return DType::I32;
  if (limits.float64) return dtype;
  return dtype == DType::F64 ? DType::F32 : dtype == DType::C128 ? DType::C64 : dtype;
}

}  // namespace tpj
