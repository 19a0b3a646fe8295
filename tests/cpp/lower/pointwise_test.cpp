#include "lower/harness.h"

namespace tpj::lower::test {
namespace {

class PointwiseTest : public WithPlugin {};

const std::vector<Type> kThreeFloats{{DType::F32, {3}}}, kFourInts{{DType::I64, {4}}};

TEST(PointwiseText, AddWithAlphaOneIsOneOperation) {
  const Program p =
      lower("add.Tensor", {f32({3}, {1, 2, 3}), f32({3}, {4, 5, 6}), known(1, NumberKind::kInt)}, kThreeFloats);
  EXPECT_EQ(p.text,
            "module @m {\n"
            "  func.func @main(%0: tensor<3xf32>, %1: tensor<3xf32>) -> (tensor<3xf32>) {\n"
            "    %2 = \"stablehlo.add\"(%0, %1) : (tensor<3xf32>, tensor<3xf32>) -> (tensor<3xf32>)\n"
            "    \"func.return\"(%2) : (tensor<3xf32>) -> ()\n"
            "  }\n"
            "}\n");
}

TEST(PointwiseText, AnotherAlphaIsAnInput) {
  const Program p = lower("add.Tensor", {f32({3}, {1, 2, 3}), f32({3}, {4, 5, 6}), number(0.5)}, kThreeFloats);
  EXPECT_EQ(p.inputs.size(), 3u);
}

TEST_F(PointwiseTest, BFloat16ComputesInFloat32AndRoundsOnce) {
  // 1 + 2^-9 is 1 in bfloat16, but 1 + 2^-9 * 2 is not.
  const In one = tensor(DType::BF16, {1}, {1}), small = tensor(DType::BF16, {1}, {0x1p-8});
  expect_near(run("add.Tensor", {one, small, number(2)}, {{DType::BF16, {1}}})[0].values, {1 + 0x1p-7}, 0);
}

TEST_F(PointwiseTest, FloorDivisionAndRemainderFollowPython) {
  const In x = i64({4}, {7, -7, 7, -7}), y = i64({4}, {2, 2, -2, -2});
  expect_near(run("floor_divide", {x, y}, kFourInts)[0].values, {3, -4, -4, 3}, 0);
  expect_near(run("remainder.Tensor", {x, y}, kFourInts)[0].values, {1, 1, -1, -1}, 0);
  expect_near(run("fmod.Tensor", {x, y}, kFourInts)[0].values, {1, -1, 1, -1}, 0);
  expect_near(run("div.Tensor_mode", {x, y, text("trunc")}, kFourInts)[0].values, {3, -3, -3, 3}, 0);
}

TEST_F(PointwiseTest, IntegerDivisionByZeroGivesZero) {
  const In x = i64({4}, {7, -7, 0, 1}), y = i64({4}, {0, 0, 0, 1});
  expect_near(run("floor_divide", {x, y}, kFourInts)[0].values, {0, 0, 0, 1}, 0);
  expect_near(run("remainder.Tensor", {x, y}, kFourInts)[0].values, {0, 0, 0, 0}, 0);
}

TEST_F(PointwiseTest, MaximumPropagatesNanAndFmaxIgnoresIt) {
  const In x = f32({3}, {kNan, 1, 2}), y = f32({3}, {1, kNan, 3});
  expect_near(run("maximum", {x, y}, kThreeFloats)[0].values, {kNan, kNan, 3});
  expect_near(run("fmax", {x, y}, kThreeFloats)[0].values, {1, 1, 3});
}

TEST_F(PointwiseTest, AnIntegerTensorIsComparedWithAFloatNumberAsFloats) {
  expect_near(run("lt.Scalar", {i64({3}, {1, 2, 3}), number(2.5)}, {{DType::Bool, {3}}})[0].values, {1, 1, 0}, 0);
}

TEST_F(PointwiseTest, PowersOfIntegersWrapAndNegativeExponentsGiveZeroOrOne) {
  const In base = i64({4}, {2, 1, -1, 3}), exponent = i64({4}, {62, -5, -3, -1});
  expect_near(run("pow.Tensor_Tensor", {base, exponent}, kFourInts)[0].values, {0x1p62, 1, -1, 0}, 0);
}

TEST_F(PointwiseTest, GeluHasBothForms) {
  const In x = f32({3}, {-1, 0, 2});
  expect_near(run("gelu", {x, text("none")}, kThreeFloats)[0].values, {-0.15865525, 0, 1.9544997});
  expect_near(run("gelu", {x, text("tanh")}, kThreeFloats)[0].values, {-0.15880801, 0, 1.9545977});
}

TEST_F(PointwiseTest, SignOfNanIsZeroAndRoundingGoesToEven) {
  expect_near(run("sign", {f32({3}, {kNan, -2, 5})}, kThreeFloats)[0].values, {0, -1, 1}, 0);
  expect_near(run("round", {f32({3}, {0.5, 1.5, -2.5})}, kThreeFloats)[0].values, {0, 2, -2}, 0);
}

}  // namespace
}  // namespace tpj::lower::test
