#include "lower/harness.h"

namespace tpj::lower::test {
namespace {

class ReduceTest : public WithPlugin {};

const In kMatrix = f32({2, 3}, {1, 2, 3, 4, 5, 6});

TEST(ReduceText, KeepdimIsOneReshape) {
  const Program p = lower("sum.dim_IntList", {kMatrix, ints({-1}), flag(true), none()}, {{DType::F32, {2, 1}}});
  EXPECT_NE(p.text.find("\"stablehlo.reduce\""), std::string::npos);
  EXPECT_NE(p.text.find("dimensions = array<i64: 1>"), std::string::npos);
  EXPECT_NE(p.text.find("-> (tensor<2x1xf32>)"), std::string::npos);
}

TEST_F(ReduceTest, BooleansSumAsIntegers) {
  expect_near(run("sum", {boolean({3}, {1, 0, 1}), none()}, {{DType::I64, {}}})[0].values, {2}, 0);
}

TEST_F(ReduceTest, TheFirstExtremeWinsAndNanIsGreatest) {
  const In x = f32({2, 4}, {1, 5, 5, 2, 3, kNan, 7, kNan});
  const auto out = run("max.dim", {x, integer(1), flag(false)}, {{DType::F32, {2}}, {DType::I64, {2}}});
  expect_near(out[0].values, {5, kNan}, 0);
  expect_near(out[1].values, {1, 1}, 0);
  expect_near(run("argmin", {x, none(), flag(false)}, {{DType::I64, {}}})[0].values, {5}, 0);
}

TEST_F(ReduceTest, TheCorrectionOfAVarianceIsAnInput) {
  const std::vector<Type> result{{DType::F32, {2}}};
  expect_near(run("var.correction", {kMatrix, ints({1}), number(0, NumberKind::kInt), flag(false)}, result)[0].values,
              {2.0 / 3, 2.0 / 3});
  expect_near(run("var.correction", {kMatrix, ints({1}), none(), flag(false)}, result)[0].values, {1, 1});
  // No degree of freedom: 2 / max(0, 3 - 5).
  expect_near(run("var.correction", {kMatrix, ints({1}), number(5), flag(false)}, result)[0].values, {kInf, kInf});
}

TEST_F(ReduceTest, NormsOfEveryOrder) {
  const In x = f32({3}, {3, -4, 0});
  const auto norm = [&](const In& ord) {
    return run("linalg_vector_norm", {x, ord, none(), flag(false), none()}, {{DType::F32, {}}})[0].values;
  };
  expect_near(norm(known(2)), {5});
  expect_near(norm(known(1)), {7});
  expect_near(norm(known(0)), {2});
  expect_near(norm(known(kInf)), {4});
  expect_near(norm(number(3)), {4.4979414});
}

TEST_F(ReduceTest, AnEmptyMeanIsNan) {
  expect_near(run("mean", {f32({0}, {}), none()}, {{DType::F32, {}}})[0].values, {kNan});
}

}  // namespace
}  // namespace tpj::lower::test
