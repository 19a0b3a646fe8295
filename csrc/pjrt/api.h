// The one door to a plugin's C functions: fill struct_size, check that the function exists, run it, turn a
// PJRT_Error into a tpj::Error. Everything in csrc/pjrt goes through it, except the few hot calls, which check
// their function once, when the client or the executable is made.
//
//   TPJ_PJRT_ARGS(PJRT_Client_PlatformName, args);   // zeroed, struct_size filled
//   args.client = client;
//   TPJ_PJRT_CALL(api, PJRT_Client_PlatformName, args);
//
// Errors: RESOURCE_EXHAUSTED is kOutOfMemory, UNIMPLEMENTED and an absent function are kNotImplemented, every other
// code is kRuntime. The message names the function, the plugin and the code.
#pragma once

#include <cstddef>
#include <exception>
#include <string>

#include "base/errors.h"
#include "xla/pjrt/c/pjrt_c_api.h"

namespace tpj::pjrt {

// A plugin's function table and the name that errors use for it. Lives as long as the process (see plugin.h).
struct Api {
  const PJRT_Api* c = nullptr;
  std::string plugin;
};

// True when the table is long enough to hold the field at `offset` and the field is not null.
inline bool has_slot(const PJRT_Api* c, size_t offset) {
  if (offset + sizeof(void*) > c->struct_size) return false;
  return *reinterpret_cast<void* const*>(reinterpret_cast<const char*>(c) + offset) != nullptr;
}

// Takes ownership of `error` (not null) and throws it; `function` is the C function that returned it.
[[noreturn]] void throw_error(const Api& api, const char* function, PJRT_Error* error);
// The same without throwing; null for a null error.
std::exception_ptr to_exception(const Api& api, const char* function, PJRT_Error* error) noexcept;
// Frees an error that nobody can be told about (destructors). Null is fine.
void ignore_error(const Api& api, PJRT_Error* error) noexcept;
[[noreturn]] void throw_missing(const Api& api, const char* function);
// To be called in a handler: some plugins let C++ exceptions out of their C functions (seen for overflowing shapes).
[[noreturn]] void rethrow_foreign(const Api& api, const char* function);

template <typename Fn, typename Args>
void call(const Api& api, Fn* PJRT_Api::* slot, size_t offset, const char* function, Args* args) {
  if (!has_slot(api.c, offset)) [[unlikely]]
    throw_missing(api, function);
  PJRT_Error* error = nullptr;
  try {
    error = (api.c->*slot)(args);
  } catch (...) {
    rethrow_foreign(api, function);
  }
  if (error != nullptr) [[unlikely]]
    throw_error(api, function, error);
}

// For destructors: a missing function or an error is dropped.
template <typename Fn, typename Args>
void call_quietly(const Api& api, Fn* PJRT_Api::* slot, size_t offset, Args* args) noexcept {
  if (has_slot(api.c, offset)) ignore_error(api, (api.c->*slot)(args));
}

}  // namespace tpj::pjrt

#define TPJ_PJRT_ARGS(Function, var) \
  Function##_Args var{};             \
  var.struct_size = Function##_Args_STRUCT_SIZE

#define TPJ_PJRT_HAS(api, Function) ::tpj::pjrt::has_slot((api).c, offsetof(PJRT_Api, Function))

#define TPJ_PJRT_CALL(api, Function, args) \
  ::tpj::pjrt::call((api), &PJRT_Api::Function, offsetof(PJRT_Api, Function), #Function, &(args))

// Calls Function on `pointer`, stored in the args' field `field`; never throws. Null pointers are skipped.
#define TPJ_PJRT_DESTROY(api, Function, field, pointer)                                                   \
  do {                                                                                                    \
    if ((pointer) != nullptr) {                                                                           \
      TPJ_PJRT_ARGS(Function, destroy_args);                                                              \
      destroy_args.field = (pointer);                                                                     \
      ::tpj::pjrt::call_quietly((api), &PJRT_Api::Function, offsetof(PJRT_Api, Function), &destroy_args); \
    }                                                                                                     \
  } while (0)
