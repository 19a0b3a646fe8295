#include "pjrt/caps.h"

#include <set>

#include "support.h"

namespace tpj::pjrt {
namespace {

using test::expect_error;
class CapsTest : public test::WithPlugin {
 protected:
  Caps detect(const CapOverrides& overrides = {}) { return detect_caps(Plugin::load(test::plugin_path()), overrides); }
};

TEST_F(CapsTest, AreReadFromThePlugin) {
  const Caps caps = detect();
  EXPECT_TRUE(caps.serialize);
  EXPECT_TRUE(caps.uninitialized_buffers);
  EXPECT_TRUE(caps.ffi_extension);
  EXPECT_FALSE(caps.host_visible_buffers);
  EXPECT_EQ(caps.api_minor, Plugin::load(test::plugin_path()).api_minor());
  EXPECT_EQ(caps.stablehlo_version.substr(0, 2), "1.");
}

TEST_F(CapsTest, CanBeOverriddenByName) {
  const Caps caps = detect({{"host_visible_buffers", "true"}, {"serialize", "false"}, {"api_minor", "99"}});
  EXPECT_TRUE(caps.host_visible_buffers);
  EXPECT_FALSE(caps.serialize);
  EXPECT_EQ(caps.api_minor, 99);
}

TEST_F(CapsTest, RefuseWhatMakesNoSense) {
  expect_error(ErrorKind::kValue, {"no capability", "flying"}, [&] { detect({{"flying", "true"}}); });
  expect_error(ErrorKind::kValue, {"donation", "true or false", "maybe"}, [&] { detect({{"donation", "maybe"}}); });
  expect_error(ErrorKind::kValue, {"api_minor", "integer"}, [&] { detect({{"api_minor", "7x"}}); });
  expect_error(ErrorKind::kValue, {"stream_extension", "cannot be switched on"},
               [&] { detect({{"stream_extension", "true"}}); });
}

TEST_F(CapsTest, AreListedWithHelpAndWithoutDoubles) {
  std::set<std::string> names;
  for (const CapInfo& info : list(detect())) {
    EXPECT_FALSE(info.help.empty()) << info.name;
    EXPECT_TRUE(names.insert(info.name).second) << info.name;
  }
  EXPECT_TRUE(names.contains("host_visible_buffers"));
}

// Behind fake_few_slots, the plugin under test has none of its optional functions.
class FewSlots : public test::WithPlugin {
 protected:
  static std::shared_ptr<Client> client() {
    static auto& c = *new std::shared_ptr<Client>(Client::create(
        Plugin::load(test::fake("few_slots")), {{"cpu_device_count", int64_t{2}}, {"asynchronous", false}}));
    return c;
  }
};

TEST_F(FewSlots, AreSeenInTheCapabilities) {
  const Caps& caps = client()->caps();
  EXPECT_FALSE(caps.serialize);
  EXPECT_FALSE(caps.deserialize);
  EXPECT_FALSE(caps.uninitialized_buffers);
  EXPECT_FALSE(caps.copy_to_device);
  EXPECT_FALSE(caps.memory_stats);
  EXPECT_FALSE(caps.layouts_extension);
  EXPECT_EQ(caps.stablehlo_version, "");
}

TEST_F(FewSlots, StillRunAProgram) {
  const auto e = client()->compile(test::add_program(3), {});
  const Buffer a = test::floats(*client(), {1, 2, 3});
  const Buffer* args[] = {&a, &a};
  EXPECT_EQ(test::read(e->run(args)[0]), (std::vector<float>{2, 4, 6}));
}

TEST_F(FewSlots, GiveZerosInsteadOfUninitializedMemory) {
  const int64_t dims[] = {2, 3};
  EXPECT_EQ(test::read(client()->uninitialized(DType::F32, dims, 0)), std::vector<float>(6, 0.0f));
  const int64_t none[] = {0, 3};
  EXPECT_EQ(client()->uninitialized(DType::F32, none, 0).nbytes(), 0);
}

TEST_F(FewSlots, RunOutOfHostMemoryForZerosCleanly) {
  const int64_t dims[] = {int64_t{1} << 50};
  expect_error(ErrorKind::kOutOfMemory, {}, [&] { client()->uninitialized(DType::U8, dims, 0); });
}

TEST_F(FewSlots, CopyBetweenDevicesThroughTheHost) {
  const Buffer there = test::floats(*client(), {1, 2, 3}).copy_to_device(1);
  EXPECT_EQ(there.device(), 1);
  EXPECT_EQ(test::read(there), (std::vector<float>{1, 2, 3}));
}

TEST_F(FewSlots, AnswerOptionalQuestionsWithNothing) {
  const auto e = client()->compile(test::add_program(3), {});
  EXPECT_FALSE(client()->memory_stats(0).has_value());
  EXPECT_FALSE(e->compiled_memory().has_value());
  EXPECT_FALSE(e->cost_analysis().has_value());
  EXPECT_EQ(e->fingerprint(), "");
}

TEST_F(FewSlots, SayThatTheyCannotSerialize) {
  const auto e = client()->compile(test::add_program(3), {});
  expect_error(ErrorKind::kNotImplemented, {"fake_few_slots", "cannot serialize"}, [&] { e->serialize(); });
  expect_error(ErrorKind::kNotImplemented, {"cannot load compiled programs"}, [&] { client()->deserialize("x", {}); });
}

TEST_F(FewSlots, NameTheAbsentFunction) {
  const auto visible = Client::create(Plugin::load(test::fake("few_slots")), {{"cpu_device_count", int64_t{1}}},
                                      {{"host_visible_buffers", "true"}});
  const Buffer a = test::floats(*visible, {1});
  expect_error(ErrorKind::kNotImplemented, {"PJRT_Buffer_OpaqueDeviceMemoryDataPointer", "does not have this function"},
               [&] { a.host_pointer(); });
}

}  // namespace
}  // namespace tpj::pjrt
