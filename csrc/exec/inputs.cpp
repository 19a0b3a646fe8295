#include "exec/inputs.h"

#include <ATen/core/Tensor.h>
#include <c10/core/Scalar.h>
#include <c10/core/TensorImpl.h>

#include <array>
#include <cstring>
#include <unordered_map>

#include "exec/views.h"
#include "runtime/device.h"
#include "runtime/scalar_type.h"

namespace tpj::exec {
namespace {

constexpr size_t kFewCells = 8;

struct NumberKey {
  Number bits{};
  uint64_t dtype_device = 0;
  bool operator==(const NumberKey&) const = default;
};

struct NumberHash {
  size_t operator()(const NumberKey& k) const { return mix(mix(mix(0, k.bits[0]), k.bits[1]), k.dtype_device); }
};

// Value -> buffer. Numbers repeat (2.5, 1e-5, 0): an upload costs more than the rest of a call. Emptied when full.
class NumberCache {
 public:
  static NumberCache& get() {
    static NumberCache& c = *new NumberCache;
    return c;
  }

  runtime::BufferRef find_or_upload(const NumberKey& key, DType dtype, int device) {
    {
      const std::lock_guard lock(lock_);
      if (const auto it = table_.find(key); it != table_.end()) return it->second;
    }
    runtime::BufferRef buffer = runtime::upload(key.bits.data(), BufferType::intern(dtype, {}), device);
    std::unordered_map<NumberKey, runtime::BufferRef, NumberHash> old;
    const std::lock_guard lock(lock_);
    if (table_.size() >= kLimit) table_.swap(old);
    table_.emplace(key, buffer);
    return buffer;
  }

