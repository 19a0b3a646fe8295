// The random generator of a device: a Philox key (the seed) and a counter (the offset), both inputs of programs.
#pragma once

#include <ATen/core/Generator.h>

#include <utility>

namespace tpj::runtime {

// State: 16 bytes, uint64 seed then int64 offset, little-endian. The counter counts blocks of 128 bits.
class Generator final : public c10::GeneratorImpl {
 public:
  explicit Generator(c10::DeviceIndex device);

  void set_current_seed(uint64_t seed) override;
  void set_offset(uint64_t offset) override { offset_ = offset; }
  uint64_t get_offset() const override { return offset_; }
  uint64_t current_seed() const override { return seed_; }
  uint64_t seed() override;
  void set_state(const c10::TensorImpl& state) override;
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override;

  // (seed, offset) for a call that consumes `counters` blocks; takes the generator's lock.
  std::pair<uint64_t, uint64_t> reserve(uint64_t counters);

 private:
  Generator* clone_impl() const override;

  uint64_t seed_ = c10::default_rng_seed_val;
  uint64_t offset_ = 0;
};

// One per device, made at first use; lives as long as the process.
const at::Generator& default_generator(int device);

// The same seed for every device, also those whose generator does not exist yet.
void seed_all(uint64_t seed);

}  // namespace tpj::runtime
