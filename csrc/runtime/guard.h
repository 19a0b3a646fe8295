// Registers the device with PyTorch: name, guard, hooks, allocators, generator. Once per process.
#pragma once

namespace tpj::runtime {

// config().device_name must be set.
void register_device();

}  // namespace tpj::runtime
