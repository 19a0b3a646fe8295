#include "pjrt/executable.h"

#include <algorithm>

#include "pjrt/client.h"

namespace tpj::pjrt {
namespace {

[[noreturn]] void refuse(const std::string& what) { fail(ErrorKind::kValue, "[Executable::run] ", what); }

}  // namespace

Executable::Executable(std::shared_ptr<const Client> client, const ClientState& state, PJRT_LoadedExecutable* loaded,
                       bool portable, std::optional<std::vector<TensorType>> parameter_types)
    : state_(&state),
      portable_(portable),
      loaded_(loaded),
      parameter_types_(std::move(parameter_types)),
      client_(std::move(client)) {
  execute_options_.struct_size = PJRT_ExecuteOptions_STRUCT_SIZE;
  execute_args_.struct_size = PJRT_LoadedExecutable_Execute_Args_STRUCT_SIZE;
  execute_args_.executable = loaded_;
  execute_args_.options = &execute_options_;
  execute_args_.num_devices = 1;
  try {
    TPJ_PJRT_ARGS(PJRT_LoadedExecutable_GetExecutable, get);
    get.loaded_executable = loaded_;
    TPJ_PJRT_CALL(*state_->api, PJRT_LoadedExecutable_GetExecutable, get);
    executable_ = get.executable;

    TPJ_PJRT_ARGS(PJRT_Executable_NumOutputs, outputs);
    outputs.executable = executable_;
    TPJ_PJRT_CALL(*state_->api, PJRT_Executable_NumOutputs, outputs);
    num_outputs_ = outputs.num_outputs;

    if (portable_) return;
    TPJ_PJRT_ARGS(PJRT_LoadedExecutable_AddressableDevices, bound);
    bound.executable = loaded_;
    TPJ_PJRT_CALL(*state_->api, PJRT_LoadedExecutable_AddressableDevices, bound);
    for (size_t i = 0; i < bound.num_addressable_devices; ++i) {
      const auto it = std::find(state_->devices.begin(), state_->devices.end(), bound.addressable_devices[i]);
      TPJ_CHECK(it != state_->devices.end(), "[Executable] bound to a device that the client does not list");
      devices_.push_back(static_cast<int>(it - state_->devices.begin()));
    }
  } catch (...) {
    TPJ_PJRT_DESTROY(*state_->api, PJRT_Executable_Destroy, executable, executable_);
    TPJ_PJRT_DESTROY(*state_->api, PJRT_LoadedExecutable_Destroy, executable, loaded_);
    throw;
  }
}

Executable::~Executable() {
  TPJ_PJRT_DESTROY(*state_->api, PJRT_Executable_Destroy, executable, executable_);
  TPJ_PJRT_DESTROY(*state_->api, PJRT_LoadedExecutable_Destroy, executable, loaded_);
}

void Executable::execute_with_events(PJRT_LoadedExecutable_Execute_Args& call) const {
  std::vector<PJRT_Event*> events(call.num_devices, nullptr);
  call.device_complete_events = events.data();
  if (PJRT_Error* error = state_->c->PJRT_LoadedExecutable_Execute(&call))
    throw_error(*state_->api, "PJRT_LoadedExecutable_Execute", error);
  for (PJRT_Event* event : events) Event(*state_, event);  // failures are in the outputs too
}

std::vector<Buffer> Executable::run(std::span<const Buffer* const> args, int device,
                                    std::span<const int64_t> non_donatable) const {
  state_->device("Executable::run", device);
  if (!portable_) {
    if (devices_.size() != 1) refuse(str("the program runs on ", devices_.size(), " devices at once: use enqueue_all"));
    if (devices_[0] != device) refuse(str("the program is bound to device ", devices_[0], ", not ", device));
  }
  if (parameter_types_ && parameter_types_->size() != args.size())
    refuse(str("the program takes ", parameter_types_->size(), " arguments, got ", args.size()));
  std::vector<PJRT_Buffer*> raw;
  raw.reserve(args.size());
  for (size_t i = 0; i < args.size(); ++i) {
    const Buffer* arg = args[i];
    if (arg == nullptr || !*arg) refuse(str("argument ", i, " is an empty buffer"));
    if (arg->is_deleted()) refuse(str("argument ", i, " was deleted, or donated to a program"));
    if (const int on = arg->device(); on != device)
      refuse(str("argument ", i, " is on device ", on, ", the program runs on device ", device));
    if (parameter_types_)
      if (const TensorType have = arg->type(); have != (*parameter_types_)[i])
        refuse(str("argument ", i, " is ", show(have), ", the program takes ", show((*parameter_types_)[i])));
    raw.push_back(arg->raw());
  }
  for (const int64_t i : non_donatable)
    if (i < 0 || static_cast<size_t>(i) >= args.size())
      refuse(str("non-donatable index ", i, " of ", args.size(), " arguments"));

  std::vector<PJRT_Buffer*> outs(num_outputs_, nullptr);
  enqueue(raw.data(), raw.size(), outs.data(), device, non_donatable.data(), non_donatable.size());
  std::vector<Buffer> result;
  result.reserve(outs.size());
  for (PJRT_Buffer* out : outs) result.emplace_back(*state_, out);
  return result;
}

std::vector<TensorType> Executable::output_types() const {
  TPJ_PJRT_ARGS(PJRT_Executable_OutputElementTypes, types);
  types.executable = executable_;
  TPJ_PJRT_CALL(*state_->api, PJRT_Executable_OutputElementTypes, types);
  TPJ_PJRT_ARGS(PJRT_Executable_OutputDimensions, shapes);
  shapes.executable = executable_;
  TPJ_PJRT_CALL(*state_->api, PJRT_Executable_OutputDimensions, shapes);
  TPJ_CHECK(types.num_output_types == num_outputs_ && shapes.num_outputs == num_outputs_,
            "[Executable::output_types] plugin ", state_->api->plugin, " gives ", types.num_output_types, " types and ",
            shapes.num_outputs, " shapes for ", num_outputs_, " outputs");
  std::vector<TensorType> result;
  const int64_t* dim = shapes.dims;
  for (size_t i = 0; i < num_outputs_; ++i) {
    result.push_back({from_pjrt(types.output_types[i]), {dim, dim + shapes.dim_sizes[i]}});
    dim += shapes.dim_sizes[i];
  }
  return result;
}

std::string Executable::serialize() const {
  if (!state_->caps.serialize)
    fail(ErrorKind::kNotImplemented, "[Executable::serialize] plugin ", state_->api->plugin,
         " cannot serialize programs");
  TPJ_PJRT_ARGS(PJRT_Executable_Serialize, args);
  args.executable = executable_;
  TPJ_PJRT_CALL(*state_->api, PJRT_Executable_Serialize, args);
  struct Backing {
    PJRT_Executable_Serialize_Args& args;
    ~Backing() {
      if (args.serialized_executable_deleter != nullptr) args.serialized_executable_deleter(args.serialized_executable);
    }
  } backing{args};
  return std::string(args.serialized_bytes, args.serialized_bytes_size);
}

std::string Executable::fingerprint() const {
  if (!state_->caps.fingerprint) return "";
  TPJ_PJRT_ARGS(PJRT_Executable_Fingerprint, args);
  args.executable = executable_;
  try {
    TPJ_PJRT_CALL(*state_->api, PJRT_Executable_Fingerprint, args);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kNotImplemented) throw;
    return "";
  }
  return std::string(args.executable_fingerprint, args.executable_fingerprint_size);
}

