// Devices that need not be here: what a plugin's compiler can compile for without a client.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "pjrt/compile_options.h"
#include "pjrt/compiled.h"
#include "pjrt/plugin.h"

namespace tpj::pjrt {

class Topology {
 public:
  // `name` and `options` are the plugin's own ("v5e:2x2"). Error(kValue) for an empty name, kNotImplemented where the
  // plugin compiles for its own client only.
  static std::unique_ptr<Topology> create(Plugin& plugin, const std::string& name, const Options& options,
                                          const CapOverrides& overrides = {});
  ~Topology();
  Topology(const Topology&) = delete;
  Topology& operator=(const Topology&) = delete;

  std::string platform_name() const;
  struct Device {
    int id;
    std::string kind;
    Attributes attributes;
  };
  std::vector<Device> devices() const;

  // Errors as of Client::compile, and kOutOfMemory for what does not fit the device.
  std::unique_ptr<Compiled> compile(std::string_view stablehlo_text, const CompileOptions& options) const;

 private:
  Topology(Plugin& plugin, const CapOverrides& overrides);

  const Api* api_;
  Caps caps_;
  PJRT_TopologyDescription* topology_ = nullptr;
};

}  // namespace tpj::pjrt
