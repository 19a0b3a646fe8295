// Values with names, as PJRT passes them both ways: options of a client, overrides of a compile, attributes of plugins
// and devices.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "xla/pjrt/c/pjrt_c_api.h"

namespace tpj::pjrt {

using Option = std::variant<std::string, int64_t, double, bool, std::vector<int64_t>>;
using Options = std::vector<std::pair<std::string, Option>>;
using Attributes = std::map<std::string, Option>;

// Views into `options`, which must stay alive and unchanged. A double becomes a 32-bit float: PJRT has no other.
std::vector<PJRT_NamedValue> to_named_values(const Options& options);

// Copies. Values of a kind that this header does not know are left out.
Attributes from_named_values(const PJRT_NamedValue* values, size_t n);

// "0.5", "true", "a string", "[1, 20, 0]"
std::string show(const Option& value);

}  // namespace tpj::pjrt
