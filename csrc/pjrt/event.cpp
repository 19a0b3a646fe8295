#include "pjrt/event.h"

#include <memory>

namespace tpj::pjrt {
namespace {

struct Callback {
  const Api* api;
  std::function<void(std::exception_ptr)> run;
};

// Called by the plugin, once, with ownership of `error`.
void on_event(PJRT_Error* error, void* user_arg) {
  const std::unique_ptr<Callback> callback(static_cast<Callback*>(user_arg));
  std::exception_ptr failure = to_exception(*callback->api, "PJRT_Event_OnReady", error);
  try {
    callback->run(std::move(failure));
  } catch (...) {
    // A C function called us: there is nowhere to throw to.
  }
}

}  // namespace

Event& Event::operator=(Event&& other) noexcept {
  if (this != &other) {
    reset();
    state_ = other.state_;
    raw_ = std::exchange(other.raw_, nullptr);
  }
  return *this;
}

void Event::reset() noexcept {
  if (PJRT_Event* raw = std::exchange(raw_, nullptr)) TPJ_PJRT_DESTROY(*state_->api, PJRT_Event_Destroy, event, raw);
}

bool Event::is_ready() const {
  if (raw_ == nullptr) return true;
  TPJ_PJRT_ARGS(PJRT_Event_IsReady, args);
  args.event = raw_;
  TPJ_PJRT_CALL(*state_->api, PJRT_Event_IsReady, args);
  return args.is_ready;
}

void Event::await() const {
  if (raw_ == nullptr) return;
  TPJ_PJRT_ARGS(PJRT_Event_Await, args);
  args.event = raw_;
  TPJ_PJRT_CALL(*state_->api, PJRT_Event_Await, args);
}

void Event::on_ready(std::function<void(std::exception_ptr)> callback) const {
  TPJ_CHECK(callback != nullptr, "[Event::on_ready] no callback given");
  if (raw_ == nullptr) {
    Callback now{nullptr, std::move(callback)};
    try {
      now.run(nullptr);
    } catch (...) {
    }
    return;
  }
  auto owned = std::make_unique<Callback>(Callback{state_->api, std::move(callback)});
  TPJ_PJRT_ARGS(PJRT_Event_OnReady, args);
  args.event = raw_;
  args.callback = on_event;
  args.user_arg = owned.get();
  TPJ_PJRT_CALL(*state_->api, PJRT_Event_OnReady, args);
  owned.release();  // on_event's now, and perhaps already gone
}

}  // namespace tpj::pjrt
