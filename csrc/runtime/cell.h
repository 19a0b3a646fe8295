// What a storage on our device holds: one current buffer, or nothing yet.
//
// Invariant: the buffer's elements in row-major order are the storage's bytes from the start. They may be fewer than
// nbytes (a storage that grew) when the buffer is read as if zeros followed. data_ptr() of a tensor is the cell's
// address plus the offset: an identity, not memory.
#pragma once

#include <c10/core/Storage.h>

#include "runtime/buffer.h"

namespace tpj::runtime {

class Cell;

// Who has to know for a while which cells of a device are read and written: a capture (exec/capture.h). One at a time.
class CellWatcher {
 public:
  static bool watches(int device) { return device_.load(std::memory_order_relaxed) == device; }
  static bool watches_any() { return device_.load(std::memory_order_relaxed) >= 0; }
  // False: there is one already.
  static bool start(CellWatcher* watcher, int device);
  static void stop();

  static void touched(Cell& cell, BufferRef& contents);
  static void made(Cell& cell);
  static void destroyed(Cell& cell);

 protected:
  ~CellWatcher() = default;

 private:
  // One call at a time. The cell is locked: its contents will be read or written, and may be changed before.
  virtual void on_touch(Cell& cell, BufferRef& contents) = 0;
  virtual void on_made(Cell& cell) = 0;  // with contents
  virtual void on_destroyed(Cell& cell) = 0;
  virtual void on_stop() = 0;  // cells that it was told of, and not of their end, exist as yet

  static std::atomic<int> device_;  // -1: nobody watches
};

class Cell {
 public:
  Cell(int device, size_t nbytes, BufferRef buffer);
  ~Cell();
  Cell(const Cell&) = delete;
  Cell& operator=(const Cell&) = delete;

  int device() const { return device_; }
  size_t nbytes() const { return nbytes_; }
  void set_nbytes(size_t nbytes);

  // The current buffer, or null when nothing was ever written.
  BufferRef load() {
    const auto held = lock();
    return buffer_;
  }
  void store(BufferRef buffer) {
    {
      const auto held = lock();
      type_.store(buffer ? buffer->type() : nullptr, std::memory_order_release);
      buffer_.swap(buffer);
    }  // the old one is released outside the lock
  }
  // The buffer's type without holding it; null when nothing was written. Takes no lock.
  const BufferType* type() const { return type_.load(std::memory_order_acquire); }

  // ---- read, compute, write as one step: hold the lock from locked() to the new value, so that writes of other
  // threads to the same storage are not lost and nobody reads a buffer that is being donated. Lock several cells in the
  // order of their addresses, and load those that are only read before.
  std::unique_lock<std::mutex> lock() {
    std::unique_lock held(mutex_);
    if (CellWatcher::watches(device_)) [[unlikely]]
      CellWatcher::touched(*this, buffer_);
    return held;
  }
  const BufferRef& locked() const { return buffer_; }
  void store_locked(BufferRef buffer) {
    type_.store(buffer ? buffer->type() : nullptr, std::memory_order_release);
    buffer_ = std::move(buffer);
  }

  // Cells belong to their storages; who keeps one longer holds it.
  bool try_hold();  // false: it is being destroyed
  void release();

  // The cell of a storage on our device. Throws for a storage that another library made.
  static Cell* of(const c10::StorageImpl& storage);
  static Cell* of(const c10::TensorImpl& tensor) { return of(*tensor.unsafe_storage().unsafeGetStorageImpl()); }

  // A storage's owner of a new cell.
  static c10::DataPtr make(int device, size_t nbytes, BufferRef buffer = {});

 private:
  // PyTorch sometimes wraps a data pointer in a storage of its own (at::from_blob when it writes a storage to a file):
  // the mark tells a cell's address from others.
  static constexpr uint64_t kMark = 0x43454c4c6a727470;
  uint64_t mark_ = kMark;
  std::atomic<int> holders_{1};
  std::mutex mutex_;
  BufferRef buffer_;
  std::atomic<const BufferType*> type_{nullptr};  // of buffer_
  size_t nbytes_;
  int device_;
};

// Bytes of all storages, per device: what torch.accelerator.memory_allocated() reports (the ledger has what buffers
// really take).
struct StorageAccount {
  std::atomic<int64_t> current{0}, peak{0}, total_allocated{0};
  static StorageAccount& get(int device);
};

}  // namespace tpj::runtime
