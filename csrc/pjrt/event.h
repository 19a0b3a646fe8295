// Something that will be done, or will have failed. Move-only owner of a PJRT_Event. Any thread may use it.
#pragma once

#include <exception>
#include <functional>
#include <utility>

#include "pjrt/client_state.h"

namespace tpj::pjrt {

class Event {
 public:
  Event() = default;
  // Takes ownership of `raw`; null makes an event that is already done.
  Event(const ClientState& state, PJRT_Event* raw) : state_(&state), raw_(raw) {}
  Event(Event&& other) noexcept : state_(other.state_), raw_(std::exchange(other.raw_, nullptr)) {}
  Event& operator=(Event&& other) noexcept;
  ~Event() { reset(); }

  explicit operator bool() const { return raw_ != nullptr; }

  // True also when it failed. An empty event is ready.
  bool is_ready() const;

  // Blocks; throws the failure (kOutOfMemory among them). May be called again, with the same outcome.
  void await() const;

  // Runs `callback` once, when done: null for success, else the failure. It may run before this returns, on this
  // thread, or later on a thread of the plugin: it must be short and must not call back into the plugin. What it throws
  // is dropped. The event object itself may be destroyed before the callback runs.
  void on_ready(std::function<void(std::exception_ptr)> callback) const;

 private:
  void reset() noexcept;

  const ClientState* state_ = nullptr;
  PJRT_Event* raw_ = nullptr;
};

}  // namespace tpj::pjrt
