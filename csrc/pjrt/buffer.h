// An immutable array on a device. Move-only owner of a PJRT_Buffer: two pointers, destroyed by one C call.
//
// The client must outlive it. Any thread may use it; moving and destroying need the usual exclusive access. Its
// contents may not be computed yet: await() waits and throws what went wrong. Every method on an empty (moved-from,
// released) or deleted buffer throws Error(kRuntime) before the plugin sees anything; donation to a program also
// deletes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "pjrt/client_state.h"
#include "pjrt/event.h"
#include "pjrt/types.h"

namespace tpj::pjrt {

class Buffer {
 public:
  Buffer() = default;
  // Takes ownership of `raw`, for example an output of Executable::enqueue.
  Buffer(const ClientState& state, PJRT_Buffer* raw) : state_(&state), raw_(raw) {}
  Buffer(Buffer&& other) noexcept : state_(other.state_), raw_(std::exchange(other.raw_, nullptr)) {}
  Buffer& operator=(Buffer&& other) noexcept {
    if (this != &other) {
      reset();
      state_ = other.state_;
      raw_ = std::exchange(other.raw_, nullptr);
    }
    return *this;
  }
  ~Buffer() { reset(); }

  explicit operator bool() const { return raw_ != nullptr; }
  // Not owned by the caller; null when empty.
  PJRT_Buffer* raw() const { return raw_; }
  // Gives up ownership.
  PJRT_Buffer* release() { return std::exchange(raw_, nullptr); }
  // Destroys now; the buffer is empty afterwards.
  void reset() noexcept {
    if (raw_ == nullptr) return;
    PJRT_Buffer_Destroy_Args args{PJRT_Buffer_Destroy_Args_STRUCT_SIZE, nullptr, std::exchange(raw_, nullptr)};
    if (PJRT_Error* error = state_->c->PJRT_Buffer_Destroy(&args)) [[unlikely]]
      ignore_error(*state_->api, error);
  }

  // Asked of the plugin each time: not for the hot path. Dimensions are the padded ones if some are dynamic.
  DType dtype() const;
  std::vector<int64_t> dims() const;
  TensorType type() const { return {dtype(), dims()}; }
  int64_t nbytes() const;
  // Index in the client's list of devices.
  int device() const;

  // True also when it failed.
  bool is_ready() const;
  // Waits until the contents exist; throws the error of the computation that should have made them.
  void await() const;
  // The event behind both, for a callback.
  Event ready_event() const;

  // Copies the contents to `dst` in dense row-major order, whatever the device layout, and waits. `nbytes` must be
  // exactly nbytes(); `dst` may be null only for zero bytes.
  void to_host(void* dst, size_t nbytes) const;

  // The contents in place; only where caps.host_visible_buffers (else kNotImplemented). Does not wait: read after
  // await(), and only while this buffer is neither destroyed, deleted nor donated. Never write. Null is possible for
  // zero bytes.
  const void* host_pointer() const;

  // Asynchronous. Copying to the device it is on is allowed (it makes a second buffer).
  Buffer copy_to_device(int device) const;

  // An empty buffer counts as deleted.
  bool is_deleted() const;
  // Frees the device memory once pending work is done, and keeps the object; a second time does nothing.
  void delete_now();

 private:
  // Throws unless there is a live buffer behind this.
  void check_alive(const char* where) const;

  const ClientState* state_ = nullptr;
  PJRT_Buffer* raw_ = nullptr;
};

// The three ways in; Client has the same as methods, with the contracts written there.
Buffer from_host(const ClientState& state, const void* data, DType dtype, std::span<const int64_t> dims, int device);
Buffer from_host_zero_copy(const ClientState& state, const void* data, DType dtype, std::span<const int64_t> dims,
                           int device, std::function<void()> on_done);
Buffer uninitialized(const ClientState& state, DType dtype, std::span<const int64_t> dims, int device);

}  // namespace tpj::pjrt
