// Errors of the torch-free half. Two macros: TPJ_CHECK for a mistake of the caller, TPJ_ASSERT for a bug of ours.
// runtime/errors.h turns an Error into PyTorch's exception of the same kind, in one place.
#pragma once

#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>

namespace tpj {

enum class ErrorKind { kRuntime, kIndex, kNotImplemented, kOutOfMemory, kType, kValue, kInternal };

class Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, const std::string& message) : std::runtime_error(message), kind_(kind) {}
  ErrorKind kind() const { return kind_; }

 private:
  ErrorKind kind_;
};

template <typename... Args>
std::string str(const Args&... args) {
  std::ostringstream out;
  (out << ... << args);
  return std::move(out).str();
}

template <typename... Args>
[[noreturn]] void fail(ErrorKind kind, const Args&... args) {
  throw Error(kind, str(args...));
}

}  // namespace tpj

// The caller's mistake: the message says operator, rule and values.
#define TPJ_CHECK(cond, ...)                                \
  do {                                                      \
    if (!(cond)) [[unlikely]]                               \
      ::tpj::fail(::tpj::ErrorKind::kRuntime, __VA_ARGS__); \
  } while (0)

// Our bug: the message says where.
#define TPJ_ASSERT(cond, ...)                                                                                         \
  do {                                                                                                                \
    if (!(cond)) [[unlikely]]                                                                                         \
      ::tpj::fail(::tpj::ErrorKind::kInternal, "torch_pjrt internal error at ", __FILE__, ":", __LINE__, ": ", #cond, \
                  ". ", ##__VA_ARGS__);                                                                               \
  } while (0)
