#include "pjrt/client.h"

#include <algorithm>

#include "pjrt/describe.h"
#include "pjrt/program_check.h"

namespace tpj::pjrt {
namespace {

PJRT_DeviceDescription* describe(const Api& api, PJRT_Device* device) {
  TPJ_PJRT_ARGS(PJRT_Device_GetDescription, args);
  args.device = device;
  TPJ_PJRT_CALL(api, PJRT_Device_GetDescription, args);
  return args.device_description;
}

}  // namespace

Client::Client(Plugin& plugin) : plugin_(plugin) {
  state_.api = &plugin.api();
  state_.c = state_.api->c;
}

std::shared_ptr<Client> Client::create(Plugin& plugin, const Options& options, const CapOverrides& overrides) {
  std::shared_ptr<Client> client(new Client(plugin));
  ClientState& state = client->state_;
  const Api& api = *state.api;
  state.caps = detect_caps(plugin, overrides);

  const std::vector<PJRT_NamedValue> values = to_named_values(options);
  TPJ_PJRT_ARGS(PJRT_Client_Create, args);
  args.create_options = values.data();
  args.num_options = values.size();
  TPJ_PJRT_CALL(api, PJRT_Client_Create, args);
  state.client = args.client;

  TPJ_PJRT_ARGS(PJRT_Client_AddressableDevices, local);
  local.client = state.client;
  TPJ_PJRT_CALL(api, PJRT_Client_AddressableDevices, local);
  TPJ_CHECK(local.num_addressable_devices > 0, "[Client::create] plugin ", api.plugin,
            " has no device for this process");
  state.devices.assign(local.addressable_devices, local.addressable_devices + local.num_addressable_devices);
  for (PJRT_Device* device : state.devices) state.device_ids.push_back(id_of(api, describe(api, device)));

  TPJ_PJRT_ARGS(PJRT_Client_Devices, all);
  all.client = state.client;
  TPJ_PJRT_CALL(api, PJRT_Client_Devices, all);
  for (size_t i = 0; i < all.num_devices; ++i)
    client->global_device_ids_.push_back(id_of(api, describe(api, all.devices[i])));
  return client;
}

Client::~Client() { TPJ_PJRT_DESTROY(*state_.api, PJRT_Client_Destroy, client, state_.client); }

std::string Client::platform_name() const {
  TPJ_PJRT_ARGS(PJRT_Client_PlatformName, args);
  args.client = state_.client;
  TPJ_PJRT_CALL(*state_.api, PJRT_Client_PlatformName, args);
  return std::string(args.platform_name, args.platform_name_size);
}

std::string Client::platform_version() const {
  TPJ_PJRT_ARGS(PJRT_Client_PlatformVersion, args);
  args.client = state_.client;
  TPJ_PJRT_CALL(*state_.api, PJRT_Client_PlatformVersion, args);
  return std::string(args.platform_version, args.platform_version_size);
}

int Client::process_index() const {
  TPJ_PJRT_ARGS(PJRT_Client_ProcessIndex, args);
  args.client = state_.client;
  TPJ_PJRT_CALL(*state_.api, PJRT_Client_ProcessIndex, args);
  return args.process_index;
}

int Client::global_device_count() const { return static_cast<int>(global_device_ids_.size()); }

int Client::device_id(int device) const {
  state_.device("Client::device_id", device);
  return state_.device_ids[static_cast<size_t>(device)];
}

std::string Client::device_kind(int device) const {
  return kind_of(*state_.api, describe(*state_.api, state_.device("Client::device_kind", device)));
}

Attributes Client::device_attributes(int device) const {
  return attributes_of(*state_.api, describe(*state_.api, state_.device("Client::device_attributes", device)));
}

std::optional<MemoryStats> Client::memory_stats(int device) const {
  PJRT_Device* target = state_.device("Client::memory_stats", device);
  if (!state_.caps.memory_stats) return std::nullopt;
  TPJ_PJRT_ARGS(PJRT_Device_MemoryStats, args);
  args.device = target;
  try {
    TPJ_PJRT_CALL(*state_.api, PJRT_Device_MemoryStats, args);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kNotImplemented) throw;
    return std::nullopt;
  }
  const auto known = [](bool is_set, int64_t value) { return is_set ? std::optional(value) : std::nullopt; };
  return MemoryStats{
      .bytes_in_use = args.bytes_in_use,
      .peak_bytes_in_use = known(args.peak_bytes_in_use_is_set, args.peak_bytes_in_use),
      .bytes_limit = known(args.bytes_limit_is_set, args.bytes_limit),
      .bytes_reserved = known(args.bytes_reserved_is_set, args.bytes_reserved),
      .largest_free_block = known(args.largest_free_block_bytes_is_set, args.largest_free_block_bytes),
      .largest_allocation = known(args.largest_alloc_size_is_set, args.largest_alloc_size),
      .num_allocations = known(args.num_allocs_is_set, args.num_allocs),
  };
}

