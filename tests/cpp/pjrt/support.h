// What the tests of csrc/pjrt share: the plugin under test (path in TORCH_PJRT_TEST_PLUGIN), clients of it, small
// programs.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "pjrt/client.h"

namespace tpj::pjrt::test {

inline const char* plugin_path() { return std::getenv("TORCH_PJRT_TEST_PLUGIN"); }

// Made once per process and number of devices, and kept.
inline std::shared_ptr<Client> client(int devices = 1) {
  static auto& clients = *new std::map<int, std::shared_ptr<Client>>;
  auto& slot = clients[devices];
  if (slot == nullptr)
    slot =
        Client::create(Plugin::load(plugin_path()), {{"cpu_device_count", int64_t{devices}}, {"asynchronous", false}});
  return slot;
}

inline std::string fake(const std::string& variant) {
  return std::string(TPJ_FAKE_PLUGIN_DIR) + "/fake_" + variant + ".so";
}

// Tests that need a real plugin derive from this; the name says why they were skipped.
class WithPlugin : public ::testing::Test {
 protected:
  void SetUp() override {
    if (plugin_path() == nullptr) GTEST_SKIP() << "TORCH_PJRT_TEST_PLUGIN does not name a plugin";
  }
};

// Runs f, which must throw tpj::Error of this kind, with all of these texts in its message.
template <typename F>
void expect_error(ErrorKind kind, const std::vector<std::string>& texts, F f) {
  try {
    f();
  } catch (const Error& error) {
    EXPECT_EQ(static_cast<int>(error.kind()), static_cast<int>(kind)) << error.what();
    for (const std::string& text : texts)
      EXPECT_NE(std::string(error.what()).find(text), std::string::npos) << "no '" << text << "' in: " << error.what();
    return;
  }
  FAIL() << "no error was thrown";
}

inline std::string module(const std::string& arguments, const std::string& results, const std::string& body) {
  return "module @m { func.func @main(" + arguments + ") -> (" + results + ") {\n" + body + "\n} }";
}

// a + b over float32 vectors of n elements
inline std::string add_program(int n) {
  const std::string t = "tensor<" + std::to_string(n) + "xf32>";
  return module("%a: " + t + ", %b: " + t, t, "%0 = stablehlo.add %a, %b : " + t + "\nreturn %0 : " + t);
}

inline Buffer floats(const Client& c, const std::vector<float>& values, int device = 0) {
  const int64_t dims[] = {static_cast<int64_t>(values.size())};
  return c.from_host(values.data(), DType::F32, dims, device);
}

inline std::vector<float> read(const Buffer& b) {
  std::vector<float> out(static_cast<size_t>(b.nbytes()) / sizeof(float));
  b.to_host(out.data(), out.size() * sizeof(float));
  return out;
}

inline constexpr int64_t kTerabyte = int64_t{1} << 40;

}  // namespace tpj::pjrt::test
