#include "pjrt/executable.h"

#include <algorithm>

#include "pjrt/client.h"

namespace tpj::pjrt {
namespace {

[[noreturn]] void refuse(const std::string& what) { fail(ErrorKind::kValue, "[Executable::run] ", what); }

}  // namespace

Executable::Executable(std::shared_ptr<const Client> client, const ClientState& state, PJRT_LoadedExecutable* loaded,
                       bool portable, std::optional<std::vector<TensorType>> parameter_types)
    : Compiled(*state.api, state.caps),
      state_(&state),
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
    adopt(get.executable);

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
    TPJ_PJRT_DESTROY(*state_->api, PJRT_LoadedExecutable_Destroy, executable, loaded_);
    throw;
  }
}

Executable::~Executable() { TPJ_PJRT_DESTROY(*state_->api, PJRT_LoadedExecutable_Destroy, executable, loaded_); }

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

  std::vector<PJRT_Buffer*> outs(num_outputs(), nullptr);
  enqueue(raw.data(), raw.size(), outs.data(), device, non_donatable.data(), non_donatable.size());
  std::vector<Buffer> result;
  result.reserve(outs.size());
  for (PJRT_Buffer* out : outs) result.emplace_back(*state_, out);
  return result;
}

}  // namespace tpj::pjrt
