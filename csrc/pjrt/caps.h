// What a client can do. The rest of the code asks these and never a vendor's name.
//
// Most are read from the plugin (is the function there, is the extension there); the others are facts that no API
// tells, with a cautious default that a plugin's spec overrides by name when the client is made.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/limits.h"
#include "pjrt/plugin.h"

namespace tpj::pjrt {

// SLOT(name, C function, help): bool, true when the function exists. May be overridden to false only.
// EXTENSION(name, PJRT_Extension_Type suffix, help): bool, true when the extension exists. May be overridden to false
// only. VALUE(name, type, default, help): may be overridden freely.
#define TPJ_CAPS(SLOT, EXTENSION, VALUE)                                                                           \
  SLOT(bitcast, PJRT_Buffer_Bitcast, "a buffer can be seen with another type and shape without a copy")            \
  SLOT(copy_raw_to_host, PJRT_Buffer_CopyRawToHost, "a range of a buffer's bytes can be read")                     \
  SLOT(copy_to_device, PJRT_Buffer_CopyToDevice, "device to device copies that do not pass through us")            \
  SLOT(cost_analysis, PJRT_Executable_GetCostAnalysis, "estimates of flops and bytes of a program")                \
  SLOT(compiled_memory, PJRT_Executable_GetCompiledMemoryStats, "sizes of a program's temporaries and arguments")  \
  SLOT(deserialize, PJRT_Executable_DeserializeAndLoad, "compiled programs can be loaded from bytes")              \
  SLOT(device_view, PJRT_Client_CreateViewOfDeviceBuffer, "foreign device memory can be wrapped without a copy")   \
  SLOT(dma_map, PJRT_Client_DmaMap, "host memory can be pinned for transfers")                                     \
  SLOT(error_buffers, PJRT_Client_CreateErrorBuffer, "a buffer can carry an error instead of data")                \
  SLOT(events, PJRT_Event_Create, "events that we set ourselves")                                                  \
  SLOT(execute_context, PJRT_ExecuteContext_Create, "user data for FFI handlers per execution")                    \
  SLOT(external_references, PJRT_Buffer_IncreaseExternalReferenceCount, "a buffer's memory can be held by others") \
  SLOT(fingerprint, PJRT_Executable_Fingerprint, "compiled programs have a fingerprint")                           \
  SLOT(memory_stats, PJRT_Device_MemoryStats, "bytes in use per device (some plugins have it and refuse)")         \
  SLOT(opaque_pointer, PJRT_Buffer_OpaqueDeviceMemoryDataPointer, "address of a buffer's device memory")           \
  SLOT(optimized_program, PJRT_Executable_OptimizedProgram, "the program after optimisation can be read")          \
  SLOT(serialize, PJRT_Executable_Serialize, "compiled programs can be turned into bytes")                         \
  SLOT(uninitialized_buffers, PJRT_Client_CreateUninitializedBuffer, "memory without contents can be had")         \
  SLOT(unsafe_pointer, PJRT_Buffer_UnsafePointer, "address of a buffer, as the platform sees it")                  \
  EXTENSION(collectives_extension, Collectives, "collectives outside programs")                                    \
  EXTENSION(ffi_extension, FFI, "typed custom-call handlers can be registered")                                    \
  EXTENSION(gpu_custom_call_extension, Gpu_Custom_Call, "untyped custom-call handlers can be registered")          \
  EXTENSION(layouts_extension, Layouts, "device layouts can be read")                                              \
  EXTENSION(profiler_extension, Profiler, "device traces")                                                         \
  EXTENSION(stream_extension, Stream, "native streams")                                                            \
  VALUE(api_minor, int64_t, 0, "minor version of the plugin's PJRT API")                                           \
  VALUE(bounded_inputs, bool, false, "a program's parameter may have a bounded dynamic dimension")                 \
  VALUE(completion_events, bool, false, "execution must be given a completion event, though nobody waits for it")  \
  VALUE(host_visible_buffers, bool, false,                                                                         \
        "a buffer is dense row-major host memory: it may be read through its address")                             \
  VALUE(portable_executables, bool, true, "a program compiled once runs on any device of the client")              \
  VALUE(stablehlo_minimum, std::string, "", "oldest StableHLO version it accepts")                                 \
  VALUE(stablehlo_version, std::string, "", "StableHLO version it was built with, such as 1.20.0")                 \
  VALUE(zero_copy, bool, true, "a host pointer may become a buffer without a copy (it falls back to a copy)")      \
  TPJ_LIMITS(VALUE)

struct Caps {
#define TPJ_CAP_BOOL(name, ...) bool name = false;
#define TPJ_CAP_VALUE(name, type, def, help) type name = def;
  TPJ_CAPS(TPJ_CAP_BOOL, TPJ_CAP_BOOL, TPJ_CAP_VALUE)
#undef TPJ_CAP_BOOL
#undef TPJ_CAP_VALUE

  // Those that lowerings ask for.
  Limits limits() const;
};

// Capability name -> value as text: "true", "false", an integer, or the string itself.
using CapOverrides = std::map<std::string, std::string>;

// Throws Error(kValue) for an unknown name, a value that does not parse, or an attempt to switch on what the plugin
// lacks.
Caps detect_caps(const Plugin& plugin, const CapOverrides& overrides);

struct CapInfo {
  std::string name;
  std::string value;
  std::string help;
};
// In alphabetical order within functions, extensions, values and limits.
std::vector<CapInfo> list(const Caps& caps);

}  // namespace tpj::pjrt
