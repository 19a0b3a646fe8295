// Running reductions along one dimension, shared by the families that count or accumulate.
#pragma once

#include "lower/call.h"

namespace tpj::lower {

// result[i] = xs[0] op ... op xs[i] along dim, for an associative body with the given identities. `body` must work on
// values of any (equal) sizes. One window per element: compilers know this form and need far less than O(n^2) work for
// it.
Values running(Builder& b, const Values& xs, int64_t dim, const Values& identities, const Builder::Body& body);

// The same for one operand and a binary method, e.g. running(b, x, 0, &Builder::add, zero).
Value running(Builder& b, const Value& x, int64_t dim, Value (Builder::*op)(const Value&, const Value&),
              const Value& identity);

// How many true elements of the mask stand before each one, row-major, in one dimension; -1 where false.
Value order_of_true(Builder& b, const Value& mask);

}  // namespace tpj::lower
