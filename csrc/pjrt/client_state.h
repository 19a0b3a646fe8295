// What buffers, events and executables need of the client they came from. Owned by Client; everything that points to it
// must be gone before the client is (the runtime keeps its clients until the process ends). Read-only once made.
#pragma once

#include <vector>

#include "pjrt/api.h"
#include "pjrt/caps.h"

namespace tpj::pjrt {

struct ClientState {
  const PJRT_Api* c;  // first, and the same as api->c: destroying a buffer reads only this
  const Api* api;
  PJRT_Client* client = nullptr;
  Caps caps;
  std::vector<PJRT_Device*> devices;  // addressable, by our index
  std::vector<int> device_ids;        // the plugin's global id of each

  // Throws Error(kIndex), starting with "[where]", for an index outside the list.
  PJRT_Device* device(const char* where, int index) const {
    if (index < 0 || static_cast<size_t>(index) >= devices.size()) [[unlikely]]
      fail(ErrorKind::kIndex, "[", where, "] device index ", index, " out of range: plugin ", api->plugin, " has ",
           devices.size(), " device(s)");
    return devices[static_cast<size_t>(index)];
  }
};

}  // namespace tpj::pjrt
