#include "pjrt/compile_options.h"

#include "support.h"

namespace tpj::pjrt {
namespace {

using test::expect_error;

std::string hex(const std::string& bytes) {
  std::string out;
  for (const unsigned char c : bytes) {
    static constexpr char kDigits[] = "0123456789abcdef";
    out += kDigits[c >> 4];
    out += kDigits[c & 15];
  }
  return out;
}

const std::string kUnsetDevice = "08ffffffffffffffffff01";  // device_ordinal = -1

TEST(CompileOptions, TheDefaultIsOneReplicaOnePartitionPortable) {
  EXPECT_EQ(hex(CompileOptions{}.serialize()), "1a0f" + kUnsetDevice + "20012801" + "2001");
}

TEST(CompileOptions, PartitionsAreNotPortable) {
  CompileOptions o;
  o.num_partitions = 4;
  o.spmd = true;
  o.shardy = true;
  EXPECT_FALSE(o.is_portable());
  EXPECT_EQ(hex(o.serialize()), "1a14" + kUnsetDevice + "20012804" + "3001" + "980101");
}

TEST(CompileOptions, ADeviceAssignmentListsReplicasPerPartition) {
  CompileOptions o;
  o.num_replicas = 2;
  o.num_partitions = 2;
  o.spmd = true;
  o.device_assignment = {0, 1, 2, 300};  // [replica][partition]
  EXPECT_EQ(hex(o.serialize()), "1a24" + kUnsetDevice + "20022802" + "3001" +
                                    "4a11"
                                    "08021002"
                                    "1a04"
                                    "0a020002"
                                    "1a05"
                                    "0a0301ac02");
}

TEST(CompileOptions, OverridesKeepTheirKindsAndAreSorted) {
  CompileOptions a, b;
  a.env_overrides = {{"s", "x"}, {"b", false}, {"i", int64_t{-1}}, {"d", 0.5}};
  b.env_overrides = {{"d", 0.5}, {"i", int64_t{-1}}, {"b", false}, {"s", "x"}};
  EXPECT_EQ(a.serialize(), b.serialize());
  const std::string tail = hex(a.serialize()).substr(hex(CompileOptions{}.serialize()).size());
  EXPECT_EQ(tail,
            "3a07"
            "0a0162"
            "12021000"
            "3a0e"
            "0a0164"
            "120921000000000000e03f"
            "3a10"
            "0a0169"
            "120b18ffffffffffffffffff01"
            "3a08"
            "0a0173"
            "12030a0178");
}

TEST(CompileOptions, NonsenseIsRefused) {
  const auto refused = [](const std::string& text, auto change) {
    CompileOptions o;
    change(o);
    expect_error(ErrorKind::kValue, {"CompileOptions", text}, [&] { o.serialize(); });
  };
  refused("num_replicas", [](auto& o) { o.num_replicas = 0; });
  refused("num_replicas", [](auto& o) { o.num_replicas = -1; });
  refused("num_partitions", [](auto& o) { o.num_partitions = 0; });
  refused("spmd", [](auto& o) { o.num_partitions = 2; });
  refused("more devices", [](auto& o) { o.num_replicas = 1 << 30, o.num_partitions = 1 << 30, o.spmd = true; });
  refused("2 ids for 1 replicas", [](auto& o) { o.device_assignment = {0, 1}; });
  refused("twice", [](auto& o) { o.num_replicas = 2, o.device_assignment = {3, 3}; });
  refused("negative", [](auto& o) { o.device_assignment = {-1}; });
  refused("twice", [](auto& o) { o.env_overrides = {{"a", true}, {"a", false}}; });
  refused("no name", [](auto& o) { o.env_overrides = {{"", true}}; });
  refused("list", [](auto& o) { o.env_overrides = {{"a", std::vector<int64_t>{1}}}; });
}

}  // namespace
}  // namespace tpj::pjrt
