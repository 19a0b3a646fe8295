#include "hlo/compose.h"

#include <gtest/gtest.h>

#include "base/errors.h"
#include "hlo/builder.h"
#include "lower/harness.h"

namespace tpj::hlo {
namespace {

const Type kRow{DType::F32, {3}}, kNumber{DType::F32, {}};

// (x, n) -> x * n, x + n; the first result may take x's memory.
std::string scale_and_shift() {
  Builder b;
  const Value x = b.parameter(kRow), n = b.parameter(kNumber), wide = b.broadcast_to(n, kRow.dims);
  return b.print({x, n}, {b.mul(x, wide), b.add(x, wide)}, {0, -1});
}

class ComposeTest : public lower::test::WithPlugin {};

TEST_F(ComposeTest, CallsPassValuesAndPackedNumbers) {
  Composer c;
  const int x = c.parameter(kRow), numbers = c.parameter({DType::F32, {2}});
  const int f = c.function(scale_and_shift());
  const int first = c.call(f, {x, c.element(numbers, kNumber, 2, 0)}, {kRow, kNumber}, {kRow, kRow});
  const int second = c.call(f, {first + 1, c.element(numbers, kNumber, 2, 1)}, {kRow, kNumber}, {kRow, kRow});
  const std::string text = c.print({first, second}, {kRow, kRow}, {0, -1});
  EXPECT_EQ(text.find("tf.aliasing_output"), text.rfind("tf.aliasing_output")) << "only @main says it: " << text;

  const auto client = lower::test::detail::client();
  const auto executable = client->compile(text, {});
  const float in[] = {1, 2, 3}, factors[] = {10, 100};
  const pjrt::Buffer a = client->from_host(in, DType::F32, kRow.dims, 0);
  const pjrt::Buffer n = client->from_host(factors, DType::F32, Dims{2}, 0);
  const std::vector<const pjrt::Buffer*> arguments{&a, &n};
  const std::vector<pjrt::Buffer> out = executable->run(arguments);
  ASSERT_EQ(out.size(), 2u);
  float got[3];
  out[0].to_host(got, sizeof got);
  EXPECT_EQ(std::vector<float>(got, got + 3), (std::vector<float>{10, 20, 30}));
  out[1].to_host(got, sizeof got);
  EXPECT_EQ(std::vector<float>(got, got + 3), (std::vector<float>{1100, 1200, 1300}));
}

TEST(Compose, RefusesWhatIsNoPrintedModule) {
  Composer c;
  EXPECT_THROW(c.function("module @other {\n}\n"), Error);
  const int x = c.parameter(kRow);
  c.call(c.function(scale_and_shift()), {x, x}, {kRow, kNumber}, {kRow, kRow});
  EXPECT_THROW(c.parameter(kRow), Error) << "parameters come first";
}

}  // namespace
}  // namespace tpj::hlo
