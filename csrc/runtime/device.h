// The one PJRT client behind our device type, made at first use, and the current device of each thread.
//
// Python's registration describes the plugin (configure); nothing is loaded before the device is used. The client lives
// until the process ends: its destruction would race with the threads of the plugin.
#pragma once

#include <c10/core/Device.h>

#include <string>

#include "pjrt/client.h"

namespace tpj::runtime {

// What a PluginSpec says, with everything decided.
struct PluginConfig {
  std::string device_name;  // "pjrt"
  std::string spec_name;    // which spec: "cpu"
  std::string path;         // of the shared library
  pjrt::Options create_options;
  pjrt::Options compile_overrides;               // CompileOptions::env_overrides of the programs that use one of
  std::vector<std::string> override_operations;  // these StableHLO operations; empty: of all programs
  pjrt::CapOverrides caps;
  std::string missing;  // why there is no usable plugin; empty when there is one
};

void configure(PluginConfig config);
const PluginConfig& config();

// Makes the client when there is none yet. Throws RuntimeError: no plugin, its own error, or a forked child.
const pjrt::Client& client();
// True once client() has succeeded in this process.
bool is_initialized();
// True in a child that was forked after the client was made.
bool in_bad_fork();
// 0 when there is no usable plugin; never throws.
int device_count() noexcept;
// True if the plugin's library is there; makes nothing.
bool is_available() noexcept;

int current_device();
// Throws RuntimeError for an index that does not exist.
void set_current_device(int index);
// For guards: no check, no client.
void unchecked_set_current_device(int index) noexcept;

}  // namespace tpj::runtime
