#include "lower/harness.h"

namespace tpj::lower::test {
namespace {

class MatmulTest : public WithPlugin {};

const In kA = f32({2, 2}, {1, 2, 3, 4}), kB = f32({2, 2}, {5, 6, 7, 8});

TEST(MatmulText, NarrowFloatsMultiplyIntoFloat32) {
  const In x = tensor(DType::BF16, {2, 2}, {1, 2, 3, 4});
  const Program p = lower("mm", {x, x}, {{DType::BF16, {2, 2}}});
  EXPECT_NE(p.text.find("(tensor<2x2xbf16>, tensor<2x2xbf16>) -> (tensor<2x2xf32>)"), std::string::npos);
}

TEST(MatmulText, FactorsOfOneAndZeroCostNothing) {
  const Program p = lower("addmm", {f32({2}, {kNan, kNan}), kA, kB, known(0), known(1)}, {{DType::F32, {2, 2}}});
  EXPECT_EQ(p.inputs.size(), 2u);
  EXPECT_EQ(p.text.find("stablehlo.multiply"), std::string::npos);
}

TEST_F(MatmulTest, OtherFactorsAreInputs) {
  const auto out = run("addmm", {f32({2}, {100, 200}), kA, kB, number(2), number(0.5)}, {{DType::F32, {2, 2}}});
  expect_near(out[0].values, {209.5, 411, 221.5, 425});
}

TEST_F(MatmulTest, BatchesAddUp) {
  const In x = f32({2, 1, 1}, {2, 3}), y = f32({2, 1, 1}, {5, 7});
  expect_near(run("addbmm", {f32({1, 1}, {1}), x, y, known(1), known(1)}, {{DType::F32, {1, 1}}})[0].values, {32});
}

TEST_F(MatmulTest, VdotConjugatesItsFirstVector) {
  const In x = tensor(DType::C64, {1}, {1, 2}), y = tensor(DType::C64, {1}, {3, 4});
  expect_near(run("vdot", {x, y}, {{DType::C64, {}}})[0].values, {11, -2});
}

}  // namespace
}  // namespace tpj::lower::test
