#include "pjrt/types.h"

#include "pjrt/named_value.h"
#include "support.h"

namespace tpj::pjrt {
namespace {

using test::expect_error;

TEST(Types, EveryElementTypeMapsThereAndBack) {
#define X(name, ...) EXPECT_EQ(from_pjrt(to_pjrt(DType::name)), DType::name);
  TPJ_DTYPES(X)
#undef X
  expect_error(ErrorKind::kNotImplemented, {"no counterpart"}, [] { from_pjrt(PJRT_Buffer_Type_TOKEN); });
  expect_error(ErrorKind::kNotImplemented, {"no counterpart"}, [] { from_pjrt(PJRT_Buffer_Type_INVALID); });
}

TEST(Types, SizesAreCheckedForOverflow) {
  const int64_t a[] = {2, 3}, empty[] = {0, 5}, huge[] = {int64_t{1} << 61, 2};
  EXPECT_EQ(byte_size("t", DType::F64, a), 48);
  EXPECT_EQ(byte_size("t", DType::F64, {}), 8);
  EXPECT_EQ(byte_size("t", DType::F64, empty), 0);
  EXPECT_EQ(byte_size("t", DType::U8, huge), int64_t{1} << 62);
  expect_error(ErrorKind::kRuntime, {"[t]", "overflows", "i16[2305843009213693952,2]"},
               [&] { byte_size("t", DType::I16, huge); });
}

TEST(Types, AreShownShort) {
  EXPECT_EQ(show(TensorType{DType::BF16, {2, 3}}), "bf16[2,3]");
  EXPECT_EQ(show(TensorType{DType::Bool, {}}), "i1[]");
}

TEST(NamedValues, SurviveTheTripThroughC) {
  const Options in = {
      {"s", "text"}, {"i", int64_t{-5}}, {"d", 0.25}, {"b", true}, {"l", std::vector<int64_t>{1, 20, 0}}};
  const auto c = to_named_values(in);
  const Attributes out = from_named_values(c.data(), c.size());
  ASSERT_EQ(out.size(), in.size());
  for (const auto& [name, value] : in) EXPECT_EQ(out.at(name), value) << name;
  EXPECT_EQ(show(out.at("l")), "[1, 20, 0]");
  EXPECT_EQ(show(out.at("b")), "true");
  EXPECT_EQ(show(out.at("d")), "0.25");
}

}  // namespace
}  // namespace tpj::pjrt
