#include "lower/harness.h"

namespace tpj::lower::test {
namespace {

class NormLossTest : public WithPlugin {};

TEST_F(NormLossTest, SoftmaxSurvivesLargeNumbers) {
  const In x = f32({2, 2}, {1000, 1000, -kInf, 0});
  const std::vector<Type> result{{DType::F32, {2, 2}}};
  expect_near(run("_softmax", {x, integer(-1), flag(false)}, result)[0].values, {0.5, 0.5, 0, 1});
  expect_near(run("_log_softmax", {x, integer(1), flag(false)}, result)[0].values,
              {-0.69314718, -0.69314718, -kInf, 0});
}

TEST_F(NormLossTest, LayerNormHasUnitVariance) {
  const Type stats{DType::F32, {2, 1}};
  const auto out = run("native_layer_norm", {f32({2, 2}, {1, 3, -2, 2}), ints({2}), none(), none(), number(0)},
                       {{DType::F32, {2, 2}}, stats, stats});
  expect_near(out[0].values, {-1, 1, -1, 1});
  expect_near(out[1].values, {2, 0});
  expect_near(out[2].values, {1, 0.5});
}

TEST_F(NormLossTest, BatchNormMovesTheRunningStatistics) {
  const In x = f32({2, 1, 2}, {1, 2, 3, 6}), one = f32({1}, {1}), zero = f32({1}, {0});
  const Type stats{DType::F32, {1}};
  const std::vector<Type> results{{DType::F32, {2, 1, 2}}, stats, stats};
  const auto train =
      run("native_batch_norm", {x, none(), none(), zero, one, flag(true), number(0.5), number(0)}, results);
  ASSERT_EQ(train.size(), 5u);
  expect_near(train[1].values, {3});
  expect_near(train[3].values, {1.5});                 // half of the mean
  expect_near(train[4].values, {0.5 + 0.5 * 14 / 3});  // with the unbiased variance
  const auto eval = run("native_batch_norm", {x, none(), none(), zero, one, flag(false), number(0.5), number(0)},
                        {{DType::F32, {2, 1, 2}}, {DType::F32, {0}}, {DType::F32, {0}}});
  ASSERT_EQ(eval.size(), 3u);  // nothing was moved
  expect_near(eval[0].values, {1, 2, 3, 6});
}

TEST_F(NormLossTest, ABackwardLeavesOutWhatIsNotAsked) {
  const In x = f32({2, 2}, {1, 3, -2, 2}), stats = f32({2, 1}, {1, 1});
  const auto out = run("native_layer_norm_backward", {x, x, ints({2}), stats, stats, none(), none(), ints({0, 0, 1})},
                       {{DType::F32, {2, 2}}, {DType::F32, {2}}, {DType::F32, {2}}});
  ASSERT_EQ(out.size(), 1u);
  expect_near(out[0].values, {-1, 5});
}

TEST_F(NormLossTest, NllLossIgnoresAndWeighs) {
  const In log_p = f32({3, 2}, {-1, -2, -3, -4, -5, -kInf}), target = i64({3}, {0, 1, -100}), weight = f32({2}, {1, 3});
  const Type scalar{DType::F32, {}};
  const auto out = run("nll_loss_forward", {log_p, target, weight, integer(1), integer(-100)}, {scalar, scalar});
  expect_near(out[0].values, {13.0 / 4});
  expect_near(out[1].values, {4});
  const auto grad =
      run("nll_loss_backward", {f32({}, {1}), log_p, target, weight, integer(1), integer(-100), f32({}, {4})},
          {{DType::F32, {3, 2}}});
  expect_near(grad[0].values, {-0.25, 0, 0, -0.75, 0, 0});
}

}  // namespace
}  // namespace tpj::lower::test
