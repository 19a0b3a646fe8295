#include "pjrt/executable.h"

#include <atomic>
#include <thread>

#include "support.h"

namespace tpj::pjrt {
namespace {

using test::expect_error;
class ExecutableTest : public test::WithPlugin {
 protected:
  using Types = std::vector<TensorType>;
  const Types two_vectors_{{DType::F32, {3}}, {DType::F32, {3}}};
};

// %a is given to the output, when the caller allows it.
std::string donating_program(int n) {
  const std::string t = "tensor<" + std::to_string(n) + "xf32>";
  return test::module("%a: " + t + " {tf.aliasing_output = 0 : i32}, %b: " + t, t,
                      "%0 = stablehlo.add %a, %b : " + t + "\nreturn %0 : " + t);
}

std::string all_reduce_program(const std::string& groups, const std::string& more = "") {
  return test::module("%a: tensor<2xf32>", "tensor<2xf32>",
                      "%0 = \"stablehlo.all_reduce\"(%a) ({ ^bb0(%x: tensor<f32>, %y: tensor<f32>):\n"
                      "  %s = stablehlo.add %x, %y : tensor<f32>\n  stablehlo.return %s : tensor<f32> })\n"
                      "  {replica_groups = dense<" +
                          groups + "> : tensor<1x4xi64>" + more +
                          "} : (tensor<2xf32>) -> tensor<2xf32>\nreturn %0 : tensor<2xf32>");
}

TEST_F(ExecutableTest, DescribesItself) {
  const auto e = test::client()->compile(
      test::module("%a: tensor<2x3xf32>", "tensor<2x3xi1>, tensor<i64>",
                   "%0 = stablehlo.is_finite %a : (tensor<2x3xf32>) -> tensor<2x3xi1>\n"
                   "%1 = stablehlo.constant dense<5> : tensor<i64>\nreturn %0, %1 : tensor<2x3xi1>, tensor<i64>"),
      {});
  EXPECT_EQ(e->num_outputs(), 2u);
  EXPECT_EQ(e->output_types(), (Types{{DType::Bool, {2, 3}}, {DType::I64, {}}}));
  EXPECT_TRUE(e->is_portable());
  EXPECT_NO_THROW(e->cost_analysis());
  EXPECT_FALSE(e->parameter_types().has_value());
  const auto memory = e->compiled_memory();
  ASSERT_TRUE(memory.has_value());
  EXPECT_EQ(memory->argument, 24);
}

TEST_F(ExecutableTest, EqualProgramsHaveEqualFingerprints) {
  const auto c = test::client();
  const std::string a = c->compile(test::add_program(3), {})->fingerprint();
  EXPECT_EQ(a, c->compile(test::add_program(3), {})->fingerprint());
  if (a.empty()) GTEST_SKIP() << "this plugin gives no fingerprints";
  EXPECT_NE(a, c->compile(test::add_program(4), {})->fingerprint());
}

TEST_F(ExecutableTest, RefusesTheWrongNumberOfArguments) {
  const auto c = test::client();
  const Buffer a = test::floats(*c, {1, 2, 3});
  const Buffer* one[] = {&a};
  expect_error(ErrorKind::kValue, {"takes 2 arguments, got 1"},
               [&] { c->compile(test::add_program(3), {}, two_vectors_)->run(one); });
  EXPECT_THROW(c->compile(test::add_program(3), {})->run(one), Error);  // the plugin counts too
  EXPECT_THROW(c->compile(test::add_program(3), {})->run({}), Error);
}

TEST_F(ExecutableTest, RefusesWrongShapesAndElementTypesThatThePluginWouldReinterpret) {
  const auto c = test::client();
  const auto e = c->compile(test::add_program(3), {}, two_vectors_);
  const Buffer good = test::floats(*c, {1, 2, 3});
  const int32_t ints[] = {1, 2, 3};
  const int64_t flat[] = {3}, column[] = {3, 1};
  const Buffer wrong_type = c->from_host(ints, DType::I32, flat, 0);
  const Buffer wrong_shape = c->from_host(ints, DType::F32, column, 0);
  const Buffer* type_args[] = {&good, &wrong_type};
  const Buffer* shape_args[] = {&wrong_shape, &good};
  expect_error(ErrorKind::kValue, {"argument 1 is i32[3]", "takes f32[3]"}, [&] { e->run(type_args); });
  expect_error(ErrorKind::kValue, {"argument 0 is f32[3,1]", "takes f32[3]"}, [&] { e->run(shape_args); });
}

TEST_F(ExecutableTest, RefusesBuffersThatAreGone) {
  const auto c = test::client();
  const auto e = c->compile(test::add_program(3), {});
  const Buffer good = test::floats(*c, {1, 2, 3});
  const Buffer empty;
  Buffer deleted = test::floats(*c, {1, 2, 3});
  deleted.delete_now();
  const Buffer* with_empty[] = {&empty, &good};
  const Buffer* with_null[] = {&good, nullptr};
  const Buffer* with_deleted[] = {&good, &deleted};
  expect_error(ErrorKind::kValue, {"argument 0 is an empty buffer"}, [&] { e->run(with_empty); });
  expect_error(ErrorKind::kValue, {"argument 1 is an empty buffer"}, [&] { e->run(with_null); });
  expect_error(ErrorKind::kValue, {"argument 1 was deleted"}, [&] { e->run(with_deleted); });
}

TEST_F(ExecutableTest, TheHotPathSurvivesADeletedBuffer) {
  const auto c = test::client();
  const auto e = c->compile(test::add_program(3), {});
  Buffer deleted = test::floats(*c, {1, 2, 3});
  deleted.delete_now();
  PJRT_Buffer* args[] = {deleted.raw(), deleted.raw()};
  PJRT_Buffer* out = nullptr;
  expect_error(ErrorKind::kRuntime, {"PJRT_LoadedExecutable_Execute", "deleted or donated"},
               [&] { e->enqueue(args, 2, &out, 0); });
}

TEST_F(ExecutableTest, RunsOnEveryDeviceWhenPortable) {
  const auto c = test::client(4);
  const auto compiled = c->compile(test::add_program(3), {});
  const auto loaded = c->deserialize(compiled->serialize(), {});
  for (const Executable* e : {compiled.get(), loaded.get()})
    for (int device = 3; device >= 0; --device) {
      const Buffer a = test::floats(*c, {1, 2, float(device)}, device);
      const Buffer* args[] = {&a, &a};
      const auto out = e->run(args, device);
      EXPECT_EQ(out[0].device(), device);
      EXPECT_EQ(test::read(out[0]), (std::vector<float>{2, 4, 2 * float(device)}));
    }
}

TEST_F(ExecutableTest, RunsWhereItIsBoundWhenAssigned) {
  const auto c = test::client(4);
  CompileOptions options;
  options.device_assignment = {c->device_id(2)};
  const auto compiled = c->compile(test::add_program(2), options);
  const auto loaded = c->deserialize(compiled->serialize(), options);
  const Buffer a = test::floats(*c, {1, 2}, 2);
  const Buffer elsewhere = test::floats(*c, {1, 2}, 1);
  const Buffer* args[] = {&a, &a};
  const Buffer* mixed[] = {&a, &elsewhere};
  for (const Executable* e : {compiled.get(), loaded.get()}) {
    EXPECT_FALSE(e->is_portable());
    EXPECT_EQ(e->devices(), std::vector<int>{2});
    EXPECT_EQ(e->run(args, 2)[0].device(), 2);
    expect_error(ErrorKind::kValue, {"bound to device 2, not 0"}, [&] { e->run(args, 0); });
    expect_error(ErrorKind::kValue, {"argument 1 is on device 1", "device 2"}, [&] { e->run(mixed, 2); });
    expect_error(ErrorKind::kIndex, {"device index 9"}, [&] { e->run(args, 9); });
  }
}

TEST_F(ExecutableTest, WithoutPortableExecutablesOneIsBoundToTheFirstDevice) {
  const auto c = Client::create(Plugin::load(test::plugin_path()), {{"cpu_device_count", int64_t{2}}},
                                {{"portable_executables", "false"}});
  const auto e = c->compile(test::add_program(2), {});
  EXPECT_FALSE(e->is_portable());
  EXPECT_EQ(e->devices(), std::vector<int>{0});
  const Buffer a = test::floats(*c, {1, 2});
  const Buffer* args[] = {&a, &a};
  EXPECT_EQ(test::read(e->run(args)[0]), (std::vector<float>{2, 4}));
}

TEST_F(ExecutableTest, GivesCompletionEventsToPluginsThatWantThem) {
  const auto c = Client::create(Plugin::load(test::plugin_path()), {{"cpu_device_count", int64_t{1}}},
                                {{"completion_events", "true"}});
  const auto e = c->compile(test::add_program(2), {});
  const Buffer a = test::floats(*c, {1, 2});
  const Buffer* args[] = {&a, &a};
  EXPECT_EQ(test::read(e->run(args)[0]), (std::vector<float>{2, 4}));
}

TEST_F(ExecutableTest, DonatesAnAliasedInput) {
  const auto c = test::client();
  const auto e = c->compile(donating_program(3), {});
  ASSERT_TRUE(e->compiled_memory().has_value());
  EXPECT_EQ(e->compiled_memory()->alias, 12);
  const Buffer a = test::floats(*c, {1, 2, 3});
  const Buffer b = test::floats(*c, {1, 1, 1});
  const Buffer* args[] = {&a, &b};
  EXPECT_EQ(test::read(e->run(args)[0]), (std::vector<float>{2, 3, 4}));
  EXPECT_TRUE(a.is_deleted());
  EXPECT_FALSE(b.is_deleted());
  expect_error(ErrorKind::kValue, {"argument 0 was deleted, or donated"}, [&] { e->run(args); });
}

TEST_F(ExecutableTest, KeepsAnInputThatMayNotBeDonated) {
  const auto c = test::client();
  const auto e = c->compile(donating_program(3), {});
  const Buffer a = test::floats(*c, {1, 2, 3});
  const Buffer b = test::floats(*c, {1, 1, 1});
  const Buffer* args[] = {&a, &b};
  const int64_t keep[] = {0};
  EXPECT_EQ(test::read(e->run(args, 0, keep)[0]), (std::vector<float>{2, 3, 4}));
  EXPECT_EQ(test::read(a), (std::vector<float>{1, 2, 3}));
  const int64_t bad[] = {2}, negative[] = {-1};
  expect_error(ErrorKind::kValue, {"non-donatable index 2"}, [&] { e->run(args, 0, bad); });
  expect_error(ErrorKind::kValue, {"non-donatable index -1"}, [&] { e->run(args, 0, negative); });
}

TEST_F(ExecutableTest, RefusesABufferThatIsDonatedAndUsedAgainInOneCall) {
  const auto c = test::client();
  const auto e = c->compile(donating_program(3), {});
  const Buffer a = test::floats(*c, {1, 2, 3});
  const Buffer* args[] = {&a, &a};
  EXPECT_THROW(e->run(args), Error);
}

TEST_F(ExecutableTest, ATerabyteOfResultsIsOutOfMemory) {
  const auto c = test::client();
  const auto e = c->compile(
      test::module("%a: tensor<f32>", "tensor<274877906944xf32>",
                   "%0 = stablehlo.broadcast_in_dim %a, dims = [] : (tensor<f32>) -> tensor<274877906944xf32>\n"
                   "return %0 : tensor<274877906944xf32>"),
      {});
  const float x = 1;
  const Buffer a = c->from_host(&x, DType::F32, {}, 0);
  const Buffer* args[] = {&a};
  expect_error(ErrorKind::kOutOfMemory, {"RESOURCE_EXHAUSTED"}, [&] { e->run(args)[0].await(); });
}

// Sorting needs the whole array in memory; only one element of it is returned.
TEST_F(ExecutableTest, ATerabyteOfTemporariesIsOutOfMemoryAtTheLatestWhenWaiting) {
  const auto c = test::client();
  const std::string big = "tensor<274877906944xf32>";
  const auto e = c->compile(
      test::module("%a: tensor<f32>", "tensor<1xf32>",
                   "%i = stablehlo.iota dim = 0 : " + big +
                       "\n%0 = stablehlo.broadcast_in_dim %a, dims = [] : (tensor<f32>) -> " + big +
                       "\n%1 = stablehlo.subtract %0, %i : " + big +
                       "\n%2 = \"stablehlo.sort\"(%1) <{dimension = 0 : i64}> ({\n"
                       "^bb0(%x: tensor<f32>, %y: tensor<f32>):\n"
                       "  %lt = stablehlo.compare LT, %x, %y, TOTALORDER : (tensor<f32>, tensor<f32>) -> tensor<i1>\n"
                       "  stablehlo.return %lt : tensor<i1>\n}) : (" +
                       big + ") -> " + big + "\n%3 = stablehlo.slice %2 [0:1] : (" + big +
                       ") -> tensor<1xf32>\nreturn %3 : tensor<1xf32>"),
      {});
  const float x = 1;
  const Buffer a = c->from_host(&x, DType::F32, {}, 0);
  const Buffer* args[] = {&a};
  float y = 0;
  expect_error(ErrorKind::kOutOfMemory, {"RESOURCE_EXHAUSTED"}, [&] { e->run(args)[0].await(); });
  expect_error(ErrorKind::kOutOfMemory, {"RESOURCE_EXHAUSTED"}, [&] { e->run(args)[0].to_host(&y, sizeof y); });
  // The client is not harmed, and a program that is fed a failed result fails the same way.
  EXPECT_EQ(test::read(test::floats(*c, {1, 2})), (std::vector<float>{1, 2}));
}

TEST_F(ExecutableTest, AFailedResultFailsWhatIsComputedFromIt) {
  const auto c = test::client();
  const std::string big = "tensor<274877906944xf32>";
  const auto fails = c->compile(
      test::module("%a: tensor<2xf32>", "tensor<2xf32>, " + big,
                   "%0 = stablehlo.broadcast_in_dim %a, dims = [0] : (tensor<2xf32>) -> tensor<2x137438953472xf32>\n"
                   "%1 = stablehlo.reshape %0 : (tensor<2x137438953472xf32>) -> " +
                       big + "\nreturn %a, %1 : tensor<2xf32>, " + big),
      {});
  const Buffer a = test::floats(*c, {1, 2});
  const Buffer* args[] = {&a};
  std::vector<Buffer> out;
  try {
    out = fails->run(args);
  } catch (const Error& error) {
    EXPECT_EQ(static_cast<int>(error.kind()), static_cast<int>(ErrorKind::kOutOfMemory)) << error.what();
    return;  // refused at once: nothing to feed on
  }
  const auto add = c->compile(test::add_program(2), {});
  const Buffer* failed[] = {&out[0], &a};
  EXPECT_THROW(add->run(failed)[0].await(), Error);
}

TEST_F(ExecutableTest, ManyThreadsRunOneExecutable) {
  const auto c = test::client();
  const auto e = c->compile(test::add_program(3), {});
  std::atomic<int> wrong = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      const Buffer a = test::floats(*c, {float(t), 1, 2});
      const Buffer* args[] = {&a, &a};
      for (int i = 0; i < 300; ++i)
        if (test::read(e->run(args)[0]) != std::vector<float>{2 * float(t), 2, 4}) ++wrong;
    });
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(wrong, 0);
}

