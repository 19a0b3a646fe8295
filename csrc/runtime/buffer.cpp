#include "runtime/buffer.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <shared_mutex>
#include <sstream>
#include <tuple>

#include "runtime/device.h"
#include "runtime/errors.h"

namespace tpj::runtime {

const BufferType* BufferType::intern(DType dtype, std::vector<int64_t> dims) {
  static std::shared_mutex& mutex = *new std::shared_mutex;
  static auto& table = *new std::map<std::pair<DType, std::vector<int64_t>>, const BufferType*>;
  std::pair<DType, std::vector<int64_t>> id{dtype, std::move(dims)};
  {
    const std::shared_lock lock(mutex);
    if (const auto it = table.find(id); it != table.end()) return it->second;
  }
  size_t nbytes = size_of(dtype);
  for (int64_t d : id.second) nbytes *= static_cast<size_t>(d);
  const std::unique_lock lock(mutex);
  const BufferType*& slot = table[id];
  if (slot == nullptr) slot = new BufferType{dtype, id.second, nbytes};
  return slot;
}

DeviceBuffer::DeviceBuffer(pjrt::Buffer raw, const BufferType* type, int device, const char* producer)
    : raw_(std::move(raw)), type_(type), producer_(producer), device_(device), state_(State::kHere) {
  Ledger::get().add(this);
}

DeviceBuffer::DeviceBuffer(const BufferType* promised, int device, const char* producer)
    : type_(promised), producer_(producer), device_(device), state_(State::kPromised) {}

DeviceBuffer::~DeviceBuffer() {
  if (state_.load(std::memory_order_relaxed) == State::kHere) Ledger::get().remove(this, !donated_);
}

void DeviceBuffer::keep_promise(pjrt::Buffer raw) {
  raw_ = std::move(raw);
  Ledger::get().add(this);
  state_.store(State::kHere, std::memory_order_release);
}

void DeviceBuffer::break_promise(std::exception_ptr why) {
  broken_ = std::move(why);
  state_.store(State::kBroken, std::memory_order_release);
}

void DeviceBuffer::settle_promise() const {
  if (is_promise()) {
    try {
      runtime::settle(device_);
    } catch (...) {
      if (state_.load(std::memory_order_acquire) != State::kHere) throw;  // else it was another one
    }
  }
  const State state = state_.load(std::memory_order_acquire);
  if (state == State::kBroken) std::rethrow_exception(broken_);
  TPJ_CHECK(state == State::kHere, "[", producer_, "] another thread used the device while a graph was captured");
}

void DeviceBuffer::mark_donated() {
  donated_ = true;
  Ledger::get().forget_bytes(*this);
}

void DeviceBuffer::await() const {
  if (ready_.load(std::memory_order_acquire)) return;
  if (donated_) return;
  settle();
  try {
    raw_.await();
  } catch (const Error& e) {
    rethrow(Error(e.kind(), str("[", producer_, "] ", e.what())));
  }
  ready_.store(true, std::memory_order_release);
}

bool DeviceBuffer::is_ready() const {
  return !is_promise() && (ready_.load(std::memory_order_acquire) || donated_ || !raw_ || raw_.is_ready());
}

const void* DeviceBuffer::host_data() const {
  await();
  return translate([&] { return raw_.host_pointer(); });
}

Ledger& Ledger::get() {
  static Ledger& ledger = *new Ledger;
  return ledger;
}

void Ledger::add(DeviceBuffer* b) {
  Device& d = devices_[b->device_];
  const auto bytes = static_cast<int64_t>(b->type_->nbytes);
  const std::lock_guard lock(d.lock);
  b->prev_ = d.tail;
  (d.tail ? d.tail->next_ : d.head) = b;
  d.tail = b;
  Account& a = d.account;
  a.current += bytes;
  a.total_allocated += bytes;
  a.count += 1;
  if (a.current > a.peak) a.peak = a.current;
}

void Ledger::remove(DeviceBuffer* b, bool freed_bytes) {
  Device& d = devices_[b->device_];
  const auto bytes = freed_bytes ? static_cast<int64_t>(b->type_->nbytes) : 0;
  const std::lock_guard lock(d.lock);
  (b->prev_ ? b->prev_->next_ : d.head) = b->next_;
  (b->next_ ? b->next_->prev_ : d.tail) = b->prev_;
  d.account.current -= bytes;
  d.account.total_freed += bytes;
  d.account.count -= 1;
}

void Ledger::forget_bytes(const DeviceBuffer& b) {
  Device& d = devices_[b.device_];
  const std::lock_guard lock(d.lock);
  d.account.current -= static_cast<int64_t>(b.type_->nbytes);
  d.account.total_freed += static_cast<int64_t>(b.type_->nbytes);
}

Ledger::Account Ledger::account(int device) {
  Device& d = devices_[device];
  const std::lock_guard lock(d.lock);
  return d.account;
}

void Ledger::reset_peak(int device) {
  Device& d = devices_[device];
  const std::lock_guard lock(d.lock);
  d.account.peak = d.account.current;
}

void Ledger::reset_totals(int device) {
  Device& d = devices_[device];
  const std::lock_guard lock(d.lock);
  d.account.total_allocated = d.account.total_freed = 0;
}

std::vector<BufferRef> Ledger::pending(int device) {
  std::vector<BufferRef> out;
  Device& d = devices_[device];
  const std::lock_guard lock(d.lock);
  for (DeviceBuffer* b = d.head; b; b = b->next_) {
    if (b->ready_.load(std::memory_order_acquire) || b->donated_) continue;
    // A buffer whose count has reached zero waits in remove() for our lock: lock() then gives null.
    auto weak = c10::weak_intrusive_ptr<DeviceBuffer>::reclaim(b);
    if (BufferRef ref = weak.lock()) out.push_back(std::move(ref));
    weak.release();
  }
  return out;
}

std::string Ledger::report(size_t rows) {
  // Grouped by type and producer, largest first.
  std::map<std::pair<const BufferType*, const char*>, int64_t> groups;
  for (Device& d : devices_) {
    const std::lock_guard lock(d.lock);
    for (DeviceBuffer* b = d.head; b; b = b->next_)
      if (!b->donated_) groups[{b->type_, b->producer_}] += 1;
  }
  std::vector<std::tuple<int64_t, int64_t, const BufferType*, const char*>> table;
  for (const auto& [id, n] : groups)
    table.emplace_back(n * static_cast<int64_t>(id.first->nbytes), n, id.first, id.second);
  std::sort(table.rbegin(), table.rend());
  std::ostringstream out;
  out << "Largest live buffers (bytes, count, type, made by):";
  for (size_t i = 0; i < table.size() && i < rows; ++i) {
    const auto& [bytes, n, type, producer] = table[i];
    out << "\n  " << bytes << "  " << n << " x " << pjrt::show(type->dtype, type->dims) << "  " << producer;
  }
  if (table.empty()) out << " none";
  return out.str();
}

namespace {

void (*g_keep_promises)(int device) = nullptr;

}  // namespace

void set_settler(void (*keep_promises)(int device)) { g_keep_promises = keep_promises; }

void settle(int device) {
  if (g_keep_promises != nullptr) g_keep_promises(device < 0 ? current_device() : device);
}

void synchronize(int device) {
  settle(device);
  for (const BufferRef& b : Ledger::get().pending(device < 0 ? current_device() : device)) b->await();
}

BufferRef upload(const void* data, const BufferType* type, int device) {
  return translate([&] {
    return c10::make_intrusive<DeviceBuffer>(client().from_host(data, type->dtype, type->dims, device), type, device,
                                             "copy from host");
  });
}

BufferRef uninitialized(const BufferType* type, int device) {
  return translate([&] {
    return c10::make_intrusive<DeviceBuffer>(client().uninitialized(type->dtype, type->dims, device), type, device,
                                             "empty");
  });
}

}  // namespace tpj::runtime
