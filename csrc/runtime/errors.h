// The one place where an Error of the torch-free half becomes PyTorch's exception of the same kind.
#pragma once

#include <c10/util/Exception.h>

#include "base/errors.h"

namespace tpj::runtime {

// Throws the c10 exception for `e`; out of memory carries a table of the largest live buffers.
[[noreturn]] void rethrow(const Error& e);

// Runs f; an Error that leaves it becomes a c10 exception. Free when nothing is thrown.
template <typename F>
decltype(auto) translate(F&& f) {
  try {
    return f();
  } catch (const Error& e) {
    rethrow(e);
  }
}

}  // namespace tpj::runtime
