#include "pjrt/program_check.h"

#include "support.h"

namespace tpj::pjrt {
namespace {

using test::expect_error;

void refused(const std::string& text, const std::string& program, const CompileOptions& options = {}) {
  expect_error(ErrorKind::kValue, {text}, [&] { validate_program(program, options); });
}

void accepted(const std::string& program, const CompileOptions& options = {}) {
  EXPECT_NO_THROW(validate_program(program, options)) << program;
}

CompileOptions over(int replicas, int partitions = 1) {
  CompileOptions o;
  o.num_replicas = replicas;
  o.num_partitions = partitions;
  o.spmd = partitions > 1;
  return o;
}

std::string tensor(const std::string& inside) { return test::module("%a: tensor<" + inside + ">", "", "return"); }

std::string collective(const std::string& name, const std::string& attributes) {
  return test::module("%a: tensor<4xf32>", "tensor<4xf32>",
                      "%0 = \"stablehlo." + name +
                          "\"(%a) ({ ^bb0(%x: tensor<f32>, %y: tensor<f32>):\n"
                          "  stablehlo.return %x : tensor<f32> }) {" +
                          attributes +
                          "} : (tensor<4xf32>) -> tensor<4xf32>\n"
                          "return %0 : tensor<4xf32>");
}

std::string groups(const std::string& list) { return "replica_groups = dense<" + list + "> : tensor<1x4xi64>"; }
const std::string kChannel = ", channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>";
const std::string kGlobal = kChannel + ", use_global_device_ids";

std::string top_k(const std::string& operands, const std::string& results) {
  return test::module("%a: " + operands, results,
                      "%0:2 = stablehlo.custom_call @TopK(%a) : (" + operands + ") -> (" + results + ")\nreturn");
}

TEST(ProgramCheck, NothingAndBytecodeAreRefused) {
  refused("empty", "");
  refused("empty", " \n\t ");
  refused("bytecode", "ML\xefR rest");
}

TEST(ProgramCheck, DynamicDimensionsNeedABound) {
  refused("dimension 0 is dynamic", tensor("?x8xf32"));
  refused("dimension 1 is dynamic", tensor("8x?xf32"));
  refused("dimension 0 is dynamic", tensor("?xf32"));
  refused("dimension 0 is dynamic", tensor("?x8xf32, #stablehlo.bounds<?, 16>"));
  refused("dimension 1 is dynamic", tensor("?x?xf32, #stablehlo.bounds<16, ?>"));
  refused("dimension 0 is dynamic", "#b = #stablehlo.bounds<?, 16>\n" + tensor("?x8xf32, #b"));
  accepted(tensor("?x8xf32, #stablehlo.bounds<16, ?>"));
  accepted(tensor("?x8xf32, #stablehlo.type_extensions<bounds = [16, ?]>"));
  accepted("#b = #stablehlo.bounds<16, ?>\n" + tensor("?x8xf32, #b"));
  accepted(tensor("f32"));
  accepted(tensor("0x4xcomplex<f32>"));
  accepted(tensor("4x!quant.uniform<i8:f32, 1.0>"));
}

TEST(ProgramCheck, SizesThatCannotBeCountedAreRefused) {
  refused("more elements", tensor("9000000000000000000x4xf32"));
  refused("more elements", tensor("99999999999999999999999999xf32"));
  refused("more elements", tensor("4611686018427387904xi8"));
  refused("more elements", tensor("?x8xf32, #stablehlo.bounds<9000000000000000000, ?>"));
  accepted(tensor("1099511627776xf32"));
}

TEST(ProgramCheck, NestingThatOverflowsAParsersStackIsRefused) {
  const auto nested = [](size_t n) {
    std::string out;
    for (size_t i = 0; i < n; ++i) out += "tuple<";
    return "module { func.func @main(%a: " + out + "tensor<f32>" + std::string(n, '>') + ") { return } }";
  };
  accepted(nested(100));
  refused("500 deep", nested(501));
  refused("500 deep", nested(1000000));
  refused("500 deep", std::string(100000, '('));
}

TEST(ProgramCheck, NumbersThatSizeAParsersTablesAreLimited) {
  refused("result number #2147483648", test::module("", "tensor<f32>", "return %0#2147483648 : tensor<f32>"));
  accepted(test::module("", "tensor<f32>", "return %0#12 : tensor<f32>"));
  const auto convolution = [](const std::string& dim) {
    return test::module("", "",
                        "%0 = stablehlo.convolution(%a, %k) dim_numbers = [b, 0, " + dim +
                            ", f]x[0, 1, i, o]->[b, 0, 1, f], "
                            "window = {stride = [100000, 1]} : (tensor<1x8x8x3xf32>, tensor<3x3x3x4xf32>) -> "
                            "tensor<1x3x3x4xf32>\nreturn");
  };
  refused("convolution dimension 2147483348", convolution("2147483348"));
  accepted(convolution("1"));
}

TEST(ProgramCheck, StringsAndCommentsAreNotRead) {
  accepted("// tensor<?x4xf32>\n" + tensor("4xf32"));
  accepted(test::module("%a: tensor<4xf32>", "",
                        "%0 = stablehlo.custom_call @k(%a) {backend_config = \"tensor<?x4xf32> \\\" @TopK(\"} "
                        ": (tensor<4xf32>) -> tensor<4xf32>\nreturn"));
  refused("dynamic", "// a comment with a \" quote\n" + tensor("?x4xf32"));
  accepted("\"never closed tensor<?x4xf32>");
}

TEST(ProgramCheck, GroupsNameReplicasWithoutAChannel) {
  for (const char* name : {"all_reduce", "all_gather", "reduce_scatter", "all_to_all", "collective_broadcast"}) {
    accepted(collective(name, groups("[[0, 1, 2, 3]]")), over(4));
    refused(std::string(name) + ": replica_groups names participant 3", collective(name, groups("[[0, 1, 2, 3]]")),
            over(3));
    refused("names participant 1", collective(name, groups("[[0, 1, 2, 3]]")));
    refused("1 replicas", collective(name, groups("[[0, 1, 2, 3]]")), over(1, 4));
  }
  accepted(collective("all_reduce", groups("[[0, 1, 2, -1]]")), over(4));
  accepted(collective("all_reduce", "replica_groups = dense<> : tensor<0x0xi64>"));
  accepted(collective("all_reduce", "replica_groups = dense<0> : tensor<1x1xi64>"));
  refused("participant 7", collective("all_reduce", "replica_groups = dense<7> : tensor<1x1xi64>"), over(4));
  refused("participant -2", collective("all_reduce", groups("[[0, 1, 2, -2]]")), over(4));
}

TEST(ProgramCheck, GroupsNameDevicesWithAChannelAndGlobalIds) {
  for (const char* name : {"all_reduce", "all_gather", "reduce_scatter"}) {
    accepted(collective(name, groups("[[0, 1, 2, 3]]") + kGlobal), over(1, 4));
    accepted(collective(name, groups("[[0, 1, 2, 3]]") + kGlobal), over(2, 2));
    refused("2 replicas x partitions", collective(name, groups("[[0, 1, 2, 3]]") + kGlobal), over(1, 2));
    refused("1 replicas", collective(name, groups("[[0, 1, 2, 3]]") + kChannel), over(1, 4));
  }
}

TEST(ProgramCheck, ExchangesWithAChannelNamePartitions) {
  accepted(collective("all_to_all", groups("[[0, 1, 2, 3]]") + kChannel), over(1, 4));
  refused("1 partitions", collective("all_to_all", groups("[[0, 1, 2, 3]]") + kChannel), over(4));
  const std::string pairs = "source_target_pairs = dense<[[0, 1], [1, 0]]> : tensor<2x2xi64>";
  accepted(collective("collective_permute", pairs), over(2));
  accepted(collective("collective_permute", pairs + kChannel), over(1, 2));
  refused("source_target_pairs names participant 1", collective("collective_permute", pairs));
}

TEST(ProgramCheck, GroupsAreReadInEverySpelling) {
  const std::string hex = "replica_groups = dense<\"0x00000000000000000500000000000000\"> : tensor<1x2xi64>";
  refused("participant 5", collective("all_reduce", hex), over(4));
  accepted(collective("all_reduce", hex), over(6));
  refused("participant 5", "#g = dense<[[0, 5]]> : tensor<1x2xi64>\n" + collective("all_reduce", "replica_groups = #g"),
          over(4));
  refused("participant 5",
          test::module("", "",
                       "%0 = \"stablehlo.all_gather\"(%a) <{all_gather_dim = 0 : i64, replica_groups = "
                       "dense<[[0, 5]]> : tensor<1x2xi64>}> : (tensor<4xf32>) -> tensor<8xf32>"),
          over(4));
  refused("participant 5",
          test::module("", "",
                       "%0 = \"vhlo.all_gather_v2\"(%a) <{replica_groups = "
                       "dense<[[0, 5]]> : tensor<1x2xi64>}> : (tensor<4xf32>) -> tensor<8xf32>"),
          over(4));
}

TEST(ProgramCheck, TopKMustHaveTheTypesItsKernelTakesOnTrust) {
  accepted(top_k("tensor<4x16xf32>", "tensor<4x8xf32>, tensor<4x8xi32>"));
  accepted(top_k("tensor<16xbf16>", "tensor<16xbf16>, tensor<16xi32>"));
  refused("1 operand and gives 2 results", top_k("tensor<4x16xf32>", "tensor<4x8xf32>"));
  refused("TopK", top_k("tensor<4x16xf32>", "tensor<4x32xf32>, tensor<4x32xi32>"));
  refused("TopK", top_k("tensor<4x16xf32>", "tensor<4x8xf64>, tensor<4x8xi32>"));
  refused("TopK", top_k("tensor<4x16xf32>", "tensor<4x8xf32>, tensor<4x8xi64>"));
  refused("TopK", top_k("tensor<4x16xf32>", "tensor<8xf32>, tensor<8xi32>"));
  refused("TopK", top_k("tensor<2x4x16xf32>", "tensor<2x4x8xf32>, tensor<2x4x8xi32>"));
  refused("TopK", top_k("tensor<f32>", "tensor<f32>, tensor<i32>"));
  refused("TopK", top_k("tensor<4x16xf32>, tensor<4x16xf32>", "tensor<4x8xf32>, tensor<4x8xi32>"));
  const std::string generic =
      "%0 = \"stablehlo.custom_call\"(%a) <{call_target_name = \"TopK\"}> : (tensor<4x16xf32>) -> ";
  refused("TopK", test::module("", "", generic + "tensor<4x8xf32>\nreturn"));
  accepted(test::module("", "", generic + "tuple<tensor<4x8xf32>, tensor<4x8xi32>>\nreturn"));
  refused("TopK", test::module("", "", "%0 = stablehlo.custom_call @\"TopK\"() : () -> tensor<4x8xf32>\nreturn"));
  accepted(test::module("", "",
                        "%0 = stablehlo.custom_call @TopKOther(%a) : (tensor<4x16xf32>) -> tensor<4x8xf32>\nreturn"));
}

TEST(ProgramCheck, PartialReduceNeedsItsComputation) {
  const std::string call = "%0 = stablehlo.custom_call @PartialReduce(%a)";
  const std::string types = " : (tensor<16xf32>) -> tensor<8xf32>\nreturn";
  refused("called_computations", test::module("", "", call + types));
  refused("called_computations", test::module("", "", call + " {called_computations = []}" + types));
  accepted(test::module("", "", call + " {called_computations = [@f]}" + types));
}

TEST(ProgramCheck, ShardyDoesNotReadMhloShardings) {
  const std::string program = test::module("%a: tensor<4xf32> {mhlo.sharding = \"{devices=[4]<=[4]}\"}", "", "return");
  CompileOptions o = over(1, 4);
  accepted(program, o);
  o.shardy = true;
  refused("mhlo.sharding", program, o);
  o.num_partitions = 1;
  accepted(program, o);
}

TEST(ProgramCheck, UnfinishedTextIsLeftToThePlugin) {
  const std::string whole = collective("all_reduce", groups("[[0, 1, 2, 3]]") + kGlobal) +
                            top_k("tensor<4x16xf32>", "tensor<4x8xf32>, tensor<4x8xi32>") +
                            tensor("?x8xf32, #stablehlo.bounds<16, ?>");
  for (size_t n = 1; n < whole.size(); ++n) {
    try {
      validate_program(whole.substr(0, n), over(2, 2));
    } catch (const Error&) {
      // Refusing is fine; crashing is not.
    }
  }
}

}  // namespace
}  // namespace tpj::pjrt
