#include "lower/harness.h"

namespace tpj::lower::test {
namespace {

class ViewCopyTest : public WithPlugin {};

Numbers copied(const In& from, DType to) {
  const Dims dims = from.arg.type.dims;
  return run("copy", {tensor(to, dims, Numbers(static_cast<size_t>(hlo::numel(dims)))), from, flag(false)},
             {{to, dims}})[0]
      .values;
}

TEST(ViewCopyText, PaddingIsOneOperationWithTheFillAsInput) {
  const Program p = lower("constant_pad_nd", {f32({2}, {1, 2}), ints({1, 2}), number(7)}, {{DType::F32, {5}}});
  EXPECT_NE(p.text.find("edge_padding_low = array<i64: 1>, edge_padding_high = array<i64: 2>"), std::string::npos);
  EXPECT_EQ(p.inputs.size(), 2u);
}

TEST_F(ViewCopyTest, CastsFollowPyTorchOnX86) {
  expect_near(copied(f32({4}, {-1, 300, 2.9, -0.5}), DType::U8), {255, 44, 2, 0}, 0);
  expect_near(copied(f32({3}, {3e9, kNan, -2.9}), DType::I32), {-2147483648.0, -2147483648.0, -2}, 0);
  expect_near(copied(f32({3}, {0, kNan, 0.25}), DType::Bool), {0, 1, 1}, 0);
  expect_near(copied(tensor(DType::C64, {1}, {3, 4}), DType::F32), {3}, 0);
}

TEST_F(ViewCopyTest, CatSkipsEmptyVectorsAndPromotes) {
  const auto out = run("cat", {tensors({f32({1, 2}, {1, 2}), f32({0}, {}), i64({1, 2}, {3, 4})}), integer(0)},
                       {{DType::F32, {2, 2}}});
  expect_near(out[0].values, {1, 2, 3, 4}, 0);
}

TEST_F(ViewCopyTest, TheGradientOfASliceStandsWhereItWasTaken) {
  const auto out = run("slice_backward", {f32({2}, {1, 2}), ints({5}), integer(0), integer(1), integer(5), integer(2)},
                       {{DType::F32, {5}}});
  expect_near(out[0].values, {0, 1, 0, 2, 0}, 0);
}

TEST_F(ViewCopyTest, SequencesEndExactly) {
  const In out = f32({0}, {});
  expect_near(run("linspace.out", {number(0), number(1), integer(5), out}, {{DType::F32, {5}}})[0].values,
              {0, 0.25, 0.5, 0.75, 1}, 0);
  expect_near(run("arange.start_out",
                  {number(5, NumberKind::kInt), number(0, NumberKind::kInt), number(-2, NumberKind::kInt), out},
                  {{DType::I64, {3}}})[0]
                  .values,
              {5, 3, 1}, 0);
}

}  // namespace
}  // namespace tpj::lower::test
