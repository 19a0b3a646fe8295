#include "runtime/stream.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <array>

#include "runtime/device.h"

namespace tpj::runtime {
namespace {

constexpr c10::DeviceType kType = c10::kPrivateUse1;

thread_local std::array<c10::StreamId, Ledger::kMaxDevices> t_current{};
std::atomic<c10::StreamId> g_next_id{1};

// Devices without an index mean the current one.
int index_of(int device) { return device < 0 ? current_device() : device; }

c10::Stream make(int device, c10::StreamId id) {
  return c10::Stream(c10::Stream::UNSAFE, c10::Device(kType, static_cast<c10::DeviceIndex>(device)), id);
}

}  // namespace

c10::Stream default_stream(int device) { return make(index_of(device), 0); }

c10::Stream current_stream(int device) {
  device = index_of(device);
  return make(device, t_current[static_cast<size_t>(device)]);
}

c10::Stream exchange_stream(c10::Stream stream) {
  const c10::Stream old = current_stream(stream.device_index());
  t_current[static_cast<size_t>(old.device_index())] = stream.id();
  return old;
}

c10::Stream new_stream(int device) { return make(index_of(device), g_next_id.fetch_add(1)); }

void Event::record(int device) {
  settle(device);
  pending_ = Ledger::get().pending(index_of(device));
  // What is ready already need not be kept alive.
  pending_.erase(std::remove_if(pending_.begin(), pending_.end(), [](const BufferRef& b) { return b->is_ready(); }),
                 pending_.end());
  done_ = std::make_shared<Done>();
  const auto finish = [done = done_](std::exception_ptr) {
    done->time = std::chrono::steady_clock::now();
    done->known.store(true, std::memory_order_release);
  };
  if (pending_.empty()) return finish(nullptr);
  pending_.back()->pjrt().ready_event().on_ready(finish);
}

bool Event::is_ready() const {
  return std::all_of(pending_.begin(), pending_.end(), [](const BufferRef& b) { return b->is_ready(); });
}

void Event::await() {
  for (const BufferRef& b : pending_) b->await();
  pending_.clear();
}

double Event::elapsed_ms(const Event& from, const Event& to) {
  TORCH_CHECK(from.done_ && to.done_, "Both events must be recorded before calculating elapsed time.");
  TORCH_CHECK(from.is_ready() && to.is_ready() && from.done_->known && to.done_->known,
              "Both events must be completed before calculating elapsed time.");
  return std::chrono::duration<double, std::milli>(to.done_->time - from.done_->time).count();
}

}  // namespace tpj::runtime
