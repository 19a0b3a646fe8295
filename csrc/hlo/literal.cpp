#include "hlo/literal.h"

#include <cinttypes>
#include <cmath>
#include <cstdio>
#include <limits>

namespace tpj::hlo {
namespace {

// Bit patterns of infinity and quiet NaN; nullptr where the type has none.
struct Special {
  const char *inf, *minus_inf, *nan;
};

Special special(DType t) {
  switch (t) {
    case DType::F8E5M2:
      return {"0x7C", "0xFC", "0x7E"};
    case DType::F8E4M3FN:
      return {"0x7F", "0xFF", "0x7F"};  // no infinity: NaN stands in
    case DType::F16:
      return {"0x7C00", "0xFC00", "0x7E00"};
    case DType::BF16:
      return {"0x7F80", "0xFF80", "0x7FC0"};
    case DType::F32:
      return {"0x7F800000", "0xFF800000", "0x7FC00000"};
    case DType::F64:
      return {"0x7FF0000000000000", "0xFFF0000000000000", "0x7FF8000000000000"};
    default:
      return {};
  }
}

}  // namespace

std::string literal(DType dtype, double value) {
  if (is_bool(dtype)) return value != 0 ? "true" : "false";
  if (is_complex(dtype)) return str("(", literal(real_of(dtype), value), ", ", literal(real_of(dtype), 0.0), ")");
  if (is_integer(dtype)) return literal(dtype, static_cast<int64_t>(value));
  if (std::isnan(value)) return special(dtype).nan;
  // A double beyond float32 rounds to infinity, as a C++ cast does.
  if (dtype == DType::F32) value = static_cast<float>(value);
  if (std::isinf(value)) return value > 0 ? special(dtype).inf : special(dtype).minus_inf;
  char text[40];
  std::snprintf(text, sizeof text, dtype == DType::F64 ? "%.16e" : "%.8e", value);
  return text;
}

std::string literal(DType dtype, int64_t value) {
  if (is_bool(dtype)) return value != 0 ? "true" : "false";
  if (is_float(dtype) || is_complex(dtype)) return literal(dtype, static_cast<double>(value));
  const size_t bits = 8 * size_of(dtype);
  if (is_unsigned(dtype)) {
    const uint64_t mask = bits == 64 ? ~0ull : (1ull << bits) - 1;
    return std::to_string(static_cast<uint64_t>(value) & mask);
  }
  // Wrap to the width, keeping the sign.
  return std::to_string(static_cast<int64_t>(static_cast<uint64_t>(value) << (64 - bits)) >> (64 - bits));
}

std::string dense_literal(const Type& type, const std::vector<int64_t>& values) {
  if (values.empty()) return "dense<>";
  std::string s;
  size_t next = 0;
  const auto write = [&](auto&& self, size_t dim) -> void {
    if (dim == type.dims.size()) {
      s += literal(type.dtype, values[next++]);
      return;
    }
    s += "[";
    for (int64_t i = 0; i < type.dims[dim]; ++i) {
      if (i) s += ", ";
      self(self, dim + 1);
    }
    s += "]";
  };
  write(write, 0);
  return "dense<" + s + ">";
}

double extreme_float(DType, bool greatest) {
  return greatest ? std::numeric_limits<double>::infinity() : -std::numeric_limits<double>::infinity();
}

int64_t extreme_int(DType dtype, bool greatest) {
  if (is_bool(dtype)) return greatest;
  const size_t bits = 8 * size_of(dtype);
  if (is_unsigned(dtype)) return greatest ? static_cast<int64_t>(bits == 64 ? ~0ull : (1ull << bits) - 1) : 0;
  const int64_t max = static_cast<int64_t>((1ull << (bits - 1)) - 1);
  return greatest ? max : -max - 1;
}

}  // namespace tpj::hlo
