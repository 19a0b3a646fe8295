// Steps that the factorisations share. A matrix is the last two dimensions; [batch, m, n] is a batch of them.
#pragma once

#include <functional>

#include "lower/call.h"

namespace tpj::lower {

// A constant of any dtype, complex too.
Value splat(Builder& b, const Type& type, double v);
Value conjugate(Builder& b, const Value& x);
// The conjugate transpose.
Value adjoint(Builder& b, const Value& x);
// The real value as one of the dtype of `like`, real or complex.
Value in_type_of(Builder& b, const Value& like, const Value& real);
// All leading dimensions as one.
Value as_batch(Builder& b, const Value& x);
// Batches broadcast to those of `like`, the last two dimensions kept.
Value with_batch_of(Builder& b, const Value& x, const Dims& like);
// Ones where row and column are equal.
Value identity(Builder& b, const Type& type);
// What is on the diagonal and above; 0 elsewhere.
Value upper_triangle(Builder& b, const Value& x);
// [batch, min(m, n)] of [batch, m, n].
Value diagonal(Builder& b, const Value& x);
// The sum along one dimension, which stays with size 1.
Value sum_along(Builder& b, const Value& x, int64_t dim);
// Columns `from` to `to` of a batch.
Value columns(Builder& b, const Value& x, int64_t from, int64_t to);

// An int32 scalar.
Value index(Builder& b, int64_t i);
// The state after body(i, state) for i = 0 .. n-1.
Values repeat(Builder& b, int64_t n, const Values& state,
              const std::function<Values(const Value& i, const Values& state)>& body);

// Householder's reflectors as LAPACK's geqrf packs them: R on and above the diagonal, below it the vectors without
// their leading 1; Q = H(0) H(1) ..., H(i) = 1 - tau[i] v v^H.
struct Reflectors {
  Value packed, tau;  // [batch, m, n]; [batch, min(m, n)]
};
Reflectors householder(Builder& b, const Value& x);
// Q x, or Q^H x, for x [batch, m, p].
Value apply_reflectors(Builder& b, const Reflectors& r, const Value& x, bool adjoint);

}  // namespace tpj::lower
