// A plugin at work: its devices, and the only way to make buffers and executables.
//
// Buffers and events must be gone before the client is; executables keep it alive. Any thread may call any method.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "pjrt/buffer.h"
#include "pjrt/caps.h"
#include "pjrt/client_state.h"
#include "pjrt/compile_options.h"
#include "pjrt/executable.h"
#include "pjrt/named_value.h"
#include "pjrt/plugin.h"
#include "pjrt/types.h"

namespace tpj::pjrt {

// Of one device, in bytes where not said otherwise. Plugins may know only some.
struct MemoryStats {
  int64_t bytes_in_use = 0;
  std::optional<int64_t> peak_bytes_in_use;
  std::optional<int64_t> bytes_limit;
  std::optional<int64_t> bytes_reserved;
  std::optional<int64_t> largest_free_block;
  std::optional<int64_t> largest_allocation;
  std::optional<int64_t> num_allocations;
};

class Client : public std::enable_shared_from_this<Client> {
 public:
  // `options` are the plugin's own. An unknown name is an error on some plugins and ignored by others; a value of the
  // wrong kind (a string for a number) is an error on some and aborts the process in others, and nothing here can tell:
  // whoever fills in options must know their kinds.
  static std::shared_ptr<Client> create(Plugin& plugin, const Options& options, const CapOverrides& overrides = {});
  ~Client();
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  std::string platform_name() const;
  std::string platform_version() const;
  int process_index() const;
  const Plugin& plugin() const { return plugin_; }
  const Caps& caps() const { return state_.caps; }
  const ClientState& state() const { return state_; }

  // Devices are addressed by their index in the list of those this process can use: 0 .. device_count()-1.
  int device_count() const { return static_cast<int>(state_.devices.size()); }
  // Including those of other processes.
  int global_device_count() const;
  // The plugin's own id, unique over all processes: what CompileOptions::device_assignment wants.
  int device_id(int device) const;
  std::string device_kind(int device) const;
  Attributes device_attributes(int device) const;
  // Empty where the plugin does not say.
  std::optional<MemoryStats> memory_stats(int device) const;

  // `parameter_types`, when given, are what Executable::run checks arguments against.
  // Error(kValue) for what validate_program and CompileOptions::validate refuse; kRuntime with the plugin's line and
  // column for text that does not parse.
  std::unique_ptr<Executable> compile(std::string_view stablehlo_text, const CompileOptions& options,
                                      std::optional<std::vector<TensorType>> parameter_types = std::nullopt) const;

  // `bytes` come from Executable::serialize, `options` are those it was compiled with (they say whether it is
  // portable). The plugin checks the bytes only roughly: the caller must know that they are whole and were made by the
  // same plugin library on the same kind of machine.
  std::unique_ptr<Executable> deserialize(std::string_view bytes, const CompileOptions& options,
                                          std::optional<std::vector<TensorType>> parameter_types = std::nullopt) const;

  // `data` is dense row-major. Copies during the call: `data` may change or go as soon as it returns. `data` may be
  // null only for zero bytes.
  Buffer from_host(const void* data, DType dtype, std::span<const int64_t> dims, int device) const;

  // Borrows `data`, which must stay as it is until `on_done` runs: once, on any thread, maybe before this returns (then
  // it was copied). `on_done` must be short and not call the plugin. If this throws, `on_done` never runs. CPU plugins
  // alias only memory that is aligned to 64 bytes.
  Buffer from_host_zero_copy(const void* data, DType dtype, std::span<const int64_t> dims, int device,
                             std::function<void()> on_done) const;

  // Contents are arbitrary; zeros where the plugin cannot do without (caps.uninitialized_buffers).
  Buffer uninitialized(DType dtype, std::span<const int64_t> dims, int device) const;

 private:
  explicit Client(Plugin& plugin);
  // Portable only where the client can: elsewhere the program is bound to the plugin's first device.
  CompileOptions supported(const CompileOptions& options) const;
  void check_devices(const CompileOptions& options) const;

  Plugin& plugin_;
  ClientState state_;
  std::vector<int> global_device_ids_;  // of all processes
};

}  // namespace tpj::pjrt
