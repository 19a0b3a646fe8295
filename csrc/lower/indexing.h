// Reads and writes at computed positions, with PyTorch's rules: negative positions count from the end; out of range
// (which PyTorch refuses, and a program cannot) reads NaN, or 0 for integers, and writes nothing.
#pragma once

#include "lower/call.h"

namespace tpj::lower {

// Indices into a dimension of `size` as valid positions, or -1 where out of range; int32 wherever `size` allows it.
Value positions(Builder& b, const Value& indices, int64_t size);

// `at` indexes dimensions `dims` of a tensor together: all values of one shape, made by positions(). In the result, or
// the update, of shape [x's other dimensions] that shape stands at dimension `place`.
struct Index {
  Values at;
  Dims dims;
  int64_t place = 0;
};

// x[:, i, j, :] for a general index.
Value read_at(Builder& b, const Value& x, const Index& index);
// Sizes of what read_at returns.
Dims indexed_dims(const Dims& x, const Index& index);
// x with body(x[...], update) at the indexed places, one after another; `update` has the sizes of read_at's result.
Value write_at(Builder& b, const Value& x, const Index& index, const Value& update, const Builder::Body& body);

// torch.gather: result[i][j][k] = x[at[i][j][k]][j][k] for dim 0. `at` is made by positions(); x may be larger than
// `at` elsewhere.
Value read_along(Builder& b, const Value& x, int64_t dim, const Value& at);
// torch.scatter: x with body(x, update) at [at[i][j][k]][j][k]; `update` has the sizes of `at`.
Value write_along(Builder& b, const Value& x, int64_t dim, const Value& at, const Value& update,
                  const Builder::Body& body);

// Bodies for the writes.
Builder::Body replace();
// bool: or.
Builder::Body accumulate(Builder& b);
Builder::Body multiply(Builder& b);
Builder::Body greatest(Builder& b);
Builder::Body least(Builder& b);

}  // namespace tpj::lower
