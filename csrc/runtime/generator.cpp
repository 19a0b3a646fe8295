#include "runtime/generator.h"

#include <ATen/ATen.h>

#include <array>
#include <cstring>
#include <mutex>
#include <optional>

#include "runtime/buffer.h"

namespace tpj::runtime {
namespace {

constexpr int64_t kStateBytes = 16;

}  // namespace

Generator::Generator(c10::DeviceIndex device)
    : c10::GeneratorImpl(c10::Device(c10::kPrivateUse1, device), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1)) {}

void Generator::set_current_seed(uint64_t seed) {
  seed_ = seed;
  offset_ = 0;
}

uint64_t Generator::seed() {
  set_current_seed(c10::detail::getNonDeterministicRandom());
  return seed_;
}

void Generator::set_state(const c10::TensorImpl& state) {
  at::detail::check_rng_state(state);
  TORCH_CHECK(state.numel() == kStateBytes, "RNG state is wrong size: got ", state.numel(), " bytes, expected ",
              kStateBytes);
  const auto* bytes = static_cast<const char*>(state.data());
  std::memcpy(&seed_, bytes, 8);
  std::memcpy(&offset_, bytes + 8, 8);
}

c10::intrusive_ptr<c10::TensorImpl> Generator::get_state() const {
  at::Tensor state = at::empty({kStateBytes}, at::TensorOptions().dtype(at::kByte).device(at::kCPU));
  auto* bytes = static_cast<char*>(state.mutable_data_ptr());
  std::memcpy(bytes, &seed_, 8);
  std::memcpy(bytes + 8, &offset_, 8);
  return state.getIntrusivePtr();
}

std::pair<uint64_t, uint64_t> Generator::reserve(uint64_t counters) {
  const std::lock_guard lock(mutex_);
  const uint64_t offset = offset_;
  offset_ += counters;
  return {seed_, offset};
}

Generator* Generator::clone_impl() const {
  auto* copy = new Generator(device_.index());
  copy->seed_ = seed_;
  copy->offset_ = offset_;
  return copy;
}

namespace {

struct Generators {
  std::mutex mutex;
  std::optional<uint64_t> first_seed;  // of generators still to be made
  std::array<at::Generator, Ledger::kMaxDevices> list;
};

Generators& generators() {
  static Generators& g = *new Generators;
  return g;
}

}  // namespace

const at::Generator& default_generator(int device) {
  Generators& g = generators();
  TORCH_CHECK(device >= 0 && device < Ledger::kMaxDevices, "invalid device index ", device);
  const std::lock_guard lock(g.mutex);
  at::Generator& generator = g.list[static_cast<size_t>(device)];
  if (!generator.defined()) {
    generator = at::make_generator<Generator>(static_cast<c10::DeviceIndex>(device));
    if (g.first_seed)
      generator.set_current_seed(*g.first_seed);
    else
      generator.seed();
  }
  return generator;
}

void seed_all(uint64_t seed) {
  Generators& g = generators();
  const std::lock_guard lock(g.mutex);
  g.first_seed = seed;
  for (at::Generator& generator : g.list)
    if (generator.defined()) {
      const std::lock_guard own(generator.mutex());
      generator.set_current_seed(seed);
    }
}

}  // namespace tpj::runtime
