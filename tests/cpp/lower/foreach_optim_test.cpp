#include "lower/harness.h"

namespace tpj::lower::test {
namespace {

class ForeachOptimTest : public WithPlugin {};

const Type kPair{DType::F32, {2}};

TEST_F(ForeachOptimTest, EachElementGetsItsOwnNumberAndType) {
  const In xs = tensors({f32({2}, {1, 2}), i64({1}, {3})});
  const auto out = run("_foreach_mul.ScalarList", {xs, numbers({number(2), number(5, NumberKind::kInt)})},
                       {kPair, {DType::I64, {1}}});
  expect_near(out[0].values, {2, 4}, 0);
  expect_near(out[1].values, {15}, 0);
}

// One parameter, one step from zero moments: bias correction makes the step exactly lr * sign(grad).
std::vector<Tensor> adamw_step(const In& found_inf) {
  const In param = f32({2}, {1, -1}), grad = f32({2}, {0.5, -0.25}), zero = f32({2}, {0, 0});
  return run(
      "_fused_adamw",
      {tensors({param}), tensors({grad}), tensors({zero}), tensors({zero}), tensors({}), tensors({f32({}, {1})}),
       number(0.1), number(0.9), number(0.999), known(0), number(1e-8), flag(false), flag(false), none(), found_inf},
      {kPair, kPair, kPair, kPair});
}

TEST_F(ForeachOptimTest, AdamCorrectsItsBias) {
  const auto out = adamw_step(none());
  ASSERT_EQ(out.size(), 3u);  // gradients stay as they are
  expect_near(out[0].values, {0.9, -0.9});
  expect_near(out[1].values, {0.05, -0.025});
  expect_near(out[2].values, {0.00025, 0.0000625}, 1e-9);
}

TEST_F(ForeachOptimTest, AFoundInfinitySkipsTheStep) {
  const auto out = adamw_step(f32({}, {1}));
  expect_near(out[0].values, {1, -1}, 0);
  expect_near(out[1].values, {0, 0}, 0);
}

TEST_F(ForeachOptimTest, SgdKeepsMomentum) {
  const In param = f32({2}, {1, 1}), grad = f32({2}, {1, 2}), buffer = f32({2}, {2, 2});
  const auto out = run("_fused_sgd",
                       {tensors({param}), tensors({grad}), tensors({buffer}), known(0), number(0.5), number(0.1),
                        number(0), flag(false), flag(false), flag(false), none(), none()},
                       {kPair, kPair, kPair});
  ASSERT_EQ(out.size(), 2u);
  expect_near(out[0].values, {0.8, 0.7});
  expect_near(out[1].values, {2, 3});
}

TEST_F(ForeachOptimTest, UnscalingReportsInfinities) {
  const In xs = tensors({f32({2}, {2, 4}), f32({1}, {kInf})});
  const auto out = run("_amp_foreach_non_finite_check_and_unscale", {xs, f32({1}, {0}), f32({1}, {0.5})},
                       {kPair, {DType::F32, {1}}, {DType::F32, {1}}});
  expect_near(out[0].values, {1, 2});
  expect_near(out[2].values, {1}, 0);
}

}  // namespace
}  // namespace tpj::lower::test