std::optional<CompiledMemory> Executable::compiled_memory() const {
  if (!state_->caps.compiled_memory) return std::nullopt;
  TPJ_PJRT_ARGS(PJRT_Executable_GetCompiledMemoryStats, args);
  args.executable = executable_;
  try {
    TPJ_PJRT_CALL(*state_->api, PJRT_Executable_GetCompiledMemoryStats, args);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kNotImplemented) throw;
    return std::nullopt;
  }
  return CompiledMemory{.generated_code = args.generated_code_size_in_bytes,
                        .argument = args.argument_size_in_bytes,
                        .output = args.output_size_in_bytes,
                        .alias = args.alias_size_in_bytes,
                        .temp = args.temp_size_in_bytes};
}

std::optional<std::map<std::string, double>> Executable::cost_analysis() const {
  if (!state_->caps.cost_analysis) return std::nullopt;
  TPJ_PJRT_ARGS(PJRT_Executable_GetCostAnalysis, args);
  args.executable = executable_;
  try {
    TPJ_PJRT_CALL(*state_->api, PJRT_Executable_GetCostAnalysis, args);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kNotImplemented) throw;
    return std::nullopt;
  }
  std::map<std::string, double> result;
  for (const auto& [name, value] : from_named_values(args.properties, args.num_properties)) {
    if (const auto* d = std::get_if<double>(&value)) result[name] = *d;
    if (const auto* i = std::get_if<int64_t>(&value)) result[name] = static_cast<double>(*i);
  }
  return result;
}

}  // namespace tpj::pjrt
