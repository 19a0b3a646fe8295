#include "compile/store.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <random>

#include "base/errors.h"

namespace tpj::compile {
namespace {

namespace fs = std::filesystem;
constexpr int64_t kPlenty = int64_t{1} << 30;

class StoreTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "tpj-store-XXXXXX").string();
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    base_ = name;
    folder_ = base_ / "programs";
  }
  void TearDown() override {
    ::chmod(folder_.c_str(), 0700);
    fs::remove_all(base_);
  }
  std::vector<fs::path> entries() const {
    std::vector<fs::path> out;
    for (const auto& file : fs::directory_iterator(folder_))
      if (file.path().extension() == ".program") out.push_back(file.path());
    return out;
  }
  static std::string read(const fs::path& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  static void write(const fs::path& path, const std::string& bytes) {
    std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
  }
  // What a key's value must be.
  static std::string value_of(const std::string& key) {
    std::string out;
    for (int i = 0; i < 200; ++i) out += key;
    return out;
  }

  fs::path base_, folder_;
};

TEST_F(StoreTest, GivesBackWhatItWasGiven) {
  Store store(folder_, kPlenty);
  EXPECT_FALSE(store.get("a"));
  store.put("a", "first");
  store.put("b", std::string("with \0 in it", 12));
  EXPECT_EQ(store.get("a"), "first");
  EXPECT_EQ(store.get("b"), std::string("with \0 in it", 12));
  store.put("a", "second");
  EXPECT_EQ(Store(folder_, kPlenty).get("a"), "second");
  store.remove("a");
  EXPECT_FALSE(store.get("a"));
  EXPECT_EQ(store.problem(), nullptr);
}

