// Device memory with an account: reference-counted immutable buffers, and the ledger of all that live.
#pragma once

#include <c10/util/intrusive_ptr.h>

#include <atomic>
#include <exception>
#include <mutex>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "pjrt/client.h"

namespace tpj::runtime {

// Element type and natural dimensions of a buffer. Interned: equal types have one address, so that a key needs one word
// for it. Never freed: there are as many as distinct shapes in the process.
struct BufferType {
  DType dtype;
  std::vector<int64_t> dims;
  size_t nbytes;

  static const BufferType* intern(DType dtype, std::vector<int64_t> dims);
};

// An immutable PJRT buffer. Its contents may still be on their way; await() waits and raises what went wrong, with the
// operator that was to compute it.
//
// It may also be a promise: the calls that compute it are noted, and run when somebody asks for the PJRT buffer.
class DeviceBuffer final : public c10::intrusive_ptr_target {
 public:
  // `producer` is a string that lives as long as the process: operator name for errors.
  DeviceBuffer(pjrt::Buffer raw, const BufferType* type, int device, const char* producer);
  DeviceBuffer(const BufferType* promised, int device, const char* producer);
  ~DeviceBuffer() override;

  PJRT_Buffer* raw() const { return pjrt().raw(); }
  const pjrt::Buffer& pjrt() const {
    settle();
    return raw_;
  }
  // Has a promise kept; throws what went wrong.
  void settle() const {
    if (state_.load(std::memory_order_acquire) != State::kHere) [[unlikely]]
      settle_promise();
  }
  bool is_promise() const { return state_.load(std::memory_order_acquire) == State::kPromised; }
  // For who made the promise.
  void keep_promise(pjrt::Buffer raw);
  void break_promise(std::exception_ptr why);
  // Where those who note calls have this buffer; theirs, under their lock.
  struct Place {
    uint64_t graph = 0;
    size_t index = 0;
    bool is_input = false;
  };
  Place place;
  const BufferType* type() const { return type_; }
  int device() const { return device_; }
  const char* producer() const { return producer_; }

  void await() const;
  bool is_ready() const;
  // Bytes in dense row-major order; waits. Only where caps.host_visible_buffers; valid while this lives.
  const void* host_data() const;
  bool was_donated() const { return donated_; }
  // The program that just ran took the memory: nothing may read this any more.
  void mark_donated();

 private:
  friend class Ledger;
  enum class State : uint8_t { kPromised, kHere, kBroken };

  void settle_promise() const;

  pjrt::Buffer raw_;
  const BufferType* type_;
  const char* producer_;
  int device_;
  std::atomic<State> state_;
  mutable std::atomic<bool> ready_{false};
  bool donated_ = false;
  std::exception_ptr broken_;     // why the promise was not kept
  DeviceBuffer* prev_ = nullptr;  // in the ledger, oldest first
  DeviceBuffer* next_ = nullptr;
};

using BufferRef = c10::intrusive_ptr<DeviceBuffer>;

// A tiny lock for a few instructions.
class SpinLock {
 public:
  void lock() {
    while (flag_.test_and_set(std::memory_order_acquire))
      while (flag_.test(std::memory_order_relaxed)) {
      }
  }
  void unlock() { flag_.clear(std::memory_order_release); }

 private:
  std::atomic_flag flag_;
};

// Bytes in buffers, per device, and the list of live buffers in the order in which they were made. Any thread.
class Ledger {
 public:
  static constexpr int kMaxDevices = 64;
  struct Account {
    int64_t current = 0, peak = 0, total_allocated = 0, total_freed = 0, count = 0;
  };

  static Ledger& get();
  void add(DeviceBuffer* buffer);
  void remove(DeviceBuffer* buffer, bool freed_bytes);
  // The bytes went away though the object lives (donation).
  void forget_bytes(const DeviceBuffer& buffer);
  Account account(int device);
  void reset_peak(int device);
  void reset_totals(int device);
  // Live buffers of a device that may not be ready yet; newest last.
  std::vector<BufferRef> pending(int device);
  std::atomic<int64_t> out_of_memory{0};  // errors raised so far
  // "largest live buffers" for an out-of-memory error.
  std::string report(size_t rows);

 private:
  struct Device {
    SpinLock lock;
    Account account;
    DeviceBuffer* head = nullptr;
    DeviceBuffer* tail = nullptr;
  };
  Device devices_[kMaxDevices];
};

// Has every promise of the device kept (-1: the current one); throws what went wrong first. What it calls is set once,
// by who makes promises.
void settle(int device);
void set_settler(void (*keep_promises)(int device));
// Waits for everything enqueued on the device; raises the first failure of a buffer that still lives.
void synchronize(int device);

// ---- making buffers
// Copies during the call; `data` is dense row-major.
BufferRef upload(const void* data, const BufferType* type, int device);
BufferRef uninitialized(const BufferType* type, int device);

}  // namespace tpj::runtime
