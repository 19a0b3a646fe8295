#include "runtime/cell.h"

#include <c10/util/Exception.h>

namespace tpj::runtime {
namespace {

void release_cell(void* cell) { static_cast<Cell*>(cell)->release(); }

std::mutex g_watcher_mutex;
CellWatcher* g_watcher = nullptr;

void account(int device, int64_t bytes) {
  StorageAccount& a = StorageAccount::get(device);
  const int64_t now = a.current.fetch_add(bytes, std::memory_order_relaxed) + bytes;
  if (bytes <= 0) return;
  a.total_allocated.fetch_add(bytes, std::memory_order_relaxed);
  int64_t peak = a.peak.load(std::memory_order_relaxed);
  while (now > peak && !a.peak.compare_exchange_weak(peak, now, std::memory_order_relaxed)) {
  }
}

}  // namespace

constinit std::atomic<int> CellWatcher::device_{-1};

bool CellWatcher::start(CellWatcher* watcher, int device) {
  const std::lock_guard lock(g_watcher_mutex);
  if (g_watcher != nullptr) return false;
  g_watcher = watcher;
  device_ = device;
  return true;
}

void CellWatcher::stop() {
  const std::lock_guard lock(g_watcher_mutex);
  g_watcher->on_stop();
  g_watcher = nullptr;
  device_ = -1;
}

void CellWatcher::touched(Cell& cell, BufferRef& contents) {
  const std::lock_guard lock(g_watcher_mutex);
  if (g_watcher != nullptr) g_watcher->on_touch(cell, contents);
}

void CellWatcher::made(Cell& cell) {
  const std::lock_guard lock(g_watcher_mutex);
  if (g_watcher != nullptr) g_watcher->on_made(cell);
}

void CellWatcher::destroyed(Cell& cell) {
  const std::lock_guard lock(g_watcher_mutex);
  if (g_watcher != nullptr) g_watcher->on_destroyed(cell);
}

StorageAccount& StorageAccount::get(int device) {
  static auto& accounts = *new std::array<StorageAccount, Ledger::kMaxDevices>;
  return accounts[static_cast<size_t>(device)];
}

Cell::Cell(int device, size_t nbytes, BufferRef buffer)
    : buffer_(std::move(buffer)), type_(buffer_ ? buffer_->type() : nullptr), nbytes_(nbytes), device_(device) {
  account(device, static_cast<int64_t>(nbytes));
  if (CellWatcher::watches(device) && buffer_) [[unlikely]]
    CellWatcher::made(*this);
}

Cell::~Cell() {
  if (CellWatcher::watches(device_)) [[unlikely]]
    CellWatcher::destroyed(*this);
  mark_ = 0;
  account(device_, -static_cast<int64_t>(nbytes_));
}

bool Cell::try_hold() {
  int n = holders_.load(std::memory_order_relaxed);
  while (n != 0 && !holders_.compare_exchange_weak(n, n + 1, std::memory_order_relaxed)) {
  }
  return n != 0;
}

void Cell::release() {
  if (holders_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
}

void Cell::set_nbytes(size_t nbytes) {
  account(device_, static_cast<int64_t>(nbytes) - static_cast<int64_t>(nbytes_));
  nbytes_ = nbytes;
}

Cell* Cell::of(const c10::StorageImpl& storage) {
  const c10::DataPtr& ptr = storage.data_ptr();
  if (ptr.get_deleter() == &release_cell) [[likely]]
    return static_cast<Cell*>(ptr.get_context());
  auto* cell = static_cast<Cell*>(ptr.get());
  TORCH_CHECK(cell != nullptr && cell->mark_ == kMark, "this storage was not made by the ", storage.device(),
              " device's allocator");
  return cell;
}

c10::DataPtr Cell::make(int device, size_t nbytes, BufferRef buffer) {
  auto* cell = new Cell(device, nbytes, std::move(buffer));
  return {cell, cell, &release_cell, c10::Device(c10::kPrivateUse1, static_cast<c10::DeviceIndex>(device))};
}

}  // namespace tpj::runtime
