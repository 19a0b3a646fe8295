#include <algorithm>
#include <numeric>

#include "lower/harness.h"

namespace tpj::lower::test {
namespace {

class RandomTest : public WithPlugin {};

constexpr int64_t kMany = 20000;

Numbers draw(std::string_view row, DType dtype, const std::vector<In>& arguments, uint64_t key = 1) {
  std::vector<In> args{tensor(dtype, {kMany}, Numbers(kMany))};
  args.insert(args.end(), arguments.begin(), arguments.end());
  args.push_back(none());
  return run(row, args, {{dtype, {kMany}}}, {key, 0})[0].values;
}

double mean(const Numbers& x) { return std::accumulate(x.begin(), x.end(), 0.0) / static_cast<double>(x.size()); }

double deviation(const Numbers& x) {
  const double m = mean(x);
  double sum = 0;
  for (double v : x) sum += (v - m) * (v - m);
  return std::sqrt(sum / static_cast<double>(x.size()));
}

TEST(RandomText, ParametersOfADistributionAreInputs) {
  const Program p = lower("normal_", {f32({4}, {0, 0, 0, 0}), number(1), number(2), none()}, {{DType::F32, {4}}});
  EXPECT_EQ(p.inputs.size(), 3u);  // the state, mean and std; not self
}

TEST_F(RandomTest, UniformNumbersStayBelowTheirEnd) {
  for (DType t : {DType::F32, DType::F64, DType::BF16}) {
    const Numbers x = draw("uniform_", t, {number(-1), number(3)});
    EXPECT_NEAR(mean(x), 1, 0.05);
    EXPECT_GE(*std::min_element(x.begin(), x.end()), -1);
    EXPECT_LT(*std::max_element(x.begin(), x.end()), 3);
  }
}

TEST_F(RandomTest, NormalNumbersHaveTheirMoments) {
  const Numbers x = draw("normal_", DType::F32, {number(1), number(2)});
  EXPECT_NEAR(mean(x), 1, 0.06);
  EXPECT_NEAR(deviation(x), 2, 0.06);
  EXPECT_EQ(x, draw("normal_", DType::F32, {number(1), number(2)}));
  EXPECT_NE(x, draw("normal_", DType::F32, {number(1), number(2)}, 2));
}

TEST_F(RandomTest, WholeNumbersCoverTheirRange) {
  const Numbers x = draw("random_.from", DType::I8, {integer(-3), integer(3)});
  EXPECT_EQ(*std::min_element(x.begin(), x.end()), -3);
  EXPECT_EQ(*std::max_element(x.begin(), x.end()), 2);
}

TEST_F(RandomTest, DropoutKeepsTheMeanAndMayDropAll) {
  const std::vector<Type> results{{DType::F32, {kMany}}, {DType::Bool, {kMany}}};
  const In x = f32({kMany}, Numbers(kMany, 1));
  EXPECT_NEAR(mean(run("native_dropout", {x, number(0.75), flag(true)}, results)[0].values), 1, 0.06);
  EXPECT_EQ(mean(run("native_dropout", {x, number(1), flag(true)}, results)[0].values), 0);
  EXPECT_EQ(run("native_dropout", {x, number(0.75), flag(false)}, results)[0].values, Numbers(kMany, 1));
}

TEST_F(RandomTest, APermutationHasEveryNumberOnce) {
  Numbers x = run("randperm.generator_out", {integer(50), none(), i64({0}, {})}, {{DType::I64, {50}}})[0].values;
  EXPECT_FALSE(std::is_sorted(x.begin(), x.end()));
  std::sort(x.begin(), x.end());
  for (size_t i = 0; i < x.size(); ++i) EXPECT_EQ(x[i], static_cast<double>(i));
}

TEST_F(RandomTest, ImpossibleChoicesAreNotSampled) {
  const In p = f32({3}, {0.5, 0, 1.5});
  const Numbers x = run("multinomial", {p, integer(1000), flag(true), none()}, {{DType::I64, {1000}}})[0].values;
  EXPECT_EQ(std::count(x.begin(), x.end(), 1), 0);
  EXPECT_NEAR(mean(x), 1.5, 0.1);
  const Numbers two = run("multinomial", {p, integer(2), flag(false), none()}, {{DType::I64, {2}}})[0].values;
  EXPECT_EQ(two[0] + two[1], 2);
}

}  // namespace
}  // namespace tpj::lower::test
