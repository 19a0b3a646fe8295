// Runs a row by name on the plugin in TORCH_PJRT_TEST_PLUGIN, or only prints its program. Tensors hold their elements
// as doubles (complex ones as re, im, re, im, ...), whatever their dtype:
//
//   EXPECT_EQ(run("mul.Tensor", {f32({2}, {1, 2}), f32({2}, {3, 4})}, {{DType::F32, {2}}})[0].values, (Numbers{3, 8}));
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lower/common.h"
#include "lower/promote.h"
#include "lower/row.h"
#include "pjrt/client.h"

namespace tpj::lower::test {

using Numbers = std::vector<double>;

inline constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
inline constexpr double kInf = std::numeric_limits<double>::infinity();

struct Tensor {
  Type type;
  Numbers values;
};

// An argument of a call, in the order of the schema.
struct In {
  Arg arg;
  Tensor tensor;          // kTensor; of a number: its value, 0-d
  std::vector<In> items;  // kTensors, kNumbers
};

inline In tensor(DType dtype, const Dims& dims, const Numbers& values) {
  In in{{}, {{dtype, dims}, values}, {}};
  in.arg.kind = Arg::Kind::kTensor;
  in.arg.type = in.tensor.type;
  return in;
}
inline In f32(const Dims& dims, const Numbers& values) { return tensor(DType::F32, dims, values); }
inline In i64(const Dims& dims, const Numbers& values) { return tensor(DType::I64, dims, values); }
inline In boolean(const Dims& dims, const Numbers& values) { return tensor(DType::Bool, dims, values); }
inline In none() { return {}; }
// A number that is an input of the program.
inline In number(double value, NumberKind kind = NumberKind::kFloat) {
  In in{{}, {{kind == NumberKind::kFloat ? DType::F64 : DType::I64, {}}, {value}}, {}};
  in.arg.kind = Arg::Kind::kNumber;
  in.arg.number_kind = kind;
  return in;
}
// A number whose value is part of the key, because the row lists it as special or static.
inline In known(double value, NumberKind kind = NumberKind::kFloat) {
  In in = number(value, kind);
  in.arg.known = value;
  if (kind != NumberKind::kFloat) in.arg.known_int = static_cast<int64_t>(value);
  return in;
}
inline In integer(int64_t value, Arg::Kind kind = Arg::Kind::kInt) {
  In in;
  in.arg.kind = kind;
  in.arg.integer = value;
  return in;
}
inline In flag(bool value) { return integer(value, Arg::Kind::kBool); }
inline In dtype(DType value) { return integer(static_cast<int64_t>(value), Arg::Kind::kDType); }
inline In ints(const Dims& values) {
  In in;
  in.arg.kind = Arg::Kind::kInts;
  in.arg.ints = values;
  return in;
}
inline In text(const std::string& value) {
  In in;
  in.arg.kind = Arg::Kind::kString;
  in.arg.text = value;
  return in;
}
inline In list(Arg::Kind kind, const std::vector<In>& items) {
  In in;
  in.arg.kind = kind;
  in.items = items;
  return in;
}
inline In tensors(const std::vector<In>& items) { return list(Arg::Kind::kTensors, items); }
inline In numbers(const std::vector<In>& items) { return list(Arg::Kind::kNumbers, items); }

// A lowered row: the program's text and what it reads.
struct Program {
  std::string text;
  std::vector<Tensor> inputs;
  std::vector<Type> outputs;  // of the values that are there; narrow floats leave as float32
};

namespace detail {

inline bool is_narrow(DType t) { return is_float(t) && size_of(t) < 4; }
inline DType host_type(DType t) { return is_narrow(t) ? DType::F32 : t; }

struct Reader {
  Builder& b;
  std::vector<std::pair<Value, Tensor>> inputs;

