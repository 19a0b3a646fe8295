// A compiled program, loaded on a client. Made by Client::compile and Client::deserialize.
//
// It keeps its client alive. Any number of threads may run it at once; executions on one device happen in the order
// in which they were enqueued.
#pragma once

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "pjrt/buffer.h"
#include "pjrt/client_state.h"
#include "pjrt/compiled.h"
#include "pjrt/types.h"

namespace tpj::pjrt {

class Client;

class Executable : public Compiled {
 public:
  ~Executable();

  // Hot path: one C call, no allocation, no checks. Runs on device `device` (index in the client's list; it must be the
  // one the program is bound to, unless is_portable()) and writes num_outputs() buffers, owned by the caller, to
  // `outs`; wrap them with Buffer(state(), out). `args` are live buffers on that device with the types the program
  // declares: a null or wrong one is undefined behaviour. Inputs that the program aliases to outputs are donated
  // (deleted) unless their index is in `non_donatable`. Throws if the plugin refuses at once, and then `outs` is
  // untouched; later failures are in the outputs (Buffer::await).
  void enqueue(PJRT_Buffer* const* args, size_t n_args, PJRT_Buffer** outs, int device,
               const int64_t* non_donatable = nullptr, size_t n_non_donatable = 0) const {
    assert(device >= 0 && static_cast<size_t>(device) < state_->devices.size());
    PJRT_LoadedExecutable_Execute_Args call = execute_args_;
    call.argument_lists = &args;
    call.num_args = n_args;
    call.output_lists = &outs;
    if (portable_) call.execute_device = state_->devices[static_cast<size_t>(device)];
    execute(call, non_donatable, n_non_donatable);
  }

  // The same for a program of several replicas or partitions, on all its devices at once: args[d] and outs[d] belong to
  // the d-th device of devices(). Only for clients that address all of them.
  void enqueue_all(PJRT_Buffer* const* const* args, size_t n_args, PJRT_Buffer** const* outs,
                   const int64_t* non_donatable = nullptr, size_t n_non_donatable = 0) const {
    PJRT_LoadedExecutable_Execute_Args call = execute_args_;
    call.argument_lists = args;
    call.num_args = n_args;
    call.num_devices = devices_.size();
    call.output_lists = outs;
    execute(call, non_donatable, n_non_donatable);
  }

  // Checked form, for tests and cold paths: number of arguments, element type and dimensions against the types given at
  // compile (unchecked if none were given), all alive and on `device`. Error(kValue) names the argument.
  std::vector<Buffer> run(std::span<const Buffer* const> args, int device = 0,
                          std::span<const int64_t> non_donatable = {}) const;

  const std::optional<std::vector<TensorType>>& parameter_types() const { return parameter_types_; }
  // One executable for all devices; else devices() lists, in order, the indices it is bound to.
  bool is_portable() const { return portable_; }
  const std::vector<int>& devices() const { return devices_; }

  const ClientState& state() const { return *state_; }
  const Client& client() const { return *client_; }

 private:
  friend class Client;
  // Takes ownership of `loaded`, also when it throws.
  Executable(std::shared_ptr<const Client> client, const ClientState& state, PJRT_LoadedExecutable* loaded,
             bool portable, std::optional<std::vector<TensorType>> parameter_types);

  void execute(PJRT_LoadedExecutable_Execute_Args& call, const int64_t* non_donatable, size_t n) const {
    PJRT_ExecuteOptions options;
    if (n != 0) {
      options = execute_options_;
      options.non_donatable_input_indices = non_donatable;
      options.num_non_donatable_input_indices = n;
      call.options = &options;
    }
    if (state_->caps.completion_events) [[unlikely]]
      return execute_with_events(call);
    if (PJRT_Error* error = state_->c->PJRT_LoadedExecutable_Execute(&call)) [[unlikely]]
      throw_error(*state_->api, "PJRT_LoadedExecutable_Execute", error);
  }
  void execute_with_events(PJRT_LoadedExecutable_Execute_Args& call) const;

  const ClientState* state_;
  // Prefilled and never changed after construction, so that threads may share them; the plugin only reads the options.
  PJRT_ExecuteOptions execute_options_{};
  PJRT_LoadedExecutable_Execute_Args execute_args_{};
  bool portable_;
  PJRT_LoadedExecutable* loaded_;
  std::vector<int> devices_;
  std::optional<std::vector<TensorType>> parameter_types_;
  std::shared_ptr<const Client> client_;
};

}  // namespace tpj::pjrt
