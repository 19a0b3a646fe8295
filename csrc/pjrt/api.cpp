#include "pjrt/api.h"

namespace tpj::pjrt {
namespace {

const char* code_name(PJRT_Error_Code code) {
  static constexpr const char* kNames[] = {
      "OK",        "CANCELLED",      "UNKNOWN",           "INVALID_ARGUMENT",   "DEADLINE_EXCEEDED",
      "NOT_FOUND", "ALREADY_EXISTS", "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION",
      "ABORTED",   "OUT_OF_RANGE",   "UNIMPLEMENTED",     "INTERNAL",           "UNAVAILABLE",
      "DATA_LOSS", "UNAUTHENTICATED"};
  const auto i = static_cast<size_t>(code);
  return i < std::size(kNames) ? kNames[i] : "error of an unknown code";
}

ErrorKind kind_of(PJRT_Error_Code code) {
  switch (code) {
    case PJRT_Error_Code_RESOURCE_EXHAUSTED:
      return ErrorKind::kOutOfMemory;
    case PJRT_Error_Code_UNIMPLEMENTED:
      return ErrorKind::kNotImplemented;
    default:
      return ErrorKind::kRuntime;
  }
}

// Reads and frees `error`.
Error to_error(const Api& api, const char* function, PJRT_Error* error) {
  TPJ_PJRT_ARGS(PJRT_Error_GetCode, code);
  code.error = error;
  code.code = PJRT_Error_Code_UNKNOWN;
  ignore_error(api, api.c->PJRT_Error_GetCode(&code));
  TPJ_PJRT_ARGS(PJRT_Error_Message, text);
  text.error = error;
  api.c->PJRT_Error_Message(&text);
  std::string message = text.message != nullptr ? std::string(text.message, text.message_size) : "no message";
  ignore_error(api, error);
  return Error(kind_of(code.code),
               str("[", function, "] plugin ", api.plugin, ": ", code_name(code.code), ": ", message));
}

}  // namespace

void throw_error(const Api& api, const char* function, PJRT_Error* error) { throw to_error(api, function, error); }

std::exception_ptr to_exception(const Api& api, const char* function, PJRT_Error* error) noexcept {
  if (error == nullptr) return nullptr;
  try {
    return std::make_exception_ptr(to_error(api, function, error));
  } catch (...) {
    return std::current_exception();
  }
}

void ignore_error(const Api& api, PJRT_Error* error) noexcept {
  if (error == nullptr) return;
  TPJ_PJRT_ARGS(PJRT_Error_Destroy, args);
  args.error = error;
  api.c->PJRT_Error_Destroy(&args);
}

void throw_missing(const Api& api, const char* function) {
  fail(ErrorKind::kNotImplemented, "[", function, "] plugin ", api.plugin, " (PJRT API 0.",
       api.c->pjrt_api_version.minor_version, ") does not have this function");
}

void rethrow_foreign(const Api& api, const char* function) {
  try {
    throw;
  } catch (const std::exception& e) {
    fail(ErrorKind::kRuntime, "[", function, "] plugin ", api.plugin, " threw: ", e.what());
  } catch (...) {
    fail(ErrorKind::kRuntime, "[", function, "] plugin ", api.plugin, " threw an exception of an unknown type");
  }
}

}  // namespace tpj::pjrt
