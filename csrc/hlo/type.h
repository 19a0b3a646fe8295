// Types and values of a StableHLO program.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/dtype.h"

namespace tpj::hlo {

using Dims = std::vector<int64_t>;

inline int64_t numel(const Dims& dims) {
  int64_t n = 1;
  for (int64_t d : dims) n *= d;
  return n;
}

// A static tensor type, e.g. {F32, {2, 3}} = tensor<2x3xf32>.
struct Type {
  DType dtype = DType::F32;
  Dims dims;

  int64_t rank() const { return static_cast<int64_t>(dims.size()); }
  int64_t numel() const { return hlo::numel(dims); }
  bool operator==(const Type&) const = default;
  std::string str() const;
};

// A handle to one result of one operation; copied freely, owned by the Builder that made it.
struct Value {
  int id = -1;
  Type type;

  explicit operator bool() const { return id >= 0; }
  DType dtype() const { return type.dtype; }
  const Dims& dims() const { return type.dims; }
  int64_t rank() const { return type.rank(); }
  int64_t dim(int64_t i) const { return type.dims[static_cast<size_t>(i)]; }
};

using Values = std::vector<Value>;

// Whether all elements of a value are one number, whatever it is: what a compiler sees as a broadcast of a scalar.
enum class Uniform : uint8_t { kNo, kIfParametersAre, kYes };

}  // namespace tpj::hlo
