#include "pjrt/buffer.h"

#include <array>
#include <cstdlib>
#include <cstring>
#include <memory>

namespace tpj::pjrt {
namespace {

// Stands in for the null pointer of an empty array. Aligned like any host memory a plugin may want to alias.
alignas(64) constexpr char kNoBytes[64] = {};

std::span<const int64_t> dims_of(const ClientState& state, PJRT_Buffer* raw) {
  TPJ_PJRT_ARGS(PJRT_Buffer_Dimensions, args);
  args.buffer = raw;
  TPJ_PJRT_CALL(*state.api, PJRT_Buffer_Dimensions, args);
  return {args.dims, args.num_dims};
}

// The dense row-major layout, spelled in the form that all plugins take.
struct RowMajor {
  explicit RowMajor(size_t rank) {
    if (rank > small.size()) large.resize(rank);
    int64_t* order = rank > small.size() ? large.data() : small.data();
    for (size_t i = 0; i < rank; ++i) order[i] = static_cast<int64_t>(rank - 1 - i);
    layout.struct_size = PJRT_Buffer_MemoryLayout_STRUCT_SIZE;
    layout.type = PJRT_Buffer_MemoryLayout_Type_Tiled;
    layout.tiled.struct_size = PJRT_Buffer_MemoryLayout_Tiled_STRUCT_SIZE;
    layout.tiled.minor_to_major = order;
    layout.tiled.minor_to_major_size = rank;
  }
  RowMajor(const RowMajor&) = delete;

