#include "runtime/guard.h"

#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include "runtime/allocator.h"
#include "runtime/cell.h"
#include "runtime/device.h"
#include "runtime/errors.h"
#include "runtime/generator.h"
#include "runtime/scalar_type.h"
#include "runtime/stream.h"

namespace tpj::runtime {

namespace {

constexpr c10::DeviceType kType = c10::kPrivateUse1;

c10::Device device_at(int index) { return {kType, static_cast<c10::DeviceIndex>(index)}; }

class Guard final : public c10::impl::DeviceGuardImplInterface {
 public:
  c10::DeviceType type() const override { return kType; }
  c10::Device exchangeDevice(c10::Device d) const override {
    const c10::Device old = getDevice();
    set_current_device(d.index());
    return old;
  }
  c10::Device getDevice() const override { return device_at(current_device()); }
  void setDevice(c10::Device d) const override { set_current_device(d.index()); }
  void uncheckedSetDevice(c10::Device d) const noexcept override { unchecked_set_current_device(d.index()); }
  c10::DeviceIndex deviceCount() const noexcept override { return static_cast<c10::DeviceIndex>(device_count()); }

  c10::DeviceCapability getDeviceCapability(c10::Device) const override {
    c10::DeviceCapability capability;
    capability.capability_data.capability_bits = 0;
    for (int i = 0; i < static_cast<int>(c10::ScalarType::NumOptions); ++i)
      if (find_dtype(static_cast<c10::ScalarType>(i)))
        capability.capability_data.capability_bits |= 1ull << capability_bit(i);
    return capability;
  }

  c10::Stream getStream(c10::Device d) const override { return current_stream(d.index()); }
  c10::Stream getDefaultStream(c10::Device d) const override { return default_stream(d.index()); }
  c10::Stream getNewStream(c10::Device d, int) const override { return new_stream(d.index()); }
  c10::Stream getStreamFromGlobalPool(c10::Device d, bool) const override { return new_stream(d.index()); }
  c10::Stream exchangeStream(c10::Stream s) const override { return exchange_stream(s); }
  void* getStreamNativeHandle(const c10::Stream s) const override { return reinterpret_cast<void*>(s.id()); }
  bool queryStream(const c10::Stream& s) const override {
    Event e;
    e.record(s.device_index());
    return e.is_ready();
  }
  void synchronizeStream(const c10::Stream& s) const override { synchronize(s.device_index()); }
  bool isStreamCapturing(const c10::Stream& s) const override { return CellWatcher::watches(s.device_index()); }

  void record(void** event, const c10::Stream& s, const c10::DeviceIndex, const c10::EventFlag) const override {
    if (*event == nullptr) *event = new Event;
    static_cast<Event*>(*event)->record(s.device_index());
  }
  void block(void*, const c10::Stream&) const override {}  // one queue per device: the order is given
  bool queryEvent(void* event) const override { return event == nullptr || static_cast<Event*>(event)->is_ready(); }
  void synchronizeEvent(void* event) const override {
    if (event) static_cast<Event*>(event)->await();
  }
  void destroyEvent(void* event, const c10::DeviceIndex) const noexcept override { delete static_cast<Event*>(event); }
  double elapsedTime(void* from, void* to, const c10::DeviceIndex) const override {
    TORCH_CHECK(from && to, "Both events must be recorded before calculating elapsed time.");
    return Event::elapsed_ms(*static_cast<Event*>(from), *static_cast<Event*>(to));
  }
  void synchronizeDevice(const c10::DeviceIndex device) const override { synchronize(device); }
  void recordDataPtrOnStream(const c10::DataPtr&, const c10::Stream&) const override {}

 private:
  // The capability's bits are numbered by its own enumeration.
  static int capability_bit(int scalar_type) {
    switch (static_cast<c10::ScalarType>(scalar_type)) {
#define X(_, name)            \
  case c10::ScalarType::name: \
    return c10::kIndex_##name;
      AT_FORALL_SCALAR_TYPES_WITH_COMPLEX_AND_QINTS(X)
#undef X
      default:
        return 63;
    }
  }
};

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return is_available(); }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return is_initialized(); }
  void init() const override { client(); }
  c10::DeviceIndex deviceCount() const override { return static_cast<c10::DeviceIndex>(device_count()); }
  void setCurrentDevice(c10::DeviceIndex i) const override { set_current_device(i); }
  c10::DeviceIndex getCurrentDevice() const override { return static_cast<c10::DeviceIndex>(current_device()); }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex i) const override {
    const int old = current_device();
    set_current_device(i);
    return static_cast<c10::DeviceIndex>(old);
  }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex i) const override {
    return i < 0 ? getCurrentDevice() : exchangeDevice(i);
  }
  const at::Generator& getDefaultGenerator(c10::DeviceIndex i) const override {
    return default_generator(i < 0 ? current_device() : i);
  }
  at::Generator getNewGenerator(c10::DeviceIndex i) const override {
    return at::make_generator<Generator>(static_cast<c10::DeviceIndex>(i < 0 ? current_device() : i));
  }
  bool isPinnedPtr(const void* p) const override { return is_pinned(p); }
  c10::Allocator* getPinnedMemoryAllocator() const override { return pinned_allocator(); }
  at::Device getDeviceFromPtr(void*) const override {
    TORCH_CHECK_NOT_IMPLEMENTED(false, "device memory of ", config().device_name, " has no address");
  }
  void resizePrivateUse1Bytes(const c10::Storage& storage, size_t nbytes) const override {
    Cell* cell = Cell::of(*storage.unsafeGetStorageImpl());
    check_size(cell->device(), nbytes);
    cell->set_nbytes(nbytes);
    if (nbytes == 0) cell->store({});
    storage.unsafeGetStorageImpl()->set_nbytes(nbytes);
  }
};

}  // namespace

void register_device() {
  c10::register_privateuse1_backend(config().device_name);
  // Both registries keep the pointers and never free them: they are used until the process ends.
  static c10::impl::DeviceGuardImplRegistrar guard(kType, new Guard);
  at::RegisterPrivateUse1HooksInterface(new Hooks);
  register_allocators();
}

}  // namespace tpj::runtime
