#include "runtime/cell.h"

#include <c10/util/Exception.h>

namespace tpj::runtime {
namespace {

void delete_cell(void* cell) { delete static_cast<Cell*>(cell); }

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

StorageAccount& StorageAccount::get(int device) {
  static auto& accounts = *new std::array<StorageAccount, Ledger::kMaxDevices>;
  return accounts[static_cast<size_t>(device)];
}

Cell::Cell(int device, size_t nbytes, BufferRef buffer)
    : buffer_(std::move(buffer)), type_(buffer_ ? buffer_->type() : nullptr), nbytes_(nbytes), device_(device) {
  account(device, static_cast<int64_t>(nbytes));
}

Cell::~Cell() {
  mark_ = 0;
  account(device_, -static_cast<int64_t>(nbytes_));
}

void Cell::set_nbytes(size_t nbytes) {
  account(device_, static_cast<int64_t>(nbytes) - static_cast<int64_t>(nbytes_));
  nbytes_ = nbytes;
}

Cell* Cell::of(const c10::StorageImpl& storage) {
  const c10::DataPtr& ptr = storage.data_ptr();
  if (ptr.get_deleter() == &delete_cell) [[likely]]
    return static_cast<Cell*>(ptr.get_context());
  auto* cell = static_cast<Cell*>(ptr.get());
  TORCH_CHECK(cell != nullptr && cell->mark_ == kMark, "this storage was not made by the ", storage.device(),
              " device's allocator");
  return cell;
}

c10::DataPtr Cell::make(int device, size_t nbytes, BufferRef buffer) {
  auto* cell = new Cell(device, nbytes, std::move(buffer));
  return {cell, cell, &delete_cell, c10::Device(c10::kPrivateUse1, static_cast<c10::DeviceIndex>(device))};
}

}  // namespace tpj::runtime