CompileOptions Client::supported(const CompileOptions& options) const {
  CompileOptions out = options;
  out.portable = options.portable && state_.caps.portable_executables;
  return out;
}

void Client::check_devices(const CompileOptions& options) const {
  if (options.num_devices() > global_device_count())
    fail(ErrorKind::kValue, "[Client::compile] ", options.num_replicas, " replicas x ", options.num_partitions,
         " partitions need more than the ", global_device_count(), " device(s) of plugin ", state_.api->plugin);
  for (const int64_t id : options.device_assignment)
    if (std::find(global_device_ids_.begin(), global_device_ids_.end(), id) == global_device_ids_.end())
      fail(ErrorKind::kValue, "[Client::compile] no device of plugin ", state_.api->plugin, " has the id ", id);
}

std::unique_ptr<Executable> Client::compile(std::string_view stablehlo_text, const CompileOptions& requested,
                                            std::optional<std::vector<TensorType>> parameter_types) const {
  const CompileOptions options = supported(requested);
  const std::string encoded = options.serialize();
  check_devices(options);
  validate_program(stablehlo_text, options);

  const PJRT_Program program = to_program(stablehlo_text);
  TPJ_PJRT_ARGS(PJRT_Client_Compile, args);
  args.client = state_.client;
  args.program = &program;
  args.compile_options = encoded.data();
  args.compile_options_size = encoded.size();
  TPJ_PJRT_CALL(*state_.api, PJRT_Client_Compile, args);
  return std::unique_ptr<Executable>(
      new Executable(shared_from_this(), state_, args.executable, options.is_portable(), std::move(parameter_types)));
}

std::unique_ptr<Executable> Client::deserialize(std::string_view bytes, const CompileOptions& requested,
                                                std::optional<std::vector<TensorType>> parameter_types) const {
  const CompileOptions options = supported(requested);
  options.validate();
  check_devices(options);
  if (!state_.caps.deserialize)
    fail(ErrorKind::kNotImplemented, "[Client::deserialize] plugin ", state_.api->plugin,
         " cannot load compiled programs");
  TPJ_CHECK(!bytes.empty(), "[Client::deserialize] no bytes given");
  TPJ_PJRT_ARGS(PJRT_Executable_DeserializeAndLoad, args);
  args.client = state_.client;
  args.serialized_executable = bytes.data();
  args.serialized_executable_size = bytes.size();
  TPJ_PJRT_CALL(*state_.api, PJRT_Executable_DeserializeAndLoad, args);
  return std::unique_ptr<Executable>(new Executable(shared_from_this(), state_, args.loaded_executable,
                                                    options.is_portable(), std::move(parameter_types)));
}

Buffer Client::from_host(const void* data, DType dtype, std::span<const int64_t> dims, int device) const {
  return pjrt::from_host(state_, data, dtype, dims, device);
}

Buffer Client::from_host_zero_copy(const void* data, DType dtype, std::span<const int64_t> dims, int device,
                                   std::function<void()> on_done) const {
  return pjrt::from_host_zero_copy(state_, data, dtype, dims, device, std::move(on_done));
}

Buffer Client::uninitialized(DType dtype, std::span<const int64_t> dims, int device) const {
  return pjrt::uninitialized(state_, dtype, dims, device);
}

}  // namespace tpj::pjrt
