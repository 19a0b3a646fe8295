// Allocators that PyTorch asks for: cells for device storages, 64-byte aligned host memory as pinned memory.
#pragma once

#include <c10/core/Allocator.h>

namespace tpj::runtime {

// Call once, at registration.
void register_allocators();

// Pinned host memory, known by address.
c10::Allocator* pinned_allocator();
bool is_pinned(const void* p);

// Throws torch.OutOfMemoryError when no device of this kind could hold so many bytes.
void check_size(int device, size_t nbytes);

}  // namespace tpj::runtime
