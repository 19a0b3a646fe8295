// A PJRT shared library in this process.
//
// Lifetime: a plugin is loaded once per real path and never unloaded (it keeps threads and static registries), so a
// Plugin& is good until the process ends. Threads: load() may be called from any; everything else is read-only.
#pragma once

#include <string>
#include <vector>

#include "pjrt/api.h"
#include "pjrt/named_value.h"

namespace tpj::pjrt {

class Plugin {
 public:
  // Loads with local symbols (several plugins may each carry their own copy of the same compiler), checks the version
  // and initialises. Errors, all of kind kRuntime and naming the path: no such file; not a loadable shared library
  // (with the loader's reason, for example a missing dependency); no GetPjrtApi symbol; API too old or of another
  // major version; initialisation failed (may be tried again).
  static Plugin& load(const std::string& path);

  const Api& api() const { return api_; }
  // File name without folder, "lib" prefix and suffix: what error messages call the plugin.
  const std::string& name() const { return api_.plugin; }
  // Real path, symbolic links resolved.
  const std::string& path() const { return path_; }
  int api_minor() const { return api_.c->pjrt_api_version.minor_version; }
  // Such as xla_version, stablehlo_current_version ([1, 20, 0]), stablehlo_minimum_version.
  const Attributes& attributes() const { return attributes_; }
  // Types of the extensions it carries, in its own order.
  const std::vector<PJRT_Extension_Type>& extensions() const { return extensions_; }
  // Null when the plugin does not carry it. The caller casts to the extension's struct and checks its struct_size.
  const PJRT_Extension_Base* find_extension(PJRT_Extension_Type type) const;

  Plugin(const Plugin&) = delete;
  Plugin& operator=(const Plugin&) = delete;

 private:
  explicit Plugin(std::string real_path);

  std::string path_;
  Api api_;
  Attributes attributes_;
  std::vector<PJRT_Extension_Type> extensions_;
};

// The oldest API this code can read: version 0.57 moved the fields of the function table.
inline constexpr int kOldestApiMinor = 57;

}  // namespace tpj::pjrt
