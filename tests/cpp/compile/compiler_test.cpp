#include "compile/compiler.h"

#include <gtest/gtest.h>

#include "pjrt/support.h"

namespace tpj::compile {
namespace {

class CompilerTest : public pjrt::test::WithPlugin {};

std::vector<Request> requests(const std::vector<std::string>& texts) {
  std::vector<Request> out;
  for (size_t i = 0; i < texts.size(); ++i) {
    const pjrt::TensorType vector{DType::F32, {static_cast<int64_t>(i + 1)}};
    out.push_back({texts[i], {vector, vector}, {}, {}});
    out.back().record.what = "program " + std::to_string(i);
  }
  return out;
}

TEST_F(CompilerTest, SeveralAtOnceAreAnsweredAndLoggedInOrder) {
  const auto client = pjrt::test::client();
  std::vector<std::string> texts;
  for (int n = 1; n <= 20; ++n) texts.push_back(n == 7 ? "no MLIR" : pjrt::test::add_program(n));
  clear_compile_log();
  const std::vector<Compiled> made = compile_all(*client, requests(texts));
  ASSERT_EQ(made.size(), texts.size());
  for (int n = 1; n <= 20; ++n) {
    const Compiled& m = made[static_cast<size_t>(n - 1)];
    EXPECT_EQ(m.executable == nullptr, n == 7);
    EXPECT_EQ(m.error != nullptr, n == 7);
    if (n == 7) continue;
    const std::vector<float> ones(static_cast<size_t>(n), 1);
    const pjrt::Buffer a = pjrt::test::floats(*client, ones), b = pjrt::test::floats(*client, ones);
    const pjrt::Buffer* arguments[] = {&a, &b};
    EXPECT_EQ(pjrt::test::read(m.executable->run(arguments).front()), std::vector<float>(static_cast<size_t>(n), 2));
  }
  const std::vector<CompileRecord> log = compile_log();
  ASSERT_EQ(log.size(), texts.size());
  for (size_t i = 0; i < log.size(); ++i) {
    EXPECT_EQ(log[i].what, "program " + std::to_string(i));
    EXPECT_EQ(log[i].ok, i != 6);
  }
}

TEST_F(CompilerTest, WhatIsForbiddenIsAnErrorOfEach) {
  const std::vector<std::string> texts{pjrt::test::add_program(3), pjrt::test::add_program(4)};
  clear_compile_log();
  compile_forbidden += 1;
  const std::vector<Compiled> made = compile_all(*pjrt::test::client(), requests(texts));
  compile_forbidden -= 1;
  for (const Compiled& m : made)
    pjrt::test::expect_error(ErrorKind::kRuntime, {"no_compile()"}, [&] { std::rethrow_exception(m.error); });
  EXPECT_TRUE(compile_log().empty());
}

TEST_F(CompilerTest, WhatIsOfferedIsReadInsteadOfCompiled) {
  const auto client = pjrt::test::client();
  if (!client->caps().serialize || !client->caps().deserialize) GTEST_SKIP() << "the plugin cannot serialize";
  const std::vector<std::string> texts{pjrt::test::add_program(1), pjrt::test::add_program(2)};
  std::vector<Compiled> made = compile_all(*client, requests(texts));
  for (size_t i = 0; i < made.size(); ++i)
    offer_program(key_of(*client, requests(texts)[i]), i == 0 ? "damaged" : made[i].executable->serialize());
  const int64_t compiles = Stats::get().compiles;
  for (const Compiled& m : compile_all(*client, requests(texts))) EXPECT_NE(m.executable, nullptr);
  EXPECT_EQ(Stats::get().compiles - compiles, 1);
}

}  // namespace
}  // namespace tpj::compile
