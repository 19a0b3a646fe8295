#include "lower/harness.h"

namespace tpj::lower::test {
namespace {

class ConvPoolTest : public WithPlugin {};

const In kImage = f32({1, 1, 3, 3}, {1, 2, 3, 4, 5, 6, 7, 8, 9});
const In kKernel = f32({1, 1, 2, 2}, {1, 0, 0, 2});
const Dims kOnes{1, 1}, kZeros{0, 0};

TEST(ConvPoolText, AConvolutionIsOneOperation) {
  const Program p =
      lower("convolution",
            {kImage, kKernel, none(), ints({2, 2}), ints({1, 1}), ints(kOnes), flag(false), ints(kZeros), integer(1)},
            {{DType::F32, {1, 1, 2, 2}}});
  EXPECT_NE(p.text.find("window_strides = array<i64: 2, 2>, padding = dense<[[1, 1], [1, 1]]>"), std::string::npos);
}

TEST_F(ConvPoolTest, ForwardAndGradientsOfAConvolution) {
  const auto y = run(
      "convolution",
      {kImage, kKernel, f32({1}, {100}), ints(kOnes), ints(kZeros), ints(kOnes), flag(false), ints(kZeros), integer(1)},
      {{DType::F32, {1, 1, 2, 2}}});
  expect_near(y[0].values, {111, 114, 120, 123});
  const auto g = run("convolution_backward",
                     {f32({1, 1, 2, 2}, {1, 0, 0, 1}), kImage, kKernel, ints({1}), ints(kOnes), ints(kZeros),
                      ints(kOnes), flag(false), ints(kZeros), integer(1), ints({1, 1, 1})},
                     {{DType::F32, {1, 1, 3, 3}}, {DType::F32, {1, 1, 2, 2}}, {DType::F32, {1}}});
  expect_near(g[0].values, {1, 0, 0, 0, 3, 0, 0, 0, 2});
  expect_near(g[1].values, {6, 8, 12, 14});
  expect_near(g[2].values, {2});
}

TEST_F(ConvPoolTest, PoolingSaysWhereTheFirstMaximumIs) {
  const In x = f32({1, 3, 3}, {5, 5, 0, 5, 1, kNan, 0, 0, -kInf});
  const auto out =
      run("max_pool2d_with_indices", {x, ints({2, 2}), ints({1, 1}), ints({0, 0}), ints({1, 1}), flag(false)},
          {{DType::F32, {1, 2, 2}}, {DType::I64, {1, 2, 2}}});
  expect_near(out[0].values, {5, kNan, 5, kNan}, 0);
  expect_near(out[1].values, {0, 5, 3, 5}, 0);
}

TEST_F(ConvPoolTest, OverlappingWindowsAddTheirGradients) {
  const In grad = f32({1, 1, 2}, {1, 10}), x = f32({1, 1, 3}, {0, 9, 0});
  const auto out =
      run("max_pool2d_with_indices_backward",
          {grad, x, ints({1, 2}), ints({1, 1}), ints({0, 0}), ints({1, 1}), flag(false), i64({1, 1, 2}, {1, 1})},
          {{DType::F32, {1, 1, 3}}});
  expect_near(out[0].values, {0, 11, 0});
}

TEST_F(ConvPoolTest, AnAverageMayLeavePaddingOut) {
  const In x = f32({1, 1, 3}, {2, 4, 8});
  const auto mean = [&](bool include) {
    return run("avg_pool2d", {x, ints({1, 2}), ints({1, 2}), ints({0, 1}), flag(false), flag(include), none()},
               {{DType::F32, {1, 1, 2}}})[0]
        .values;
  };
  expect_near(mean(true), {1, 6});
  expect_near(mean(false), {2, 6});
}

TEST_F(ConvPoolTest, AdaptiveWindowsMayDiffer) {
  expect_near(
      run("_adaptive_avg_pool2d", {f32({1, 1, 3}, {2, 4, 8}), ints({1, 2})}, {{DType::F32, {1, 1, 2}}})[0].values,
      {3, 6});
}

TEST_F(ConvPoolTest, ResamplingByAnUnevenFactor) {
  const In x = f32({1, 1, 2}, {0, 8});
  expect_near(run("upsample_nearest1d", {x, ints({3}), none()}, {{DType::F32, {1, 1, 3}}})[0].values, {0, 0, 8});
  expect_near(run("upsample_linear1d", {x, ints({4}), flag(false), none()}, {{DType::F32, {1, 1, 4}}})[0].values,
              {0, 2, 6, 8});
  expect_near(run("reflection_pad1d", {f32({1, 3}, {1, 2, 3}), ints({2, 1})}, {{DType::F32, {1, 6}}})[0].values,
              {3, 2, 1, 2, 3, 2});
}

}  // namespace
}  // namespace tpj::lower::test
