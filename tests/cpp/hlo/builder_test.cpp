#include "hlo/builder.h"

#include <gtest/gtest.h>

#include <functional>

#include "base/errors.h"

namespace tpj::hlo {
namespace {

void expect_lacking(const char* capability, const std::function<void()>& f) {
  try {
    f();
    FAIL() << "no error";
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::kNotImplemented);
    EXPECT_NE(std::string(e.what()).find(capability), std::string::npos) << e.what();
  }
}

TEST(BuilderLimitsTest, NumbersNarrowWhereTheyFit) {
  Builder b(Limits{.float64 = false, .int64 = false});
  EXPECT_EQ(b.parameter({DType::I64, {}}).dtype(), DType::I32);
  EXPECT_EQ(b.iota({DType::I64, {4}}, 0).dtype(), DType::I32);
  EXPECT_EQ(b.constant({DType::I64, {}}, int64_t{-7}).dtype(), DType::I32);
  EXPECT_EQ(b.convert(b.parameter({DType::F32, {}}), DType::F64).dtype(), DType::F32);
  EXPECT_EQ(b.constant({DType::C128, {}}, 1.5).dtype(), DType::C64);
}

TEST(BuilderLimitsTest, WhatNeeds64BitsIsRefused) {
  Builder b(Limits{.int64 = false});
  expect_lacking("int64", [&] { b.constant({DType::I64, {}}, int64_t{1} << 31); });
  expect_lacking("int64", [&] { b.min_value({DType::I64, {}}); });
  expect_lacking("int64", [&] { b.parameter({DType::U64, {2}}); });
  expect_lacking("int64", [&] { b.convert(b.parameter({DType::U32, {}}), DType::U64); });
  expect_lacking("int64", [&] { b.dense({DType::I64, {2}}, {1, 2}); });
  expect_lacking("int64", [&] { b.bitcast(b.parameter({DType::F64, {}}), {DType::I64, {}}); });
}

TEST(BuilderTest, WhatIsOneNumberIsKnown) {
  Builder b;
  const Value x = b.parameter({DType::F32, {2, 2}}), s = b.parameter({DType::F32, {}});
  const Value one = b.broadcast_to(s, {2, 2});
  EXPECT_EQ(b.uniform(x), Uniform::kIfParametersAre);
  EXPECT_EQ(b.uniform(b.exp(b.add(one, b.constant(x.type, 1.0)))), Uniform::kYes);
  EXPECT_EQ(b.uniform(b.mul(one, x)), Uniform::kIfParametersAre);
  EXPECT_EQ(b.uniform(b.mul(one, b.convert(b.iota({DType::I32, {2, 2}}, 0), DType::F32))), Uniform::kNo);
}

TEST(BuilderTest, AProductKeepsOneNumberApart) {
  const auto text = [](bool is_one_number) {
    Builder b;
    const Value x = b.parameter({DType::F32, {2, 2}}), s = b.parameter({DType::F32, {}});
    const Value y = is_one_number ? b.broadcast_to(s, {2, 2}) : b.exp(x);
    return b.print({x, s}, {b.dot_general(x, y, {{}, {}, {1}, {0}}, DType::F32)});
  };
  EXPECT_NE(text(true).find("optimization_barrier"), std::string::npos);
  EXPECT_EQ(text(false).find("optimization_barrier"), std::string::npos);
}

}  // namespace
}  // namespace tpj::hlo
