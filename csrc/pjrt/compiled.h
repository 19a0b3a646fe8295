// What the compiler made of a program, loaded or not: its results, its needs, its bytes.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "pjrt/caps.h"
#include "pjrt/types.h"

namespace tpj::pjrt {

// Bytes on the device that one execution needs.
struct CompiledMemory {
  int64_t generated_code = 0;
  int64_t argument = 0;
  int64_t output = 0;
  int64_t alias = 0;  // part of `argument` that is reused for outputs
  int64_t temp = 0;
};

class Compiled {
 public:
  ~Compiled();
  Compiled(const Compiled&) = delete;
  Compiled& operator=(const Compiled&) = delete;

  size_t num_outputs() const { return num_outputs_; }
  // Asked of the plugin each time.
  std::vector<TensorType> output_types() const;
  // Bytes for Client::deserialize on the same plugin library and the same kind of machine. kNotImplemented where
  // caps.serialize is false.
  std::string serialize() const;
  // Equal for equal programs, options and plugin; raw bytes. Empty where the plugin has none.
  std::string fingerprint() const;
  std::optional<CompiledMemory> compiled_memory() const;
  // Such as "flops" and "bytes accessed".
  std::optional<std::map<std::string, double>> cost_analysis() const;

 protected:
  friend class Topology;
  Compiled(const Api& api, const Caps& caps);
  // Takes ownership, also when it throws. Once.
  void adopt(PJRT_Executable* executable);

 private:
  const Api* api_;
  Caps caps_;
  size_t num_outputs_ = 0;
  PJRT_Executable* executable_ = nullptr;
};

}  // namespace tpj::pjrt
