// The one table of element types. Every other folder derives its own names from it:
// the StableHLO spelling (hlo), PJRT_Buffer_Type_<P> (pjrt), c10::ScalarType::<T> (runtime).
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/errors.h"

namespace tpj {

enum class DKind : uint8_t { kBool, kUnsigned, kSigned, kFloat, kComplex };

// X(name, StableHLO spelling, bytes per element, kind, PJRT suffix, torch ScalarType)
#define TPJ_DTYPES(X)                                         \
  X(Bool, "i1", 1, kBool, PRED, Bool)                         \
  X(U8, "ui8", 1, kUnsigned, U8, Byte)                        \
  X(U16, "ui16", 2, kUnsigned, U16, UInt16)                   \
  X(U32, "ui32", 4, kUnsigned, U32, UInt32)                   \
  X(U64, "ui64", 8, kUnsigned, U64, UInt64)                   \
  X(I8, "i8", 1, kSigned, S8, Char)                           \
  X(I16, "i16", 2, kSigned, S16, Short)                       \
  X(I32, "i32", 4, kSigned, S32, Int)                         \
  X(I64, "i64", 8, kSigned, S64, Long)                        \
  X(F8E4M3FN, "f8E4M3FN", 1, kFloat, F8E4M3FN, Float8_e4m3fn) \
  X(F8E5M2, "f8E5M2", 1, kFloat, F8E5M2, Float8_e5m2)         \
  X(F16, "f16", 2, kFloat, F16, Half)                         \
  X(BF16, "bf16", 2, kFloat, BF16, BFloat16)                  \
  X(F32, "f32", 4, kFloat, F32, Float)                        \
  X(F64, "f64", 8, kFloat, F64, Double)                       \
  X(C64, "complex<f32>", 8, kComplex, C64, ComplexFloat)      \
  X(C128, "complex<f64>", 16, kComplex, C128, ComplexDouble)

enum class DType : uint8_t {
#define X(name, ...) name,
  TPJ_DTYPES(X)
#undef X
};

struct DTypeInfo {
  const char* name;  // StableHLO spelling
  size_t size;       // bytes per element
  DKind kind;
};

inline const DTypeInfo& info(DType t) {
  static constexpr DTypeInfo kTable[] = {
#define X(name, hlo, size, kind, ...) {hlo, size, DKind::kind},
      TPJ_DTYPES(X)
#undef X
  };
  return kTable[static_cast<size_t>(t)];
}

inline size_t size_of(DType t) { return info(t).size; }
inline bool is_bool(DType t) { return t == DType::Bool; }
inline bool is_complex(DType t) { return info(t).kind == DKind::kComplex; }
inline bool is_float(DType t) { return info(t).kind == DKind::kFloat; }
inline bool is_unsigned(DType t) { return info(t).kind == DKind::kUnsigned; }
// Integers without bool.
inline bool is_integer(DType t) { return info(t).kind == DKind::kSigned || info(t).kind == DKind::kUnsigned; }

// The type PyTorch's kernels compute in: float32 for the narrow floats, the type itself otherwise.
inline DType opmath(DType t) { return is_float(t) && size_of(t) < 4 ? DType::F32 : t; }
// complex<f32> -> f32; other types unchanged.
inline DType real_of(DType t) { return t == DType::C64 ? DType::F32 : t == DType::C128 ? DType::F64 : t; }
inline DType complex_of(DType t) { return t == DType::F64 || t == DType::C128 ? DType::C128 : DType::C64; }

}  // namespace tpj
