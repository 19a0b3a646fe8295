// Every switch of the project, in one table. Each is read once from the environment as TORCH_PJRT_<NAME>;
// those that Python may change later have a setter through set_flag().
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tpj {

// X(name, type, default, help)
#define TPJ_FLAGS(X)                                                                                               \
  X(CACHE, std::string, "off",                                                                                     \
    "compiled programs on disk, for all processes: off, on (the user's cache folder), or a folder")                \
  X(CACHE_BYTES, int64_t, int64_t{4} << 30, "size of that folder; the least recently used programs go first")      \
  X(CAPABILITIES, std::string, "", "name=value,...: capabilities instead of the plugin's, to try a chip's limits") \
  X(CPU_DEVICES, int64_t, 1, "number of devices the embedded CPU plugin makes (its option cpu_device_count)")      \
  X(DEVICE_NAME, std::string, "", "device name, instead of the one in the plugin's spec")                          \
  X(DUMP, std::string, "", "folder for the StableHLO text of every program that is compiled")                      \
  X(EAGER, std::string, "fused",                                                                                   \
    "fused: run many calls as one program; strict: each when it is made; debug: wait for each")                    \
  X(FALLBACK, std::string, "warn", "an operator without a program runs on the CPU: warn once, silent, or error")   \
  X(PLUGIN, std::string, "", "PJRT plugin: a path of a shared library, or a registered name")                      \
  X(SIZES, std::string, "bounded", "sizes that change in eager calls: bounded: a program for many; exact: one for each")

struct Flags {
#define X(name, type, def, help) type name = def;
  TPJ_FLAGS(X)
#undef X
};

// The values in force. Reading is free; changing is for set_flag() alone.
const Flags& flags();

// Throws Error(kValue) for a name that is not in the table or a value that does not parse.
void set_flag(const std::string& name, const std::string& value);

struct FlagInfo {
  const char* name;
  std::string value;
  const char* help;
};
std::vector<FlagInfo> list_flags();

}  // namespace tpj
