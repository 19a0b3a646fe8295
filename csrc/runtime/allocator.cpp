#include "runtime/allocator.h"

#include <ATen/core/CachingHostAllocator.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <map>

#include "runtime/cell.h"
#include "runtime/device.h"
#include "runtime/errors.h"

namespace tpj::runtime {
namespace {

// Bytes that the device could ever hold: what the plugin says, else the machine's memory.
int64_t device_limit(int device) {
  if (const auto stats = client().memory_stats(device); stats && stats->bytes_limit) return *stats->bytes_limit;
  static const int64_t physical = static_cast<int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGE_SIZE);
  return physical;
}

void delete_host(void* p) { std::free(p); }

class DeviceCellAllocator final : public c10::DeviceAllocator {
 public:
  c10::DataPtr allocate(size_t nbytes) override {
    const int device = current_device();
    check_size(device, nbytes);
    return Cell::make(device, nbytes);
  }
  // No raw pointers: a cell is only reached through its DataPtr.
  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }
  void copy_data(void*, const void*, size_t) const override {
    TORCH_CHECK_NOT_IMPLEMENTED(false, "device memory of ", config().device_name,
                                " has no address: copy tensors instead");
  }

  bool initialized() override { return is_initialized(); }
  // Buffers are freed when their last owner goes: nothing is cached here.
  void emptyCache(c10::MempoolId_t) override {}
  // Work is ordered per device and buffers are counted: nothing to protect.
  void recordStream(const c10::DataPtr&, c10::Stream) override {}

  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex device) override {
    c10::CachingDeviceAllocator::DeviceStats stats;
    const StorageAccount& s = StorageAccount::get(device);
    const Ledger::Account buffers = Ledger::get().account(device);
    const auto fill = [](c10::CachingAllocator::StatArray& to, int64_t current, int64_t peak, int64_t allocated,
                         int64_t freed) {
      auto& stat = to[static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE)];
      stat.current = current, stat.peak = peak, stat.allocated = allocated, stat.freed = freed;
    };
    const int64_t current = s.current;
    for (auto* bytes : {&stats.allocated_bytes, &stats.active_bytes, &stats.requested_bytes})
      fill(*bytes, current, s.peak, s.total_allocated, s.total_allocated - current);
    fill(stats.reserved_bytes, buffers.current, buffers.peak, buffers.total_allocated, buffers.total_freed);
    for (auto* count : {&stats.allocation, &stats.active, &stats.segment})
      fill(*count, buffers.count, buffers.count, buffers.count, 0);
    stats.num_ooms = Ledger::get().out_of_memory;
    return stats;
  }
  void resetAccumulatedStats(c10::DeviceIndex device) override {
    StorageAccount& s = StorageAccount::get(device);
    s.total_allocated = s.current.load();
    Ledger::get().reset_totals(device);
  }
  void resetPeakStats(c10::DeviceIndex device) override {
    StorageAccount& s = StorageAccount::get(device);
    s.peak = s.current.load();
    Ledger::get().reset_peak(device);
  }
  std::pair<size_t, size_t> getMemoryInfo(c10::DeviceIndex device) override {
    const int64_t total = device_limit(device);
    int64_t used = Ledger::get().account(device).current;
    if (const auto stats = client().memory_stats(device)) used = stats->bytes_in_use;
    return {static_cast<size_t>(std::max<int64_t>(total - used, 0)), static_cast<size_t>(total)};
  }
};

// Host memory that a plugin can read without a staging copy (64 bytes: what CPU plugins alias). Known by address, so
// that is_pinned() can answer.
class PinnedAllocator final : public at::HostAllocator {
 public:
  c10::DataPtr allocate(size_t nbytes) override {
    if (nbytes == 0) return {nullptr, c10::Device(c10::kCPU)};
    void* p = std::aligned_alloc(64, (nbytes + 63) / 64 * 64);
    TORCH_CHECK_WITH(OutOfMemoryError, p != nullptr, "no host memory for ", nbytes, " bytes");
    const std::lock_guard lock(mutex_);
    live_[p] = nbytes;
    bytes_ += static_cast<int64_t>(nbytes);
    return {p, p, &PinnedAllocator::release, c10::Device(c10::kCPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &PinnedAllocator::release; }
  void copy_data(void* to, const void* from, size_t n) const override { std::memcpy(to, from, n); }

  bool record_event(void*, void*, c10::Stream) override { return true; }  // uploads read the memory before they return
  void empty_cache() override {}
  at::HostStats get_stats() override { return {}; }
  void reset_accumulated_stats() override {}
  void reset_peak_stats() override {}

  bool owns(const void* p) {
    const std::lock_guard lock(mutex_);
    auto it = live_.upper_bound(const_cast<void*>(p));
    if (it == live_.begin()) return false;
    --it;
    return static_cast<const char*>(p) < static_cast<const char*>(it->first) + it->second;
  }

  static PinnedAllocator& get() {
    static PinnedAllocator& a = *new PinnedAllocator;
    return a;
  }

 private:
  static void release(void* p) {
    PinnedAllocator& a = get();
    {
      const std::lock_guard lock(a.mutex_);
      const auto it = a.live_.find(p);
      if (it != a.live_.end()) a.bytes_ -= static_cast<int64_t>(it->second), a.live_.erase(it);
    }
    delete_host(p);
  }

  std::mutex mutex_;
  std::map<void*, size_t> live_;
  int64_t bytes_ = 0;
};

}  // namespace

void check_size(int device, size_t nbytes) {
  if (nbytes < (size_t{1} << 28)) return;
  const int64_t limit = translate([&] { return device_limit(device); });
  if (nbytes > static_cast<size_t>(limit))
    rethrow(Error(ErrorKind::kOutOfMemory, str("cannot allocate ", nbytes, " bytes on ", config().device_name, ":",
                                               device, ", which has ", limit)));
}

bool is_pinned(const void* p) { return PinnedAllocator::get().owns(p); }
c10::Allocator* pinned_allocator() { return &PinnedAllocator::get(); }

void register_allocators() {
  static DeviceCellAllocator& device = *new DeviceCellAllocator;
  c10::SetAllocator(c10::kPrivateUse1, &device);
  at::setHostAllocator(c10::kPrivateUse1, &PinnedAllocator::get());
}

}  // namespace tpj::runtime
