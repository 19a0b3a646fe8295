#include "pjrt/plugin.h"

#include <dlfcn.h>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <mutex>

namespace tpj::pjrt {
namespace {

// Functions that every call path relies on without asking: a table without one of them is refused as a whole.
// clang-format off
#define TPJ_REQUIRED_FUNCTIONS(X) \
  X(PJRT_Error_Destroy) \
  X(PJRT_Error_Message) \
  X(PJRT_Error_GetCode) \
  X(PJRT_Event_Destroy) \
  X(PJRT_Event_IsReady) \
  X(PJRT_Event_Await) \
  X(PJRT_Client_Create) \
  X(PJRT_Client_Destroy) \
  X(PJRT_Client_AddressableDevices) \
  X(PJRT_Client_Compile) \
  X(PJRT_Client_BufferFromHostBuffer) \
  X(PJRT_LoadedExecutable_Execute) \
  X(PJRT_LoadedExecutable_Destroy) \
  X(PJRT_Buffer_Destroy) \
  X(PJRT_Buffer_ToHostBuffer)
// clang-format on

std::string display_name(const std::filesystem::path& path) {
  std::string name = path.stem().string();
  if (name.starts_with("lib")) name.erase(0, 3);
  return name;
}

void check_version(const std::string& path, const PJRT_Api* api) {
  const PJRT_Api_Version& v = api->pjrt_api_version;
  TPJ_CHECK(v.major_version == PJRT_API_MAJOR, "[Plugin::load] ", path, " has PJRT API ", v.major_version, ".",
            v.minor_version, ": only major version ", PJRT_API_MAJOR, " is understood");
  TPJ_CHECK(v.minor_version >= kOldestApiMinor, "[Plugin::load] ", path, " has PJRT API 0.", v.minor_version,
            ", too old: 0.", kOldestApiMinor, " or newer is needed. Install a newer version of the plugin.");
#define X(function)                                                               \
  TPJ_CHECK(has_slot(api, offsetof(PJRT_Api, function)), "[Plugin::load] ", path, \
            " lacks the function " #function ", without which nothing can run");
  TPJ_REQUIRED_FUNCTIONS(X)
#undef X
}

// A library whose file ends early (an interrupted download) kills the process inside dlopen, when a page that is not in
// the file is touched. So: do all segments lie within the file? Files of another format are left to the loader.
void check_whole(const std::string& path) {
  // Offsets and sizes of the 64-bit little-endian ELF header and its program headers.
  constexpr size_t kHeaderSize = 64, kTableOffset = 32, kEntrySize = 54, kEntryCount = 56;
  constexpr size_t kSegmentSize = 56, kSegmentOffset = 8, kSegmentFileSize = 32;
  std::ifstream in(path, std::ios::binary);
  char header[kHeaderSize] = {};
  in.read(header, sizeof header);
  if (!in || std::memcmp(header,
                         "\x7f"
                         "ELF\x02\x01",
                         6) != 0)
    return;
  uint64_t table = 0;
  uint16_t entry_size = 0, count = 0;
  std::memcpy(&table, header + kTableOffset, sizeof table);
  std::memcpy(&entry_size, header + kEntrySize, sizeof entry_size);
  std::memcpy(&count, header + kEntryCount, sizeof count);
  const uint64_t size = std::filesystem::file_size(path);
  for (uint16_t i = 0; i < count; ++i) {
    char segment[kSegmentSize] = {};
    in.seekg(static_cast<std::streamoff>(table + uint64_t{i} * entry_size));
    in.read(segment, sizeof segment);
    uint64_t offset = 0, bytes = 0;
    std::memcpy(&offset, segment + kSegmentOffset, sizeof offset);
    std::memcpy(&bytes, segment + kSegmentFileSize, sizeof bytes);
    TPJ_CHECK(in && offset <= size && bytes <= size - offset, "[Plugin::load] ", path,
              " cannot be loaded as a shared library: the file is truncated (", size, " bytes)");
  }
}

const PJRT_Api* open_library(const std::string& path) {
  check_whole(path);
  void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* reason = dlerror();
    fail(ErrorKind::kRuntime, "[Plugin::load] ", path,
         " cannot be loaded as a shared library: ", reason != nullptr ? reason : "no reason given");
  }
  using GetApi = const PJRT_Api* (*)();
  const auto get_api = reinterpret_cast<GetApi>(dlsym(handle, "GetPjrtApi"));
  TPJ_CHECK(get_api != nullptr, "[Plugin::load] ", path, " is not a PJRT plugin: it has no symbol GetPjrtApi");
  const PJRT_Api* api = get_api();
  TPJ_CHECK(api != nullptr, "[Plugin::load] GetPjrtApi of ", path, " returned null");
  return api;
}

}  // namespace

Plugin::Plugin(std::string real_path) : path_(std::move(real_path)) {
  api_.plugin = display_name(path_);
  api_.c = open_library(path_);
  check_version(path_, api_.c);

  TPJ_PJRT_ARGS(PJRT_Plugin_Initialize, init);
  if (TPJ_PJRT_HAS(api_, PJRT_Plugin_Initialize)) TPJ_PJRT_CALL(api_, PJRT_Plugin_Initialize, init);

  TPJ_PJRT_ARGS(PJRT_Plugin_Attributes, attributes);
  if (TPJ_PJRT_HAS(api_, PJRT_Plugin_Attributes)) {
    TPJ_PJRT_CALL(api_, PJRT_Plugin_Attributes, attributes);
    attributes_ = from_named_values(attributes.attributes, attributes.num_attributes);
  }
  for (const auto* e = api_.c->extension_start; e != nullptr; e = e->next) extensions_.push_back(e->type);
}

Plugin& Plugin::load(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code error;
  const fs::path real = fs::canonical(path, error);
  TPJ_CHECK(!error, "[Plugin::load] no such file: '", path, "' (", error.message(), ")");
  TPJ_CHECK(fs::is_regular_file(real, error), "[Plugin::load] not a file: '", path, "'");

  // Never destroyed: buffers in static objects may need a plugin until the very end.
  static auto& mutex = *new std::mutex;
  static auto& plugins = *new std::map<std::string, std::unique_ptr<Plugin>>;
  const std::lock_guard lock(mutex);
  auto& slot = plugins[real.string()];
  if (slot == nullptr) slot.reset(new Plugin(real.string()));
  return *slot;
}

const PJRT_Extension_Base* Plugin::find_extension(PJRT_Extension_Type type) const {
  for (const auto* e = api_.c->extension_start; e != nullptr; e = e->next)
    if (e->type == type) return e;
  return nullptr;
}

}  // namespace tpj::pjrt
