#include "pjrt/plugin.h"

#include <filesystem>
#include <fstream>
#include <thread>

#include "support.h"

namespace tpj::pjrt {
namespace {

using test::expect_error;
using test::fake;
class PluginTest : public test::WithPlugin {};

// A file in the test's temporary folder with these bytes.
std::string file_with(const std::string& name, const std::string& bytes) {
  const std::string path = ::testing::TempDir() + name;
  std::ofstream(path, std::ios::binary) << bytes;
  return path;
}

std::string bytes_of(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

TEST(PluginErrors, AMissingFileIsNamed) {
  expect_error(ErrorKind::kRuntime, {"no such file", "/nowhere/plugin.so"}, [] { Plugin::load("/nowhere/plugin.so"); });
}

TEST(PluginErrors, AnEmptyPathIsRefused) {
  expect_error(ErrorKind::kRuntime, {"no such file"}, [] { Plugin::load(""); });
}

TEST(PluginErrors, AFolderIsNotAPlugin) {
  expect_error(ErrorKind::kRuntime, {"not a file"}, [] { Plugin::load(::testing::TempDir()); });
}

TEST(PluginErrors, ATextFileIsNotASharedLibrary) {
  const std::string path = file_with("text.so", "this is no library\n");
  expect_error(ErrorKind::kRuntime, {path, "cannot be loaded as a shared library"}, [&] { Plugin::load(path); });
}

TEST(PluginErrors, AnEmptyFileIsNotASharedLibrary) {
  const std::string path = file_with("empty.so", "");
  expect_error(ErrorKind::kRuntime, {"cannot be loaded as a shared library"}, [&] { Plugin::load(path); });
}

TEST(PluginErrors, ATruncatedLibraryDoesNotCrash) {
  const std::string whole = bytes_of(fake("old_api"));
  ASSERT_FALSE(whole.empty());
  for (const size_t percent : {1, 10, 30, 50, 70, 80}) {
    const std::string path =
        file_with("cut" + std::to_string(percent) + ".so", whole.substr(0, whole.size() * percent / 100));
    expect_error(ErrorKind::kRuntime, {path}, [&] { Plugin::load(path); });
  }
}

TEST(PluginErrors, ALibraryWithoutTheEntryPointIsNotAPlugin) {
  expect_error(ErrorKind::kRuntime, {"not a PJRT plugin", "GetPjrtApi"}, [] { Plugin::load(fake("no_entry")); });
}

TEST(PluginErrors, ANullFunctionTableIsRefused) {
  expect_error(ErrorKind::kRuntime, {"returned null"}, [] { Plugin::load(fake("null_api")); });
}

TEST(PluginErrors, AnOldApiIsRefusedWithBothVersions) {
  expect_error(ErrorKind::kRuntime, {"0.40", "too old", "0.57"}, [] { Plugin::load(fake("old_api")); });
}

TEST(PluginErrors, AnotherMajorVersionIsRefused) {
  expect_error(ErrorKind::kRuntime, {"major version"}, [] { Plugin::load(fake("other_major")); });
}

TEST(PluginErrors, AMissingEssentialFunctionIsNamed) {
  expect_error(ErrorKind::kRuntime, {"PJRT_Client_Compile"}, [] { Plugin::load(fake("lacks_compile")); });
}

TEST(PluginErrors, AFailedInitialisationSaysWhyEachTime) {
  for (int i = 0; i < 2; ++i)
    expect_error(ErrorKind::kRuntime,
                 {"PJRT_Plugin_Initialize", "fake_init_fails", "UNAVAILABLE", "the fake chip is asleep"},
                 [] { Plugin::load(fake("init_fails")); });
}

TEST(PluginErrors, AFailedClientSaysWhy) {
  Plugin& plugin = Plugin::load(fake("client_fails"));
  expect_error(ErrorKind::kRuntime,
               {"PJRT_Client_Create", "fake_client_fails", "FAILED_PRECONDITION", "no fake chip found"},
               [&] { Client::create(plugin, {}); });
}

TEST_F(PluginTest, IsLoadedOncePerRealPath) {
  const std::string link = ::testing::TempDir() + "link_to_plugin.so";
  std::filesystem::remove(link);
  std::filesystem::create_symlink(std::filesystem::canonical(test::plugin_path()), link);
  EXPECT_EQ(&Plugin::load(test::plugin_path()), &Plugin::load(link));
}

TEST_F(PluginTest, IsTheSameFromManyThreads) {
  std::vector<Plugin*> seen(8, nullptr);
  std::vector<std::thread> threads;
  for (Plugin*& p : seen) threads.emplace_back([&p] { p = &Plugin::load(test::plugin_path()); });
  for (std::thread& t : threads) t.join();
  for (const Plugin* p : seen) EXPECT_EQ(p, seen[0]);
}

TEST_F(PluginTest, TellsItsVersionAndExtensions) {
  const Plugin& plugin = Plugin::load(test::plugin_path());
  EXPECT_GE(plugin.api_minor(), kOldestApiMinor);
  EXPECT_TRUE(plugin.attributes().contains("stablehlo_current_version"));
  for (const PJRT_Extension_Type type : plugin.extensions()) EXPECT_NE(plugin.find_extension(type), nullptr);
  EXPECT_EQ(plugin.find_extension(PJRT_Extension_Type_Example), nullptr);
}

}  // namespace
}  // namespace tpj::pjrt
