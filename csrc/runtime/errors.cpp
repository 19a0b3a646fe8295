#include "runtime/errors.h"

#include "runtime/buffer.h"

namespace tpj::runtime {

void rethrow(const Error& e) {
  const std::string what = e.what();
  switch (e.kind()) {
    case ErrorKind::kIndex:
      TORCH_CHECK_INDEX(false, what);
    case ErrorKind::kNotImplemented:
      TORCH_CHECK_NOT_IMPLEMENTED(false, what);
    case ErrorKind::kOutOfMemory:
      Ledger::get().out_of_memory += 1;
      TORCH_CHECK_WITH(OutOfMemoryError, false, what, "\n", Ledger::get().report(8));
    case ErrorKind::kType:
      TORCH_CHECK_TYPE(false, what);
    case ErrorKind::kValue:
      TORCH_CHECK_VALUE(false, what);
    default:
      TORCH_CHECK(false, what);
  }
  std::abort();  // not reached: every case throws
}

}  // namespace tpj::runtime