TEST_F(StoreTest, IsForItsOwnerAlone) {
  Store store(folder_, kPlenty);
  store.put("a", "value");
  struct stat info{};
  ASSERT_EQ(::stat(folder_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0700U);
  ASSERT_EQ(::stat(entries().at(0).c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600U);
}

TEST_F(StoreTest, RefusesAFolderThatOthersCanWrite) {
  fs::create_directory(folder_);
  ::chmod(folder_.c_str(), 0777);
  Store store(folder_, kPlenty);
  EXPECT_NE(store.problem(), nullptr);
  store.put("a", "value");
  EXPECT_TRUE(entries().empty());
  EXPECT_FALSE(store.get("a"));
}

TEST_F(StoreTest, ANameThatIsNoFolderIsAProblemAndNoError) {
  write(folder_, "a file");
  Store store(folder_, kPlenty);
  EXPECT_NE(store.problem(), nullptr);
  EXPECT_FALSE(store.get("a"));
}

TEST_F(StoreTest, NoDamageIsEverRead) {
  Store store(folder_, kPlenty);
  store.put("key", value_of("key"));
  const fs::path path = entries().at(0);
  const std::string good = read(path);
  std::mt19937 random(1);
  for (int i = 0; i < 500; ++i) {
    std::string bad = good;
    switch (i % 3) {
      case 0:
        bad[random() % bad.size()] ^= static_cast<char>(1 + random() % 255);
        break;
      case 1:
        bad.resize(random() % bad.size());
        break;
      default:
        bad += static_cast<char>(random());
        break;
    }
    // Four bytes of the header mean nothing yet.
    const bool same =
        i % 3 == 0 && std::equal(bad.begin(), bad.begin() + 28, good.begin()) && bad.substr(32) == good.substr(32);
    write(path, bad);
    const auto found = store.get("key");
    if (same) {
      EXPECT_EQ(found, value_of("key"));
    } else {
      EXPECT_FALSE(found) << i;
      EXPECT_FALSE(fs::exists(path)) << "a damaged entry is removed";
    }
  }
  store.put("key", value_of("key"));
  EXPECT_EQ(store.get("key"), value_of("key"));
}

TEST_F(StoreTest, AnEntryOfAnotherKeyIsAMiss) {
  Store store(folder_, kPlenty);
  store.put("key", "value");
  const fs::path path = entries().at(0);
  store.put("another", "other value");
  for (const fs::path& p : entries())
    if (p != path) fs::rename(p, path);
  EXPECT_FALSE(store.get("key"));
}

TEST_F(StoreTest, TheLeastRecentlyUsedGoFirst) {
  Store store(folder_, 50'000);
  for (int i = 0; i < 40; ++i) {
    store.put(str("key ", i), std::string(5'000, 'x'));
    for (const fs::path& p : entries()) fs::last_write_time(p, fs::last_write_time(p) - std::chrono::seconds(1));
    store.get("key 0");
  }
  int64_t total = 0;
  for (const fs::path& p : entries()) total += static_cast<int64_t>(fs::file_size(p));
  EXPECT_LE(total, 50'000);
  EXPECT_TRUE(store.get("key 0")) << "it was used all the time";
  EXPECT_TRUE(store.get("key 39"));
  EXPECT_FALSE(store.get("key 1"));
}

TEST_F(StoreTest, AFolderThatCannotBeWrittenIsStillRead) {
  Store(folder_, kPlenty).put("a", "value");
  if (::geteuid() == 0) GTEST_SKIP() << "root may write everywhere";
  ::chmod(folder_.c_str(), 0500);
  Store store(folder_, kPlenty);
  store.put("b", "value");
  EXPECT_EQ(store.get("a"), "value");
  EXPECT_FALSE(store.get("b"));
}

// In a child: the limit cannot be lifted again.
TEST_F(StoreTest, AFullDiskLeavesNothingHalf) {
  Store(folder_, kPlenty).put("a", "value");
  const pid_t child = ::fork();
  if (child == 0) {
    ::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{1000, 1000};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    Store store(folder_, kPlenty);
    store.put("b", std::string(100'000, 'x'));
    ::_exit(store.get("a") == "value" && !store.get("b") ? 0 : 1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(entries().size(), 1U);
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()), 1);
}

// Three processes write all the time, and one of them dies at any moment.
TEST_F(StoreTest, NoBadEntryAfterTwoHundredKills) {
  const auto spawn = [&](unsigned seed) {
    const pid_t child = ::fork();
    if (child != 0) return child;
    Store store(folder_, kPlenty);
    std::mt19937 random(seed);
    for (;;) {
      const std::string key = str("key ", random() % 50);
      store.put(key, value_of(key));
      const std::string other = str("key ", random() % 50);
      const auto found = store.get(other);
      if (found && *found != value_of(other)) ::_exit(1);
    }
  };
  std::vector<pid_t> children;
  for (unsigned i = 0; i < 3; ++i) children.push_back(spawn(i));
  std::mt19937 random(7);
  for (unsigned kill = 0; kill < 200; ++kill) {
    ::usleep(static_cast<useconds_t>(random() % 3000));
    pid_t& victim = children[random() % 3];
    ::kill(victim, SIGKILL);
    int status = 0;
    ::waitpid(victim, &status, 0);
    EXPECT_TRUE(WIFSIGNALED(status)) << "a process read a bad entry";
    victim = spawn(100 + kill);
  }
  for (const pid_t child : children) {
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
  }
  Store store(folder_, kPlenty);
  int found = 0;
  for (int i = 0; i < 50; ++i) {
    const std::string key = str("key ", i);
    if (const auto value = store.get(key)) {
      EXPECT_EQ(*value, value_of(key));
      found += 1;
    }
  }
  EXPECT_EQ(found, static_cast<int>(entries().size()));
  EXPECT_GT(found, 40);
}

TEST(Crc32, IsZlibs) {
  EXPECT_EQ(crc32(""), 0U);
  EXPECT_EQ(crc32("123456789"), 0xCBF43926U);
  EXPECT_EQ(crc32("6789", crc32("12345")), 0xCBF43926U);
}

}  // namespace
}  // namespace tpj::compile
