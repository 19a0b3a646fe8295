// What clients and topologies ask of a device, and how both hand a program over.
#pragma once

#include <string>
#include <string_view>

#include "pjrt/api.h"
#include "pjrt/named_value.h"

namespace tpj::pjrt {

inline int id_of(const Api& api, PJRT_DeviceDescription* device) {
  TPJ_PJRT_ARGS(PJRT_DeviceDescription_Id, args);
  args.device_description = device;
  TPJ_PJRT_CALL(api, PJRT_DeviceDescription_Id, args);
  return args.id;
}

inline std::string kind_of(const Api& api, PJRT_DeviceDescription* device) {
  TPJ_PJRT_ARGS(PJRT_DeviceDescription_Kind, args);
  args.device_description = device;
  TPJ_PJRT_CALL(api, PJRT_DeviceDescription_Kind, args);
  return std::string(args.device_kind, args.device_kind_size);
}

inline Attributes attributes_of(const Api& api, PJRT_DeviceDescription* device) {
  TPJ_PJRT_ARGS(PJRT_DeviceDescription_Attributes, args);
  args.device_description = device;
  TPJ_PJRT_CALL(api, PJRT_DeviceDescription_Attributes, args);
  return from_named_values(args.attributes, args.num_attributes);
}

// A view of `stablehlo_text`.
inline PJRT_Program to_program(std::string_view stablehlo_text) {
  static constexpr std::string_view kFormat = "mlir";
  PJRT_Program program{};
  program.struct_size = PJRT_Program_STRUCT_SIZE;
  program.code = const_cast<char*>(stablehlo_text.data());  // only read: the C struct is also used for output
  program.code_size = stablehlo_text.size();
  program.format = kFormat.data();
  program.format_size = kFormat.size();
  return program;
}

}  // namespace tpj::pjrt
