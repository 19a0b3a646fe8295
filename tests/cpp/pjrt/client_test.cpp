#include "pjrt/client.h"

#include <cmath>

#include "support.h"

namespace tpj::pjrt {
namespace {

using test::expect_error;
class ClientTest : public test::WithPlugin {};

TEST_F(ClientTest, DescribesItsDevices) {
  const auto c = test::client(4);
  EXPECT_EQ(c->device_count(), 4);
  EXPECT_EQ(c->global_device_count(), 4);
  EXPECT_EQ(c->process_index(), 0);
  EXPECT_FALSE(c->platform_name().empty());
  EXPECT_FALSE(c->platform_version().empty());
  for (int i = 0; i < 4; ++i) {
    EXPECT_FALSE(c->device_kind(i).empty());
    EXPECT_NO_THROW(c->device_attributes(i));
    EXPECT_NO_THROW(c->memory_stats(i));
    for (int j = 0; j < i; ++j) EXPECT_NE(c->device_id(i), c->device_id(j));
  }
}

TEST_F(ClientTest, RefusesADeviceIndexThatIsNotThere) {
  const auto c = test::client(1);
  const int64_t dims[] = {1};
  const float x = 0;
  for (const int device : {-1, 1, 1 << 30}) {
    expect_error(ErrorKind::kIndex, {"device index", "1 device(s)"}, [&] { c->device_kind(device); });
    expect_error(ErrorKind::kIndex, {"Client::from_host"}, [&] { c->from_host(&x, DType::F32, dims, device); });
    expect_error(ErrorKind::kIndex, {"Client::uninitialized"}, [&] { c->uninitialized(DType::F32, dims, device); });
    expect_error(ErrorKind::kIndex, {"copy_to_device"}, [&] { test::floats(*c, {1}).copy_to_device(device); });
  }
}

TEST_F(ClientTest, NamesAnOptionThatThePluginDoesNotKnow) {
  Plugin& plugin = Plugin::load(test::plugin_path());
  try {
    Client::create(plugin, {{"nosuch_option", int64_t{1}}});
    GTEST_SKIP()
        << "this plugin does not check its options: an unknown name is ignored, a wrong kind aborts the process";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("nosuch_option"), std::string::npos) << error.what();
  }
  EXPECT_THROW(Client::create(plugin, {{"cpu_device_count", "four"}}), Error);
}

TEST_F(ClientTest, RefusesAnUnknownCapability) {
  expect_error(ErrorKind::kValue, {"flying"}, [] {
    Client::create(Plugin::load(test::plugin_path()), {{"cpu_device_count", int64_t{1}}}, {{"flying", "1"}});
  });
}

TEST_F(ClientTest, IsKeptAliveByItsExecutables) {
  auto c = Client::create(Plugin::load(test::plugin_path()), {{"cpu_device_count", int64_t{1}}});
  const auto e = c->compile(test::add_program(2), {});
  c.reset();
  const Buffer a = test::floats(e->client(), {1, 2});
  const Buffer* args[] = {&a, &a};
  EXPECT_EQ(test::read(e->run(args)[0]), (std::vector<float>{2, 4}));
}

TEST_F(ClientTest, GivesThePositionOfASyntaxError) {
  const auto c = test::client();
  expect_error(ErrorKind::kRuntime, {"PJRT_Client_Compile", "unregistered operation"}, [&] {
    c->compile(
        test::module("%a: tensor<2xf32>", "tensor<2xf32>",
                     "%0 = \"stablehlo.frob\"(%a) : (tensor<2xf32>) -> tensor<2xf32>\nreturn %0 : tensor<2xf32>"),
        {});
  });
  expect_error(ErrorKind::kRuntime, {"PJRT_Client_Compile"}, [&] { c->compile("this is not MLIR", {}); });
  expect_error(ErrorKind::kRuntime, {"main"}, [&] { c->compile("module @m { }", {}); });
  expect_error(ErrorKind::kValue, {"empty"}, [&] { c->compile("", {}); });
}

TEST_F(ClientTest, NamesACompilerFlagThatDoesNotExist) {
  CompileOptions options;
  options.env_overrides = {{"nosuch_flag", true}};
  expect_error(ErrorKind::kRuntime, {"nosuch_flag"}, [&] { test::client()->compile(test::add_program(2), options); });
}

TEST_F(ClientTest, PassesCompilerFlagsPerCompile) {
  const auto c = test::client();
  const std::string program = test::module("%a: tensor<2xf32>, %b: tensor<2xf32>", "tensor<2xf32>",
                                           "%0 = stablehlo.maximum %a, %b : tensor<2xf32>\nreturn %0 : tensor<2xf32>");
  CompileOptions options;
  options.env_overrides = {{"xla_cpu_enable_fast_min_max", false}, {"xla_backend_optimization_level", int64_t{1}}};
  const auto e = c->compile(program, options);
  const Buffer a = test::floats(*c, {1, NAN});
  const Buffer b = test::floats(*c, {NAN, 1});
  const Buffer* args[] = {&a, &b};
  for (const float v : test::read(e->run(args)[0])) EXPECT_TRUE(std::isnan(v));
}

TEST_F(ClientTest, RefusesMoreReplicasThanDevices) {
  CompileOptions options;
  options.num_replicas = 8;
  expect_error(ErrorKind::kValue, {"8 replicas", "4 device(s)"},
               [&] { test::client(4)->compile(test::add_program(2), options); });
}

TEST_F(ClientTest, RefusesADeviceIdThatDoesNotExist) {
  CompileOptions options;
  options.device_assignment = {4711};
  expect_error(ErrorKind::kValue, {"4711"}, [&] { test::client()->compile(test::add_program(2), options); });
}

TEST_F(ClientTest, RefusesZeroReplicasWhichAbortInside) {
  CompileOptions options;
  options.num_replicas = 0;
  expect_error(ErrorKind::kValue, {"num_replicas"}, [&] { test::client()->compile(test::add_program(2), options); });
}

TEST_F(ClientTest, AnswersDamagedBytesWithAnError) {
  const auto c = test::client();
  EXPECT_THROW(c->deserialize("", {}), Error);
  EXPECT_THROW(c->deserialize("garbage", {}), Error);
  EXPECT_THROW(c->deserialize(std::string(1000, '\xff'), {}), Error);
  const std::string whole = c->compile(test::add_program(2), {})->serialize();
  for (const size_t eighth : {1, 2, 4, 7})
    EXPECT_THROW(c->deserialize(whole.substr(0, whole.size() * eighth / 8), {}), Error);
}

TEST_F(ClientTest, LoadsWhatItSerialized) {
  const auto c = test::client();
  const auto original = c->compile(test::add_program(3), {});
  const auto loaded = c->deserialize(original->serialize(), {}, {{{DType::F32, {3}}, {DType::F32, {3}}}});
  EXPECT_EQ(loaded->num_outputs(), 1u);
  EXPECT_EQ(loaded->output_types(), original->output_types());
  const Buffer a = test::floats(*c, {1, 2, 3});
  const Buffer* args[] = {&a, &a};
  EXPECT_EQ(test::read(loaded->run(args)[0]), (std::vector<float>{2, 4, 6}));
}

}  // namespace
}  // namespace tpj::pjrt
