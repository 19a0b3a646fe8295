// A chip that is not there: forwards to the real plugin of FAKE_REAL under another platform name, without what
// FAKE_WITHOUT and FAKE_REFUSES take away, and fails when it is told to. Tests talk to it through the functions at the
// end, with ctypes.
//
//   FAKE_REAL      path of the plugin that does the work
//   FAKE_PLATFORM  platform name ("tpu")
//   FAKE_WITHOUT   functions that it lacks, with commas: "PJRT_Executable_Serialize,PJRT_Buffer_UnsafePointer"
//   FAKE_REFUSES   what a program's text may not hold, with commas: "f64,stablehlo.custom_call,tf.aliasing_output";
//                  "sort_functions": sorts that compare by more than one operation, or by another than LT and GT;
//                  "int64": values of 64-bit integers
#include <dlfcn.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "xla/pjrt/c/pjrt_c_api.h"

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace {

const PJRT_Api* real = nullptr;
std::mutex mutex;

struct Failure {
  PJRT_Error_Code code;
  std::string message;
};
std::set<const void*> errors, events;  // that are ours

std::string text_of(const char* variable) {
  const char* value = std::getenv(variable);
  return value != nullptr ? value : "";
}

std::vector<std::string> list_of(const char* variable) {
  std::vector<std::string> out;
  std::istringstream stream(text_of(variable));
  for (std::string item; std::getline(stream, item, ',');)
    if (!item.empty()) out.push_back(item);
  return out;
}

// ---- counting and failing

std::atomic<long> buffers{0}, executions{0}, compiles{0}, transfers{0};
std::atomic<bool> lost{false};
std::atomic<int> slow_ms{0};

struct Planned {
  int calls = -1;  // that still succeed; -1: none planned
  PJRT_Error_Code code = PJRT_Error_Code_INTERNAL;
};
std::map<std::string, Planned> plans;

PJRT_Error* make_error(PJRT_Error_Code code, std::string message) {
  const std::lock_guard lock(mutex);
  auto* failure = new Failure{code, std::move(message)};
  errors.insert(failure);
  return reinterpret_cast<PJRT_Error*>(failure);
}

// The error that is planned for this call, or null.
PJRT_Error* planned(const char* kind) {
  if (lost) return make_error(PJRT_Error_Code_UNAVAILABLE, "the fake device is lost");
  PJRT_Error_Code code;
  {
    const std::lock_guard lock(mutex);
    Planned& plan = plans[kind];
    if (plan.calls < 0 || plan.calls-- > 0) return nullptr;
    code = plan.code;
  }
  return make_error(code, std::string("planned failure of ") + kind);
}

bool is_ours(const std::set<const void*>& set, const void* p) {
  const std::lock_guard lock(mutex);
  return set.contains(p);
}

void error_destroy(PJRT_Error_Destroy_Args* args) {
  if (!is_ours(errors, args->error)) return real->PJRT_Error_Destroy(args);
  const std::lock_guard lock(mutex);
  errors.erase(args->error);
  delete reinterpret_cast<Failure*>(args->error);
}

void error_message(PJRT_Error_Message_Args* args) {
  if (!is_ours(errors, args->error)) return real->PJRT_Error_Message(args);
  const auto* failure = reinterpret_cast<const Failure*>(args->error);
  args->message = failure->message.data();
  args->message_size = failure->message.size();
}

PJRT_Error* error_code(PJRT_Error_GetCode_Args* args) {
  if (!is_ours(errors, args->error)) return real->PJRT_Error_GetCode(args);
  args->code = reinterpret_cast<const Failure*>(args->error)->code;
  return nullptr;
}

// ---- events that fail, or take their time

struct FakeEvent {
  PJRT_Event* inner;
  bool fails;
};

PJRT_Event* wrap_event(PJRT_Event* inner, bool fails) {
  if (!fails && slow_ms == 0) return inner;
  const std::lock_guard lock(mutex);
  auto* event = new FakeEvent{inner, fails};
  events.insert(event);
  return reinterpret_cast<PJRT_Event*>(event);
}

FakeEvent* fake(PJRT_Event* event) { return is_ours(events, event) ? reinterpret_cast<FakeEvent*>(event) : nullptr; }

PJRT_Error* failed(const FakeEvent& event) {
  if (!event.fails) return nullptr;
  return make_error(PJRT_Error_Code_INTERNAL, "planned failure of event");
}

PJRT_Error* event_destroy(PJRT_Event_Destroy_Args* args) {
  FakeEvent* event = fake(args->event);
  if (event == nullptr) return real->PJRT_Event_Destroy(args);
  PJRT_Event_Destroy_Args inner = *args;
  inner.event = event->inner;
  {
    const std::lock_guard lock(mutex);
    events.erase(event);
  }
  delete event;
  return real->PJRT_Event_Destroy(&inner);
}

PJRT_Error* event_await(PJRT_Event_Await_Args* args) {
  FakeEvent* event = fake(args->event);
  if (event == nullptr) return real->PJRT_Event_Await(args);
  std::this_thread::sleep_for(std::chrono::milliseconds(slow_ms.load()));
  PJRT_Event_Await_Args inner = *args;
  inner.event = event->inner;
  if (PJRT_Error* error = real->PJRT_Event_Await(&inner)) return error;
  return failed(*event);
}

PJRT_Error* event_is_ready(PJRT_Event_IsReady_Args* args) {
  FakeEvent* event = fake(args->event);
  if (event == nullptr) return real->PJRT_Event_IsReady(args);
  args->is_ready = slow_ms == 0;
  return nullptr;
}

PJRT_Error* event_error(PJRT_Event_Error_Args* args) {
  FakeEvent* event = fake(args->event);
  return event == nullptr ? real->PJRT_Event_Error(args) : failed(*event);
}

PJRT_Error* event_on_ready(PJRT_Event_OnReady_Args* args) {
  FakeEvent* event = fake(args->event);
  if (event == nullptr) return real->PJRT_Event_OnReady(args);
  args->callback(failed(*event), args->user_arg);
  return nullptr;
}

// ---- the calls that count and fail

std::set<const void*> broken;  // buffers whose events fail

PJRT_Error* platform_name(PJRT_Client_PlatformName_Args* args) {
  static const std::string& name = *new std::string(text_of("FAKE_PLATFORM"));
  if (name.empty()) return real->PJRT_Client_PlatformName(args);
  args->platform_name = name.data();
  args->platform_name_size = name.size();
  return nullptr;
}

bool has_sort_function(std::string_view text) {
  for (size_t at = text.find("\"stablehlo.sort\""); at != std::string_view::npos;
       at = text.find("\"stablehlo.sort\"", at + 1)) {
    std::string_view body = text.substr(at, text.find("\"stablehlo.return\"", at) - at);
    const size_t operation = body.find(" = \"stablehlo.");
    if (operation == std::string_view::npos || body.find(" = \"stablehlo.", operation + 1) != std::string_view::npos)
      return true;
    if (body.find("comparison_direction LT") == std::string_view::npos &&
        body.find("comparison_direction GT") == std::string_view::npos)
      return true;
  }
  return false;
}

// Among a program's arguments or results of operations: attributes may hold 64-bit integers on any chip.
bool has_int64(std::string_view text) {
  std::istringstream lines{std::string(text)};
  for (std::string line; std::getline(lines, line);) {
    const size_t types = line.find("func.func") != std::string::npos ? 0 : line.rfind(") -> (");
    if (types != std::string::npos && line.find("i64>", types) != std::string::npos) return true;
  }
  return false;
}

bool holds(std::string_view text, const std::string& word) {
  if (word == "sort_functions") return has_sort_function(text);
  if (word == "int64") return has_int64(text);
  return text.find(word) != std::string_view::npos;
}

PJRT_Error* compile(PJRT_Client_Compile_Args* args) {
  compiles += 1;
  if (PJRT_Error* error = planned("compile")) return error;
  const std::string_view text(args->program->code, args->program->code_size);
  for (const std::string& word : list_of("FAKE_REFUSES"))
    if (holds(text, word)) return make_error(PJRT_Error_Code_UNIMPLEMENTED, "the fake chip has no " + word);
  return real->PJRT_Client_Compile(args);
}

size_t outputs_of(PJRT_LoadedExecutable* loaded) {
  PJRT_LoadedExecutable_GetExecutable_Args get{};
  get.struct_size = PJRT_LoadedExecutable_GetExecutable_Args_STRUCT_SIZE;
  get.loaded_executable = loaded;
  real->PJRT_LoadedExecutable_GetExecutable(&get);
  PJRT_Executable_NumOutputs_Args outputs{};
  outputs.struct_size = PJRT_Executable_NumOutputs_Args_STRUCT_SIZE;
  outputs.executable = get.executable;
  real->PJRT_Executable_NumOutputs(&outputs);
  PJRT_Executable_Destroy_Args destroy{};
  destroy.struct_size = PJRT_Executable_Destroy_Args_STRUCT_SIZE;
  destroy.executable = get.executable;
  real->PJRT_Executable_Destroy(&destroy);
  return outputs.num_outputs;
}

PJRT_Error* execute(PJRT_LoadedExecutable_Execute_Args* args) {
  executions += 1;
  if (PJRT_Error* error = planned("execute")) return error;
  PJRT_Error* late = planned("event");
  if (PJRT_Error* error = real->PJRT_LoadedExecutable_Execute(args)) return error;
  const size_t n = outputs_of(args->executable);
  buffers += static_cast<long>(n * args->num_devices);
  if (late == nullptr) return nullptr;
  PJRT_Error_Destroy_Args destroy{};
  destroy.struct_size = PJRT_Error_Destroy_Args_STRUCT_SIZE;
  destroy.error = late;
  error_destroy(&destroy);
  const std::lock_guard lock(mutex);
  for (size_t d = 0; d < args->num_devices; ++d)
    for (size_t i = 0; i < n; ++i) broken.insert(args->output_lists[d][i]);
  return nullptr;
}

PJRT_Error* from_host(PJRT_Client_BufferFromHostBuffer_Args* args) {
  transfers += 1;
  if (PJRT_Error* error = planned("transfer")) return error;
  PJRT_Error* error = real->PJRT_Client_BufferFromHostBuffer(args);
  if (error == nullptr) buffers += 1;
  return error;
}

PJRT_Error* to_host(PJRT_Buffer_ToHostBuffer_Args* args) {
  transfers += 1;
  if (PJRT_Error* error = planned("transfer")) return error;
  PJRT_Error* error = real->PJRT_Buffer_ToHostBuffer(args);
  if (error == nullptr && args->dst != nullptr) args->event = wrap_event(args->event, is_ours(broken, args->src));
  return error;
}

PJRT_Error* ready_event(PJRT_Buffer_ReadyEvent_Args* args) {
  PJRT_Error* error = real->PJRT_Buffer_ReadyEvent(args);
  if (error == nullptr) args->event = wrap_event(args->event, is_ours(broken, args->buffer));
  return error;
}

PJRT_Error* buffer_destroy(PJRT_Buffer_Destroy_Args* args) {
  {
    const std::lock_guard lock(mutex);
    broken.erase(args->buffer);
  }
  buffers -= 1;
  return real->PJRT_Buffer_Destroy(args);
}

template <typename Fn, typename Args>
void counted(Fn* PJRT_Api::* slot, PJRT_Api& api) {
  if (real->*slot == nullptr) return;
  static Fn* inner = real->*slot;
  api.*slot = [](Args* args) -> PJRT_Error* {
    PJRT_Error* error = inner(args);
    if (error == nullptr) buffers += 1;
    return error;
  };
}

PJRT_Api make_api() {
  void* library = dlopen(text_of("FAKE_REAL").c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return {};
  real = reinterpret_cast<const PJRT_Api* (*)()>(dlsym(library, "GetPjrtApi"))();
  PJRT_Api api{};
  std::memcpy(&api, real, std::min(sizeof(api), real->struct_size));
  api.PJRT_Error_Destroy = error_destroy;
  api.PJRT_Error_Message = error_message;
  api.PJRT_Error_GetCode = error_code;
  api.PJRT_Event_Destroy = event_destroy;
  api.PJRT_Event_IsReady = event_is_ready;
  api.PJRT_Event_Error = event_error;
  api.PJRT_Event_Await = event_await;
  api.PJRT_Event_OnReady = event_on_ready;
  api.PJRT_Client_PlatformName = platform_name;
  api.PJRT_Client_Compile = compile;
  api.PJRT_Client_BufferFromHostBuffer = from_host;
  api.PJRT_LoadedExecutable_Execute = execute;
  api.PJRT_Buffer_ToHostBuffer = to_host;
  api.PJRT_Buffer_ReadyEvent = ready_event;
  api.PJRT_Buffer_Destroy = buffer_destroy;
  counted<PJRT_Client_CreateUninitializedBuffer, PJRT_Client_CreateUninitializedBuffer_Args>(
      &PJRT_Api::PJRT_Client_CreateUninitializedBuffer, api);
  counted<PJRT_Buffer_CopyToDevice, PJRT_Buffer_CopyToDevice_Args>(&PJRT_Api::PJRT_Buffer_CopyToDevice, api);
#define WITHOUT(name) \
  if (missing == #name) api.name = nullptr;
  for (const std::string& missing : list_of("FAKE_WITHOUT")) {
    WITHOUT(PJRT_Buffer_CopyToDevice)
    WITHOUT(PJRT_Buffer_UnsafePointer)
    WITHOUT(PJRT_Client_CreateUninitializedBuffer)
    WITHOUT(PJRT_Device_MemoryStats)
    WITHOUT(PJRT_Executable_DeserializeAndLoad)
    WITHOUT(PJRT_Executable_Fingerprint)
    WITHOUT(PJRT_Executable_GetCompiledMemoryStats)
    WITHOUT(PJRT_Executable_GetCostAnalysis)
    WITHOUT(PJRT_Executable_Serialize)
    if (missing == "extensions") api.extension_start = nullptr;
  }
#undef WITHOUT
  return api;
}

}  // namespace

EXPORT const PJRT_Api* GetPjrtApi() {
  static const PJRT_Api api = make_api();
  return real != nullptr ? &api : nullptr;
}

// kind: "compile", "execute", "event" (the execution's results fail) or "transfer". After `calls` that succeed one
// fails with this code of PJRT_Error_Code.
EXPORT void fake_plan(const char* kind, int calls, int code) {
  const std::lock_guard lock(mutex);
  plans[kind] = {calls, static_cast<PJRT_Error_Code>(code)};
}

EXPORT void fake_lose_device(int is_lost) { lost = is_lost != 0; }
EXPORT void fake_slow_events(int milliseconds) { slow_ms = milliseconds; }

// "buffers" (alive), "executions", "compiles", "transfers"
EXPORT long fake_count(const char* what) {
  const std::string name = what;
  return name == "buffers" ? buffers : name == "executions" ? executions : name == "compiles" ? compiles : transfers;
}
