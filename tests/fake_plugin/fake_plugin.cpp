// A PJRT plugin that is wrong in one way, chosen by a macro when it is compiled. Tests load these to see that each
// mistake gets its own clear error. FAKE_FEW_SLOTS is different: it stands in front of the real plugin named by the
// environment variable TORCH_PJRT_TEST_PLUGIN and hides its optional functions.
#include <dlfcn.h>

#include <cstdlib>
#include <cstring>

#include "xla/pjrt/c/pjrt_c_api.h"

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace {

// The only error a fake ever returns.
struct FakeError {
  PJRT_Error_Code code;
  const char* message;
};

PJRT_Error* error(PJRT_Error_Code code, const char* message) {
  return reinterpret_cast<PJRT_Error*>(new FakeError{code, message});
}

void error_destroy(PJRT_Error_Destroy_Args* args) { delete reinterpret_cast<FakeError*>(args->error); }

void error_message(PJRT_Error_Message_Args* args) {
  args->message = reinterpret_cast<const FakeError*>(args->error)->message;
  args->message_size = std::strlen(args->message);
}

PJRT_Error* error_code(PJRT_Error_GetCode_Args* args) {
  args->code = reinterpret_cast<const FakeError*>(args->error)->code;
  return nullptr;
}

PJRT_Error* refuse(void*) { return error(PJRT_Error_Code_INTERNAL, "a fake plugin cannot do this"); }

template <typename Fn>
Fn* refusing() {
  return reinterpret_cast<Fn*>(refuse);
}

PJRT_Error* initialize(PJRT_Plugin_Initialize_Args*) {
#ifdef FAKE_INIT_FAILS
  return error(PJRT_Error_Code_UNAVAILABLE, "the fake chip is asleep");
#else
  return nullptr;
#endif
}

PJRT_Error* client_create(PJRT_Client_Create_Args*) {
  return error(PJRT_Error_Code_FAILED_PRECONDITION, "no fake chip found");
}

[[maybe_unused]] PJRT_Api make_api() {
  PJRT_Api api{};
  api.struct_size = PJRT_Api_STRUCT_SIZE;
  api.pjrt_api_version.struct_size = PJRT_Api_Version_STRUCT_SIZE;
  api.pjrt_api_version.major_version = PJRT_API_MAJOR;
  api.pjrt_api_version.minor_version = PJRT_API_MINOR;
  api.PJRT_Error_Destroy = error_destroy;
  api.PJRT_Error_Message = error_message;
  api.PJRT_Error_GetCode = error_code;
  api.PJRT_Plugin_Initialize = initialize;
  api.PJRT_Client_Create = client_create;
#define REFUSE(name) api.name = refusing<name>();
  REFUSE(PJRT_Event_Destroy)
  REFUSE(PJRT_Event_IsReady)
  REFUSE(PJRT_Event_Await)
  REFUSE(PJRT_Client_Destroy)
  REFUSE(PJRT_Client_AddressableDevices)
  REFUSE(PJRT_Client_Compile)
  REFUSE(PJRT_Client_BufferFromHostBuffer)
  REFUSE(PJRT_LoadedExecutable_Execute)
  REFUSE(PJRT_LoadedExecutable_Destroy)
  REFUSE(PJRT_Buffer_Destroy)
  REFUSE(PJRT_Buffer_ToHostBuffer)
#undef REFUSE
#ifdef FAKE_OLD_API
  api.pjrt_api_version.minor_version = 40;
#endif
#ifdef FAKE_OTHER_MAJOR
  api.pjrt_api_version.major_version = 1;
#endif
#ifdef FAKE_LACKS_COMPILE
  api.PJRT_Client_Compile = nullptr;
#endif
  return api;
}

[[maybe_unused]] PJRT_Api hide_optional_functions() {
  const char* path = std::getenv("TORCH_PJRT_TEST_PLUGIN");
  void* library = path != nullptr ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : nullptr;
  if (library == nullptr) return make_api();
  const auto* real = reinterpret_cast<const PJRT_Api* (*)()>(dlsym(library, "GetPjrtApi"))();
  PJRT_Api api{};
  // Everything newer is absent because the table ends before it, everything older because it is null.
  api.struct_size = offsetof(PJRT_Api, PJRT_Client_CreateUninitializedBuffer);
  std::memcpy(&api, real, api.struct_size);
  api.struct_size = offsetof(PJRT_Api, PJRT_Client_CreateUninitializedBuffer);
  api.extension_start = nullptr;
  api.PJRT_Plugin_Attributes = nullptr;
  api.PJRT_Buffer_CopyToDevice = nullptr;
  api.PJRT_Buffer_OpaqueDeviceMemoryDataPointer = nullptr;
  api.PJRT_Buffer_UnsafePointer = nullptr;
  api.PJRT_Device_MemoryStats = nullptr;
  api.PJRT_Executable_DeserializeAndLoad = nullptr;
  api.PJRT_Executable_Fingerprint = nullptr;
  api.PJRT_Executable_GetCompiledMemoryStats = nullptr;
  api.PJRT_Executable_GetCostAnalysis = nullptr;
  api.PJRT_Executable_Serialize = nullptr;
  return api;
}

}  // namespace

#ifdef FAKE_NO_ENTRY
EXPORT int not_the_entry_point() { return 0; }
#elif defined(FAKE_NULL_API)
EXPORT const PJRT_Api* GetPjrtApi() { return nullptr; }
#elif defined(FAKE_FEW_SLOTS)
EXPORT const PJRT_Api* GetPjrtApi() {
  static const PJRT_Api api = hide_optional_functions();
  return &api;
}
#else
EXPORT const PJRT_Api* GetPjrtApi() {
  static const PJRT_Api api = make_api();
  return &api;
}
#endif