  PJRT_Buffer_MemoryLayout layout{};
  std::array<int64_t, 8> small{};
  std::vector<int64_t> large;
};

Buffer upload(const char* where, const ClientState& state, const void* data, DType dtype, std::span<const int64_t> dims,
              int device, PJRT_HostBufferSemantics semantics, Event* done) {
  const int64_t bytes = byte_size(where, dtype, dims);
  TPJ_CHECK(data != nullptr || bytes == 0, "[", where, "] null data for ", show(dtype, dims));
  TPJ_PJRT_ARGS(PJRT_Client_BufferFromHostBuffer, args);
  args.client = state.client;
  args.data = data != nullptr ? data : kNoBytes;
  args.type = to_pjrt(dtype);
  args.dims = dims.data();
  args.num_dims = dims.size();
  args.host_buffer_semantics = semantics;
  args.device = state.device(where, device);
  TPJ_PJRT_CALL(*state.api, PJRT_Client_BufferFromHostBuffer, args);
  Buffer buffer(state, args.buffer);
  *done = Event(state, args.done_with_host_buffer);
  return buffer;
}

}  // namespace

void Buffer::check_alive(const char* where) const {
  TPJ_CHECK(raw_ != nullptr, "[", where, "] the buffer is empty: it was moved from, released or never made");
  TPJ_CHECK(!is_deleted(), "[", where, "] the buffer was deleted, or donated to a program");
}

DType Buffer::dtype() const {
  check_alive("Buffer::dtype");
  TPJ_PJRT_ARGS(PJRT_Buffer_ElementType, args);
  args.buffer = raw_;
  TPJ_PJRT_CALL(*state_->api, PJRT_Buffer_ElementType, args);
  return from_pjrt(args.type);
}

std::vector<int64_t> Buffer::dims() const {
  check_alive("Buffer::dims");
  const auto dims = dims_of(*state_, raw_);
  return {dims.begin(), dims.end()};
}

int64_t Buffer::nbytes() const {
  const DType type = dtype();
  return byte_size("Buffer::nbytes", type, dims_of(*state_, raw_));
}

int Buffer::device() const {
  check_alive("Buffer::device");
  TPJ_PJRT_ARGS(PJRT_Buffer_Device, args);
  args.buffer = raw_;
  TPJ_PJRT_CALL(*state_->api, PJRT_Buffer_Device, args);
  for (size_t i = 0; i < state_->devices.size(); ++i)
    if (state_->devices[i] == args.device) return static_cast<int>(i);
  fail(ErrorKind::kRuntime, "[Buffer::device] the buffer is on a device that this process cannot address");
}

Event Buffer::ready_event() const {
  check_alive("Buffer::ready_event");
  TPJ_PJRT_ARGS(PJRT_Buffer_ReadyEvent, args);
  args.buffer = raw_;
  TPJ_PJRT_CALL(*state_->api, PJRT_Buffer_ReadyEvent, args);
  return Event(*state_, args.event);
}

bool Buffer::is_ready() const { return ready_event().is_ready(); }

void Buffer::await() const { ready_event().await(); }

void Buffer::to_host(void* dst, size_t nbytes) const {
  const DType type = dtype();
  const auto dims = dims_of(*state_, raw_);
  const auto size = static_cast<size_t>(byte_size("Buffer::to_host", type, dims));
  TPJ_CHECK(nbytes == size, "[Buffer::to_host] ", show(type, dims), " has ", size, " bytes, the destination ", nbytes);
  TPJ_CHECK(dst != nullptr || size == 0, "[Buffer::to_host] null destination for ", show(type, dims));
  if (size == 0) return await();  // a null destination would mean a question to the plugin
  if (state_->caps.host_visible_buffers) {
    await();
    if (const void* src = host_pointer()) {
      std::memcpy(dst, src, size);
      return;
    }
  }
  RowMajor row_major(dims.size());
  TPJ_PJRT_ARGS(PJRT_Buffer_ToHostBuffer, args);
  args.src = raw_;
  args.host_layout = &row_major.layout;
  args.dst = dst;
  args.dst_size = nbytes;
  TPJ_PJRT_CALL(*state_->api, PJRT_Buffer_ToHostBuffer, args);
  Event(*state_, args.event).await();
}

const void* Buffer::host_pointer() const {
  check_alive("Buffer::host_pointer");
  if (!state_->caps.host_visible_buffers)
    fail(ErrorKind::kNotImplemented, "[Buffer::host_pointer] buffers of plugin ", state_->api->plugin,
         " are not host memory (capability host_visible_buffers)");
  if (state_->caps.unsafe_pointer) {
    TPJ_PJRT_ARGS(PJRT_Buffer_UnsafePointer, args);
    args.buffer = raw_;
    TPJ_PJRT_CALL(*state_->api, PJRT_Buffer_UnsafePointer, args);
    return reinterpret_cast<const void*>(args.buffer_pointer);
  }
  TPJ_PJRT_ARGS(PJRT_Buffer_OpaqueDeviceMemoryDataPointer, args);
  args.buffer = raw_;
  TPJ_PJRT_CALL(*state_->api, PJRT_Buffer_OpaqueDeviceMemoryDataPointer, args);
  return args.device_memory_ptr;
}

Buffer Buffer::copy_to_device(int device) const {
  check_alive("Buffer::copy_to_device");
  PJRT_Device* target = state_->device("Buffer::copy_to_device", device);
  if (state_->caps.copy_to_device) {
    TPJ_PJRT_ARGS(PJRT_Buffer_CopyToDevice, args);
    args.buffer = raw_;
    args.dst_device = target;
    TPJ_PJRT_CALL(*state_->api, PJRT_Buffer_CopyToDevice, args);
    return Buffer(*state_, args.dst_buffer);
  }
  const TensorType t = type();
  std::vector<char> bytes(static_cast<size_t>(byte_size("Buffer::copy_to_device", t.dtype, t.dims)));
  to_host(bytes.data(), bytes.size());
  return from_host(*state_, bytes.data(), t.dtype, t.dims, device);
}

bool Buffer::is_deleted() const {
  if (raw_ == nullptr) return true;
  TPJ_PJRT_ARGS(PJRT_Buffer_IsDeleted, args);
  args.buffer = raw_;
  TPJ_PJRT_CALL(*state_->api, PJRT_Buffer_IsDeleted, args);
  return args.is_deleted;
}

void Buffer::delete_now() {
  if (raw_ == nullptr) return;
  TPJ_PJRT_ARGS(PJRT_Buffer_Delete, args);
  args.buffer = raw_;
  TPJ_PJRT_CALL(*state_->api, PJRT_Buffer_Delete, args);
}

Buffer from_host(const ClientState& state, const void* data, DType dtype, std::span<const int64_t> dims, int device) {
  Event done;
  return upload("Client::from_host", state, data, dtype, dims, device,
                PJRT_HostBufferSemantics_kImmutableOnlyDuringCall, &done);
}

Buffer from_host_zero_copy(const ClientState& state, const void* data, DType dtype, std::span<const int64_t> dims,
                           int device, std::function<void()> on_done) {
  static constexpr const char* kWhere = "Client::from_host_zero_copy";
  TPJ_CHECK(on_done != nullptr, "[", kWhere, "] no on_done callback given");
  Event done;
  if (!state.caps.zero_copy) {
    Buffer copied = from_host(state, data, dtype, dims, device);
    done.on_ready([f = std::move(on_done)](std::exception_ptr) { f(); });
    return copied;
  }
  Buffer buffer = upload(kWhere, state, data, dtype, dims, device, PJRT_HostBufferSemantics_kImmutableZeroCopy, &done);
  done.on_ready([f = std::move(on_done)](std::exception_ptr) { f(); });
  return buffer;
}

Buffer uninitialized(const ClientState& state, DType dtype, std::span<const int64_t> dims, int device) {
  static constexpr const char* kWhere = "Client::uninitialized";
  const int64_t bytes = byte_size(kWhere, dtype, dims);
  PJRT_Device* target = state.device(kWhere, device);
  if (!state.caps.uninitialized_buffers) {
    const std::unique_ptr<void, decltype(&std::free)> zeros(
        bytes == 0 ? nullptr : std::calloc(1, static_cast<size_t>(bytes)), &std::free);
    if (zeros == nullptr && bytes != 0)
      fail(ErrorKind::kOutOfMemory, "[", kWhere, "] no host memory for ", bytes, " bytes of zeros for ",
           show(dtype, dims));
    return from_host(state, zeros.get(), dtype, dims, device);
  }
  TPJ_PJRT_ARGS(PJRT_Client_CreateUninitializedBuffer, args);
  args.client = state.client;
  args.shape_dims = dims.data();
  args.shape_num_dims = dims.size();
  args.shape_element_type = to_pjrt(dtype);
  args.device = target;
  TPJ_PJRT_CALL(*state.api, PJRT_Client_CreateUninitializedBuffer, args);
  return Buffer(state, args.buffer);
}

}  // namespace tpj::pjrt
