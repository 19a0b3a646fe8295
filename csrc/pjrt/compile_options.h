// How to compile one program, and its protobuf (CompileOptionsProto), written by hand: a dozen fields need no protobuf
// library.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "pjrt/named_value.h"

namespace tpj::pjrt {

struct CompileOptions {
  int num_replicas = 1;    // copies of the program that may talk to each other
  int num_partitions = 1;  // pieces that one program is cut into; more than 1 needs spmd
  bool spmd = false;       // cut by the sharding annotations in the program
  bool shardy = false;     // annotations are sdy.* (else mhlo.sharding)

  // One executable for every device, chosen at each execution. Only for one replica, one partition and no device
  // assignment: elsewhere the program is bound to its devices. See is_portable().
  bool portable = true;

  // Compiler flags by name, for this compile only. An unknown name is an error of the plugin. The kind matters:
  // a bool flag wants a bool. Lists are refused.
  Options env_overrides;

  // Global device ids (Client::device_id), [replica][partition] flattened; empty leaves the choice to the plugin.
  std::vector<int64_t> device_assignment;

  int num_devices() const { return num_replicas * num_partitions; }
  bool is_portable() const { return portable && num_replicas == 1 && num_partitions == 1 && device_assignment.empty(); }

  // Refuses what plugins abort on or answer obscurely: Error(kValue).
  void validate() const;

  // CompileOptionsProto; calls validate(). Equal options give equal bytes.
  std::string serialize() const;
};

}  // namespace tpj::pjrt