TEST_F(ExecutableTest, ReplicasTalkToEachOther) {
  const auto c = test::client(4);
  CompileOptions options;
  options.num_replicas = 4;
  const auto e = c->compile(all_reduce_program("[[0,1,2,3]]"), options);
  EXPECT_FALSE(e->is_portable());
  ASSERT_EQ(e->devices().size(), 4u);
  std::vector<Buffer> in;
  std::vector<PJRT_Buffer*> raw(4), out(4);
  std::vector<PJRT_Buffer* const*> args;
  std::vector<PJRT_Buffer**> outs;
  for (size_t i = 0; i < 4; ++i) in.push_back(test::floats(*c, {float(i), 1}, e->devices()[i]));
  for (size_t i = 0; i < 4; ++i) {
    raw[i] = in[i].raw();
    args.push_back(&raw[i]);
    outs.push_back(&out[i]);
  }
  e->enqueue_all(args.data(), 1, outs.data());
  for (size_t i = 0; i < 4; ++i) {
    const Buffer b(c->state(), out[i]);
    EXPECT_EQ(b.device(), e->devices()[i]);
    EXPECT_EQ(test::read(b), (std::vector<float>{6, 4}));
  }
  const Buffer* one[] = {&in[0]};
  expect_error(ErrorKind::kValue, {"4 devices at once", "enqueue_all"}, [&] { e->run(one); });
}

TEST_F(ExecutableTest, GroupsThatNameAbsentReplicasAreRefused) {
  expect_error(ErrorKind::kValue, {"all_reduce", "participant 1"},
               [] { test::client(4)->compile(all_reduce_program("[[0,1,2,3]]"), {}); });
}

}  // namespace
}  // namespace tpj::pjrt
