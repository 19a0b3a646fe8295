#include "lower/harness.h"

namespace tpj::lower::test {
namespace {

class SortScanTest : public WithPlugin {};

const std::vector<Type> kFive{{DType::F32, {5}}, {DType::I64, {5}}};

TEST_F(SortScanTest, SortsAreStableWithNanGreatestAndZerosEqual) {
  const In x = f32({5}, {0.0, kNan, -0.0, kInf, kNan});
  const auto up = run("sort.stable", {x, flag(true), integer(0), flag(false)}, kFive);
  expect_near(up[1].values, {0, 2, 3, 1, 4}, 0);
  const auto down = run("sort.stable", {x, flag(true), integer(0), flag(true)}, kFive);
  expect_near(down[1].values, {1, 4, 3, 0, 2}, 0);
}

TEST_F(SortScanTest, TheMedianIsTheLowerMiddleOrNan) {
  EXPECT_EQ(run("median", {f32({4}, {4, 1, 3, 2})}, {{DType::F32, {}}})[0].values, Numbers{2});
  const In x = f32({4}, {4, kNan, 3, 2});
  expect_near(run("median", {x}, {{DType::F32, {}}})[0].values, {kNan});
  expect_near(run("nanmedian", {x}, {{DType::F32, {}}})[0].values, {3});
}

TEST_F(SortScanTest, TheModeIsTheLeastOfTheMostFrequentAtItsLastPlace) {
  const auto out =
      run("mode", {i64({5}, {7, 3, 7, 3, 9}), integer(0), flag(false)}, {{DType::I64, {}}, {DType::I64, {}}});
  expect_near(out[0].values, {3}, 0);
  expect_near(out[1].values, {3}, 0);
}

TEST_F(SortScanTest, RunningSumsOfBooleansCount) {
  expect_near(run("cumsum", {boolean({4}, {1, 0, 1, 1}), integer(0), none()}, {{DType::I64, {4}}})[0].values,
              {1, 1, 2, 3}, 0);
}

// Longer than a block of the scan.
TEST_F(SortScanTest, ARunningMaximumNamesTheLatestOfEqualValues) {
  Numbers x(100, 0), want(100), at(100);
  x[40] = x[70] = 5;
  for (size_t i = 0; i < 100; ++i) want[i] = i < 40 ? 0 : 5, at[i] = i < 40 ? static_cast<double>(i) : i < 70 ? 40 : 70;
  const auto out = run("cummax", {f32({100}, x), integer(0)}, {{DType::F32, {100}}, {DType::I64, {100}}});
  expect_near(out[0].values, want, 0);
  expect_near(out[1].values, at, 0);
}

TEST_F(SortScanTest, SearchesOnEitherSideOfEqualElements) {
  const In sequence = f32({3}, {1, 2, 2}), x = f32({3}, {2, 0, kNan});
  const auto found = [&](bool right) {
    return run("bucketize.Tensor", {x, sequence, flag(false), flag(right)}, {{DType::I64, {3}}})[0].values;
  };
  expect_near(found(false), {1, 0, 3}, 0);
  expect_near(found(true), {3, 0, 3}, 0);
}

}  // namespace
}  // namespace tpj::lower::test
