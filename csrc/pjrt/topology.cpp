#include "pjrt/topology.h"

#include "pjrt/describe.h"
#include "pjrt/program_check.h"

namespace tpj::pjrt {

Topology::Topology(Plugin& plugin, const CapOverrides& overrides)
    : api_(&plugin.api()), caps_(detect_caps(plugin, overrides)) {}

Topology::~Topology() { TPJ_PJRT_DESTROY(*api_, PJRT_TopologyDescription_Destroy, topology, topology_); }

std::unique_ptr<Topology> Topology::create(Plugin& plugin, const std::string& name, const Options& options,
                                           const CapOverrides& overrides) {
  // Some plugins take no name for the oldest chip they know.
  if (name.empty()) fail(ErrorKind::kValue, "[Topology::create] a topology needs a name");
  std::unique_ptr<Topology> topology(new Topology(plugin, overrides));
  const std::vector<PJRT_NamedValue> values = to_named_values(options);
  TPJ_PJRT_ARGS(PJRT_TopologyDescription_Create, args);
  args.topology_name = name.data();
  args.topology_name_size = name.size();
  args.create_options = values.data();
  args.num_options = values.size();
  TPJ_PJRT_CALL(*topology->api_, PJRT_TopologyDescription_Create, args);
  topology->topology_ = args.topology;
  return topology;
}

std::string Topology::platform_name() const {
  TPJ_PJRT_ARGS(PJRT_TopologyDescription_PlatformName, args);
  args.topology = topology_;
  TPJ_PJRT_CALL(*api_, PJRT_TopologyDescription_PlatformName, args);
  return std::string(args.platform_name, args.platform_name_size);
}

std::vector<Topology::Device> Topology::devices() const {
  TPJ_PJRT_ARGS(PJRT_TopologyDescription_GetDeviceDescriptions, args);
  args.topology = topology_;
  TPJ_PJRT_CALL(*api_, PJRT_TopologyDescription_GetDeviceDescriptions, args);
  std::vector<Device> out;
  for (size_t i = 0; i < args.num_descriptions; ++i) {
    PJRT_DeviceDescription* device = args.descriptions[i];
    out.push_back({id_of(*api_, device), kind_of(*api_, device), attributes_of(*api_, device)});
  }
  return out;
}

std::unique_ptr<Compiled> Topology::compile(std::string_view stablehlo_text, const CompileOptions& requested) const {
  CompileOptions options = requested;
  options.portable = options.portable && caps_.portable_executables;
  const std::string encoded = options.serialize();
  validate_program(stablehlo_text, options);
  const PJRT_Program program = to_program(stablehlo_text);
  TPJ_PJRT_ARGS(PJRT_Compile, args);
  args.topology = topology_;
  args.program = &program;
  args.compile_options = encoded.data();
  args.compile_options_size = encoded.size();
  TPJ_PJRT_CALL(*api_, PJRT_Compile, args);
  std::unique_ptr<Compiled> compiled(new Compiled(*api_, caps_));
  compiled->adopt(args.executable);
  return compiled;
}

}  // namespace tpj::pjrt
