#include "pjrt/compiled.h"

namespace tpj::pjrt {
namespace {

// False where the plugin has the function and says that it cannot do it.
template <typename Call>
bool answers(Call&& call) {
  try {
    call();
    return true;
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kNotImplemented) throw;
    return false;
  }
}

}  // namespace

Compiled::Compiled(const Api& api, const Caps& caps) : api_(&api), caps_(caps) {}

Compiled::~Compiled() { TPJ_PJRT_DESTROY(*api_, PJRT_Executable_Destroy, executable, executable_); }

void Compiled::adopt(PJRT_Executable* executable) {
  executable_ = executable;
  TPJ_PJRT_ARGS(PJRT_Executable_NumOutputs, outputs);
  outputs.executable = executable_;
  TPJ_PJRT_CALL(*api_, PJRT_Executable_NumOutputs, outputs);
  num_outputs_ = outputs.num_outputs;
}

std::vector<TensorType> Compiled::output_types() const {
  TPJ_PJRT_ARGS(PJRT_Executable_OutputElementTypes, types);
  types.executable = executable_;
  TPJ_PJRT_CALL(*api_, PJRT_Executable_OutputElementTypes, types);
  TPJ_PJRT_ARGS(PJRT_Executable_OutputDimensions, shapes);
  shapes.executable = executable_;
  TPJ_PJRT_CALL(*api_, PJRT_Executable_OutputDimensions, shapes);
  TPJ_CHECK(types.num_output_types == num_outputs_ && shapes.num_outputs == num_outputs_,
            "[Executable::output_types] plugin ", api_->plugin, " gives ", types.num_output_types, " types and ",
            shapes.num_outputs, " shapes for ", num_outputs_, " outputs");
  std::vector<TensorType> result;
  const int64_t* dim = shapes.dims;
  for (size_t i = 0; i < num_outputs_; ++i) {
    result.push_back({from_pjrt(types.output_types[i]), {dim, dim + shapes.dim_sizes[i]}});
    dim += shapes.dim_sizes[i];
  }
  return result;
}

std::string Compiled::serialize() const {
  if (!caps_.serialize)
    fail(ErrorKind::kNotImplemented, "[Executable::serialize] plugin ", api_->plugin, " cannot serialize programs");
  TPJ_PJRT_ARGS(PJRT_Executable_Serialize, args);
  args.executable = executable_;
  TPJ_PJRT_CALL(*api_, PJRT_Executable_Serialize, args);
  struct Backing {
    PJRT_Executable_Serialize_Args& args;
    ~Backing() {
      if (args.serialized_executable_deleter != nullptr) args.serialized_executable_deleter(args.serialized_executable);
    }
  } backing{args};
  return std::string(args.serialized_bytes, args.serialized_bytes_size);
}

std::string Compiled::fingerprint() const {
  if (!caps_.fingerprint) return "";
  TPJ_PJRT_ARGS(PJRT_Executable_Fingerprint, args);
  args.executable = executable_;
  if (!answers([&] { TPJ_PJRT_CALL(*api_, PJRT_Executable_Fingerprint, args); })) return "";
  return std::string(args.executable_fingerprint, args.executable_fingerprint_size);
}

std::optional<CompiledMemory> Compiled::compiled_memory() const {
  if (!caps_.compiled_memory) return std::nullopt;
  TPJ_PJRT_ARGS(PJRT_Executable_GetCompiledMemoryStats, args);
  args.executable = executable_;
  if (!answers([&] { TPJ_PJRT_CALL(*api_, PJRT_Executable_GetCompiledMemoryStats, args); })) return std::nullopt;
  return CompiledMemory{.generated_code = args.generated_code_size_in_bytes,
                        .argument = args.argument_size_in_bytes,
                        .output = args.output_size_in_bytes,
                        .alias = args.alias_size_in_bytes,
                        .temp = args.temp_size_in_bytes};
}

std::optional<std::map<std::string, double>> Compiled::cost_analysis() const {
  if (!caps_.cost_analysis) return std::nullopt;
  TPJ_PJRT_ARGS(PJRT_Executable_GetCostAnalysis, args);
  args.executable = executable_;
  if (!answers([&] { TPJ_PJRT_CALL(*api_, PJRT_Executable_GetCostAnalysis, args); })) return std::nullopt;
  std::map<std::string, double> result;
  for (const auto& [name, value] : from_named_values(args.properties, args.num_properties)) {
    if (const auto* d = std::get_if<double>(&value)) result[name] = *d;
    if (const auto* i = std::get_if<int64_t>(&value)) result[name] = static_cast<double>(*i);
  }
  return result;
}

}  // namespace tpj::pjrt
