#include "lower/harness.h"

namespace tpj::lower::test {
namespace {

class IndexTest : public WithPlugin {};

const In kRows = f32({3, 2}, {0, 1, 2, 3, 4, 5});

TEST(IndexText, AnEmbeddingIsOneGatherOfRowsWith32BitPositions) {
  const Program p =
      lower("embedding", {kRows, i64({2}, {0, 2}), integer(-1), flag(false), flag(false)}, {{DType::F32, {2, 2}}});
  EXPECT_NE(p.text.find("slice_sizes = array<i64: 1, 2>"), std::string::npos);
  EXPECT_NE(p.text.find("(tensor<3x2xf32>, tensor<2x1xi32>) -> (tensor<2x2xf32>)"), std::string::npos);
}

TEST_F(IndexTest, NegativePositionsWrapAndOthersOutOfRangeReadNaN) {
  const auto out =
      run("index_select", {kRows, integer(0), i64({4}, {-1, 3, -4, 1099511627776})}, {{DType::F32, {4, 2}}});
  expect_near(out[0].values, {4, 5, kNan, kNan, kNan, kNan, kNan, kNan}, 0);
}

TEST_F(IndexTest, WritesOutOfRangeAreDropped) {
  const auto out = run("index_add", {kRows, integer(0), i64({2}, {3, 1}), f32({2, 2}, {9, 9, 10, 20}), known(1)},
                       {{DType::F32, {3, 2}}});
  expect_near(out[0].values, {0, 1, 12, 23, 4, 5}, 0);
}

TEST_F(IndexTest, GatherAndScatterMayCoverACornerOnly) {
  const In at = i64({1, 1}, {2});
  expect_near(run("gather", {kRows, integer(0), at, flag(false)}, {{DType::F32, {1, 1}}})[0].values, {4}, 0);
  const auto out =
      run("scatter_add", {kRows, integer(0), at, f32({3, 2}, {10, 0, 0, 0, 0, 0})}, {{DType::F32, {3, 2}}});
  expect_near(out[0].values, {0, 1, 2, 3, 14, 5}, 0);
}

TEST_F(IndexTest, SeparatedIndicesComeFirst) {
  const In x = f32({2, 1, 2}, {0, 1, 2, 3});
  const auto out =
      run("index.Tensor", {x, tensors({i64({3}, {0, 1, 1}), none(), i64({3}, {1, 0, 1})})}, {{DType::F32, {3, 1}}});
  expect_near(out[0].values, {1, 2, 3}, 0);
}

TEST_F(IndexTest, AMaskTakesTheValuesInOrder) {
  const auto out =
      run("index_put", {f32({4}, {0, 1, 2, 3}), tensors({boolean({4}, {1, 0, 1, 0})}), f32({2}, {8, 9}), flag(false)},
          {{DType::F32, {4}}});
  expect_near(out[0].values, {8, 1, 9, 3}, 0);
}

TEST_F(IndexTest, AMeanThatLeavesSelfOutFloorsIntegers) {
  const auto out =
      run("scatter_reduce.two",
          {i64({2}, {100, 7}), integer(0), i64({2}, {0, 0}), i64({2}, {-1, -2}), text("mean"), flag(false)},
          {{DType::I64, {2}}});
  expect_near(out[0].values, {-2, 7}, 0);
}

TEST_F(IndexTest, PaddingRowsOfAnEmbeddingGetNoGradient) {
  const auto out =
      run("embedding_dense_backward", {f32({3, 1}, {1, 2, 4}), i64({3}, {1, 0, 1}), integer(2), integer(0), flag(true)},
          {{DType::F32, {2, 1}}});
  expect_near(out[0].values, {0, 2.5}, 0);
}

}  // namespace
}  // namespace tpj::lower::test