 private:
  static constexpr size_t kLimit = 4096;
  runtime::SpinLock lock_;
  std::unordered_map<NumberKey, runtime::BufferRef, NumberHash> table_;
};

template <typename T>
void put(Number& number, T value) {
  static_assert(sizeof(T) <= sizeof number);
  std::memcpy(number.data(), &value, sizeof value);
}

void put(Number& number, const c10::Scalar& s, DType dtype) {
  switch (dtype) {
    case DType::Bool:
      return put(number, s.to<bool>());
    case DType::U8:
      return put(number, s.to<uint8_t>());
    case DType::U16:
      return put(number, s.to<uint16_t>());
    case DType::U32:
      return put(number, s.to<uint32_t>());
    case DType::U64:
      return put(number, s.to<uint64_t>());
    case DType::I8:
      return put(number, s.to<int8_t>());
    case DType::I16:
      return put(number, s.to<int16_t>());
    case DType::I32:
      return put(number, s.to<int32_t>());
    case DType::I64:
      return put(number, s.to<int64_t>());
    case DType::F32:
      return put(number, static_cast<float>(s.to<double>()));
    case DType::F64:
      return put(number, s.to<double>());
    case DType::C64: {
      const auto z = s.to<c10::complex<double>>();
      return put(number, c10::complex<float>(static_cast<float>(z.real()), static_cast<float>(z.imag())));
    }
    case DType::C128:
      return put(number, s.to<c10::complex<double>>());
    default:
      TPJ_ASSERT(false, "numbers are not passed as ", info(dtype).name);
  }
}

}  // namespace

int Inputs::add_cell(runtime::Cell* cell) {
  const auto append = [&] {
    cells.push_back(cell);
    types.push_back(cell->type());
    if (device != cell->device()) [[unlikely]] {
      TORCH_CHECK(device < 0, "Expected all tensors to be on the same device, but found at least two devices, ",
                  runtime::config().device_name, ":", device, " and ", runtime::config().device_name, ":",
                  cell->device(), "!");
      device = cell->device();
    }
    return static_cast<int>(cells.size()) - 1;
  };
  if (cells.size() <= kFewCells) {
    for (size_t i = 0; i < cells.size(); ++i)
      if (cells[i] == cell) return static_cast<int>(i);
    return append();
  }
  // Many: a table at most half full.
  if (lookup_.size() < 4 * cells.size()) {
    lookup_.assign(8 * cells.size(), {nullptr, -1});
    for (size_t i = 0; i < cells.size(); ++i) {
      size_t at = mix(1, reinterpret_cast<uintptr_t>(cells[i])) % lookup_.size();
      while (lookup_[at].first) at = (at + 1) % lookup_.size();
      lookup_[at] = {cells[i], static_cast<int>(i)};
    }
  }
  size_t at = mix(1, reinterpret_cast<uintptr_t>(cell)) % lookup_.size();
  while (lookup_[at].first) {
    if (lookup_[at].first == cell) return lookup_[at].second;
    at = (at + 1) % lookup_.size();
  }
  const int index = append();
  lookup_[at] = {cell, index};
  return index;
}

Offset Inputs::offset_of(const c10::TensorImpl& t, const BufferType* type) {
  const int64_t offset = t.storage_offset();
  if (type == nullptr || t.numel() == 0) return {offset};
  const auto bytes = static_cast<int64_t>(type->nbytes), item = static_cast<int64_t>(t.dtype().itemsize());
  if (t.numel() * item >= bytes || bytes % item != 0) [[likely]]
    return {offset};
  const bool same = size_of(type->dtype) == static_cast<size_t>(item) &&
                    is_complex(type->dtype) == c10::isComplexType(t.dtype().toScalarType());
  return split_offset(t.sizes(), t.strides(), offset, same ? c10::IntArrayRef(type->dims) : c10::IntArrayRef(),
                      bytes / item);
}

int Inputs::add_tensor(const c10::TensorImpl& t, bool may_move) {
  const int index = add_cell(runtime::Cell::of(t));
  const BufferType* type = types[static_cast<size_t>(index)];
  const auto sizes = t.sizes();
  const auto strides = t.strides();
  // Tag 1 for a tensor; rank, dtype and flags share its word.
  key.word(uint64_t{1} | static_cast<uint64_t>(sizes.size()) << 8 |
           static_cast<uint64_t>(t.dtype().toScalarType()) << 24 | static_cast<uint64_t>(t.is_wrapped_number()) << 32 |
           static_cast<uint64_t>(t.is_conj()) << 33 | static_cast<uint64_t>(t.is_neg()) << 34 |
           static_cast<uint64_t>(index) << 40);
  key.word(type);
  key.word(static_cast<uint64_t>(cells[static_cast<size_t>(index)]->nbytes()));
  const Offset offset = may_move ? offset_of(t, type) : Offset{t.storage_offset()};
  // No offset is negative: blocks have -1, and other moving views -2 and less.
  key.word(offset.unit == 0 ? offset.fixed : offset.block ? -1 : -2 - offset.fixed);
  for (int64_t s : sizes) key.word(s);
  for (int64_t s : strides) key.word(s);
  return index;
}

// Python's numbers arrive as float64 or int64 tensors and are read in place.
c10::Scalar read_scalar(const at::Tensor& t) {
  switch (t.scalar_type()) {
    case c10::ScalarType::Double:
      return *static_cast<const double*>(t.const_data_ptr());
    case c10::ScalarType::Long:
      return *static_cast<const int64_t*>(t.const_data_ptr());
    default:
      return t.item();
  }
}

Number number_of(const c10::IValue& value, DType dtype) {
  Number number{};
  if (value.isDouble() && dtype == DType::F32) {  // the usual case
    put(number, static_cast<float>(value.toDouble()));
  } else {
    put(number, value.isTensor() ? read_scalar(value.toTensor()) : value.toScalar(), dtype);
  }
  return number;
}

runtime::BufferRef number_buffer(const Number& number, DType dtype, int device) {
  return NumberCache::get().find_or_upload({number, static_cast<uint64_t>(dtype) | static_cast<uint64_t>(device) << 8},
                                           dtype, device);
}

}  // namespace tpj::exec