  // The parameter for `t`; narrow floats cross the border as float32.
  Value read(const Tensor& t) {
    const Value p = b.parameter({host_type(t.type.dtype), t.type.dims});
    inputs.push_back({p, {p.type, t.values}});
    return b.convert(p, t.type.dtype);
  }
  Arg arg(const In& in) {
    Arg a = in.arg;
    const auto value = std::make_shared<Value>();
    const auto once = [this, value, t = in.tensor] { return *value ? *value : *value = read(t); };
    if (a.kind == Arg::Kind::kTensor) a.read = once;
    if (a.kind == Arg::Kind::kNumber) a.number = [this, once](DType dtype) { return cast(b, once(), dtype); };
    for (const In& item : in.items) a.items.push_back(arg(item));
    return a;
  }
};

inline void append_tensor_types(const std::vector<In>& args, std::vector<Type>& types) {
  for (const In& in : args) {
    if (in.arg.kind == Arg::Kind::kTensor) types.push_back(in.arg.type);
    append_tensor_types(in.items, types);
  }
}

template <typename F>
void with_type(DType t, F f) {
  switch (t) {
    case DType::Bool:
    case DType::U8:
      return f(uint8_t{});
    case DType::U16:
      return f(uint16_t{});
    case DType::U32:
      return f(uint32_t{});
    case DType::U64:
      return f(uint64_t{});
    case DType::I8:
      return f(int8_t{});
    case DType::I16:
      return f(int16_t{});
    case DType::I32:
      return f(int32_t{});
    case DType::I64:
      return f(int64_t{});
    case DType::F32:
    case DType::C64:
      return f(float{});
    case DType::F64:
    case DType::C128:
      return f(double{});
    default:
      TPJ_ASSERT(false, "no host type for ", info(t).name);
  }
}

inline std::string bytes_of(const Tensor& t) {
  std::string bytes;
  with_type(t.type.dtype, [&](auto zero) {
    for (double v : t.values) {
      const auto x = static_cast<decltype(zero)>(v);
      bytes.append(reinterpret_cast<const char*>(&x), sizeof x);
    }
  });
  return bytes;
}

inline Numbers numbers_of(DType dtype, const std::string& bytes) {
  Numbers values;
  with_type(dtype, [&](auto x) {
    for (size_t i = 0; i < bytes.size(); i += sizeof x) {
      std::memcpy(&x, bytes.data() + i, sizeof x);
      values.push_back(static_cast<double>(x));
    }
  });
  return values;
}

inline const std::shared_ptr<pjrt::Client>& client() {
  static auto& made = *new std::shared_ptr<pjrt::Client>(
      pjrt::Client::create(pjrt::Plugin::load(std::getenv("TORCH_PJRT_TEST_PLUGIN")),
                           {{"cpu_device_count", int64_t{1}}, {"asynchronous", false}}));
  return made;
}

}  // namespace detail

// `results` as PyTorch's meta kernel would say. `rng` is the Philox state that the call gets, if it asks for one.
inline Program lower(std::string_view row, const std::vector<In>& args, const std::vector<Type>& results,
                     std::pair<uint64_t, uint64_t> rng = {1, 0}) {
  const Row* found = find_row(row);
  TPJ_ASSERT(found, "no row is named ", row);
  Builder b;
  detail::Reader reader{b, {}};
  std::vector<Arg> call_args;
  for (const In& in : args) call_args.push_back(reader.arg(in));
  std::vector<Type> tensor_types;
  detail::append_tensor_types(args, tensor_types);
  Call call(b, row, call_args, results, result_type(tensor_types));
  call.set_rng([&](uint64_t) {
    return reader.read({{DType::U64, {2}}, {static_cast<double>(rng.first), static_cast<double>(rng.second)}});
  });
  const Values values = found->lower(call);
  Program program;
  Values outputs, parameters;
  for (size_t i = 0; i < values.size(); ++i) {
    if (!values[i]) continue;
    const DType wanted = i < results.size() ? results[i].dtype : values[i].dtype();
    if (i < results.size()) {
      EXPECT_EQ(values[i].dims(), results[i].dims) << row << " result " << i;
    }
    const Value v = cast(b, values[i], wanted);
    outputs.push_back(b.convert(v, detail::host_type(wanted)));
    program.outputs.push_back(outputs.back().type);
  }
  for (const auto& [parameter, value] : reader.inputs) {
    parameters.push_back(parameter);
    program.inputs.push_back(value);
  }
  program.text = b.print(parameters, outputs);
  return program;
}

// The results, then the new values of mutated arguments; those left alone are not in the list.
inline std::vector<Tensor> run(std::string_view row, const std::vector<In>& args, const std::vector<Type>& results,
                               std::pair<uint64_t, uint64_t> rng = {1, 0}) {
  const Program program = lower(row, args, results, rng);
  pjrt::CompileOptions options;
  options.env_overrides = {{"xla_cpu_enable_fast_min_max", false}};
  const auto executable = detail::client()->compile(program.text, options);
  std::vector<pjrt::Buffer> buffers;
  for (const Tensor& t : program.inputs)
    buffers.push_back(detail::client()->from_host(detail::bytes_of(t).data(), t.type.dtype, t.type.dims, 0));
  std::vector<const pjrt::Buffer*> pointers;
  for (const pjrt::Buffer& b : buffers) pointers.push_back(&b);
  const std::vector<pjrt::Buffer> outs = executable->run(pointers);
  std::vector<Tensor> tensors;
  for (size_t i = 0; i < outs.size(); ++i) {
    std::string bytes(static_cast<size_t>(outs[i].nbytes()), '\0');
    outs[i].to_host(bytes.data(), bytes.size());
    tensors.push_back({program.outputs[i], detail::numbers_of(program.outputs[i].dtype, bytes)});
  }
  return tensors;
}

// Equal up to `tolerance`, relative beyond 1; NaN equals NaN.
inline void expect_near(const Numbers& got, const Numbers& want, double tolerance = 1e-6) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i) {
    if (want[i] != want[i])
      EXPECT_TRUE(got[i] != got[i]) << "element " << i << ": " << got[i] << " for NaN";
    else if (want[i] == got[i])
      continue;
    else
      EXPECT_NEAR(got[i], want[i], tolerance * std::max(1.0, std::abs(want[i]))) << "element " << i;
  }
}

// Tests that run programs derive from this.
class WithPlugin : public ::testing::Test {
 protected:
  void SetUp() override {
    if (std::getenv("TORCH_PJRT_TEST_PLUGIN") == nullptr)
      GTEST_SKIP() << "TORCH_PJRT_TEST_PLUGIN does not name a plugin";
  }
};

}  // namespace tpj::lower::test
