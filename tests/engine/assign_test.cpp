// Constraints, flags and costs decide what layers compute in.
#include "engine/assign.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "compare/log_capture.h"
#include "engine/build_helpers.h"
#include "graph/outputs.h"

namespace ulpscope::testing {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

const std::vector<Tensor> kX{Tensor::of<float>({4}, {1, 1.25f, 1.5f, 2})};
const auto kSurvives = ElementsAre(1, 1.25f, 1.5f, 2);

std::shared_ptr<Network> constrained(DataType add, DataType sub) {
  auto network = add_sub();
  layer_named(*network, "Add").precision = add;
  layer_named(*network, "Sub").precision = sub;
  return network;
}

TEST(Constraints, AnFp16SumReadByAnFp32DifferenceIsStoredAsTheMaximum) {
  auto network = constrained(DataType::kFloat16, DataType::kFloat32);
  mark_outputs(*network, std::vector<std::string>{"mark", "all"});
  for (ConstraintMode mode : {ConstraintMode::kPrefer, ConstraintMode::kObey}) {
    const auto outputs = Engine::build(network, fp16_options(mode))->run(kX);
    EXPECT_THAT(floats(outputs[0]), Each(65504.0f));
    EXPECT_THAT(floats(outputs[1]), Each(0.0f));
  }
}

TEST(Constraints, BothInFp16FuseAndNothingIsLost) {
  const auto network = constrained(DataType::kFloat16, DataType::kFloat16);
  for (Fusion fusion : {Fusion::kPointwise, Fusion::kFull})
    EXPECT_THAT(run_first(*Engine::build(network, fp16_options(ConstraintMode::kObey, fusion)), kX), kSurvives);
  EXPECT_THAT(run_first(*Engine::build(network, fp16_options(ConstraintMode::kObey, Fusion::kNone)), kX), Each(0.0f));
}

TEST(Constraints, NetworkOutputsEndGroups) {
  auto network = constrained(DataType::kFloat16, DataType::kFloat16);
  network->outputs.push_back(network->find_tensor("sum"));
  EXPECT_THAT(run_first(*Engine::build(network, fp16_options(ConstraintMode::kObey)), kX), Each(0.0f));
}

TEST(Constraints, AnOutputTypeStoresTheTensorAndEndsItsGroup) {
  auto network = constrained(DataType::kFloat16, DataType::kFloat16);
  layer_named(*network, "Add").output_types = {DataType::kFloat16};
  EXPECT_THAT(run_first(*Engine::build(network, fp16_options(ConstraintMode::kObey)), kX), Each(0.0f));
  // Stored as float32, but rounded by the reader all the same.
  layer_named(*network, "Add").output_types = {DataType::kFloat32};
  EXPECT_THAT(run_first(*Engine::build(network, fp16_options(ConstraintMode::kObey)), kX), Each(0.0f));
  layer_named(*network, "Sub").precision = DataType::kFloat32;
  EXPECT_THAT(run_first(*Engine::build(network, fp16_options(ConstraintMode::kObey)), kX), kSurvives);
}

TEST(Constraints, NoneMeansNoEffectAndAWarningThatListsThem) {
  const LogCapture log;
  const auto engine = Engine::build(constrained(DataType::kFloat16, DataType::kFloat32), fp16_options());
  EXPECT_TRUE(log.has("[W] Precisions were set for 2 layer(s)"));
  EXPECT_TRUE(log.has("Add:float16, Sub:float32"));
  EXPECT_THAT(run_first(*engine, kX), kSurvives);
}

TEST(Constraints, WhatIsNotEnabledIsWarnedOfOrRefusedByName) {
  const auto network = constrained(DataType::kBFloat16, DataType::kFloat32);
  {
    const LogCapture log;
    const auto engine = Engine::build(network, fp16_options(ConstraintMode::kPrefer));
    EXPECT_TRUE(
        log.has("[W] Layer 'Add' (Add) was asked to run in bfloat16, but bfloat16 is not enabled (add --bf16)"));
    EXPECT_FALSE(log.has("'Sub'"));
    EXPECT_EQ(report_of(*engine)["Sub"].precision, "fp32");
  }
  expect_error(ErrorCode::kBuild, {"'Add'", "bfloat16", "--bf16", "obey"},
               [&] { Engine::build(network, fp16_options(ConstraintMode::kObey)); });
}

TEST(Constraints, Int8WithoutScalesIsRefusedAndOtherwiseTakesTheNextPrecision) {
  BuildOptions options = fp16_options(ConstraintMode::kObey, Fusion::kFull, true);
  options.enabled.set(Precision::kINT8);
  const auto network = constrained(DataType::kInt8, DataType::kFloat32);
  expect_error(ErrorCode::kBuild, {"'Add'", "no int8 form"}, [&] { Engine::build(network, options); });
  EXPECT_EQ(report_of(*Engine::build(add_sub(), options))["Add"].precision, "fp16");
}

TEST(Constraints, ALayerThatMovesValuesTakesItsRequestAsItsStorage) {
  Model model;
  model.input("x", {4});
  model.node("Relu", {"x"}, {"r"}, "Relu");
  model.node("Identity", {"r"}, {"y"}, "Move");
  model.output("y");
  const auto network = model.load();
  layer_named(*network, "Relu").precision = DataType::kFloat32;
  layer_named(*network, "Move").precision = DataType::kFloat16;
  const auto y = run_first(*Engine::build(network, fp16_options(ConstraintMode::kObey)),
                           {Tensor::of<float>({4}, {1, 1.0001f, 1e5f, 0})});
  EXPECT_THAT(y, ElementsAre(1, 1, INFINITY, 0));
}

TEST(Costs, KeepTheTinyPublishedNetworkInFp32) {
  const auto engine = Engine::build(needs_constraints().load(), fp16_options());
  for (const auto& [name, row] : report_of(*engine))
    if (row.op != "Constant") {
      EXPECT_EQ(row.precision, "fp32") << name;
      EXPECT_THAT(row.reason, HasSubstr("NVIDIA L4")) << name;
    }
}

TEST(Costs, LowerALargeProduct) {
  Model model;
  model.input("x", {2048, 2048});
  model.node("MatMul", {"x", "x"}, {"a"}, "First");
  model.node("MatMul", {"a", "x"}, {"y"}, "Second");
  model.output("y");
  const auto rows = report_of(*Engine::build(model.load(), fp16_options()));
  EXPECT_EQ(rows.at("First").precision, "fp16");
  EXPECT_EQ(rows.at("Second").precision, "fp16");
}

TEST(Costs, AssumeLowestSkipsThem) {
  const auto rows =
      report_of(*Engine::build(needs_constraints().load(), fp16_options(ConstraintMode::kNone, Fusion::kFull, true)));
  for (const char* name : {"MatMul_0", "Add", "Sub", "MatMul_1"}) EXPECT_EQ(rows.at(name).precision, "fp16") << name;
}

TEST(Costs, NeedAKnownTarget) {
  BuildOptions options = fp16_options();
  options.target = "h2000";
  expect_error(ErrorCode::kNotFound, {"h2000", "h200", "a100", "l4", "t4", "orin"},
               [&] { Engine::build(add_sub(), options); });
}

TEST(StronglyTyped, RunsWithTheTypesInTheFile) {
  Model model;
  model.input("x", {2});
  auto& down = model.node("Cast", {"x"}, {"half"}, "Down");
  add_attribute(down, "to", onnx::AttributeProto::INT).set_i(onnx::TensorProto::FLOAT16);
  model.node("Mul", {"half", "half"}, {"square"}, "Square");
  auto& up = model.node("Cast", {"square"}, {"y"}, "Up");
  add_attribute(up, "to", onnx::AttributeProto::INT).set_i(onnx::TensorProto::FLOAT);
  model.output("y");
  BuildOptions options;
  options.strongly_typed = true;
  const std::vector<Tensor> x{Tensor::of<float>({2}, {300, 1.0005f})};
  const auto engine = Engine::build(model.load(), options);
  EXPECT_THAT(run_first(*engine, x), ElementsAre(INFINITY, 1.001953125f));
  EXPECT_EQ(report_of(*engine)["Square"].precision, "fp16");
  options.enabled.set(Precision::kFP16);
  expect_error(ErrorCode::kInvalidArgument, {"strongly typed", "--fp16"},
               [&] { Engine::build(model.load(), options); });
  options.enabled.set(Precision::kFP16, false);
  auto network = model.load();
  layer_named(*network, "Square").precision = DataType::kFloat32;
  expect_error(ErrorCode::kInvalidArgument, {"'Square'", "Cast"}, [&] { Engine::build(network, options); });
}

TEST(Storage, MovementLayersPassOnTheWidestTypeOfTheirInputs) {
  Model model;
  model.input("x", {2});
  model.node("Neg", {"x"}, {"low"}, "Low");
  model.node("Abs", {"x"}, {"high"}, "High");
  auto& concat = model.node("Concat", {"low", "high"}, {"both"}, "Concat");
  add_attribute(concat, "axis", onnx::AttributeProto::INT).set_i(0);
  model.node("Identity", {"low"}, {"copy"}, "Copy");
  model.output("both");
  model.output("copy");
  const auto network = model.load();
  layer_named(*network, "Low").precision = DataType::kFloat16;
  layer_named(*network, "High").precision = DataType::kFloat32;
  const auto spec = specialize(*network, {{2}});
  const auto stored = [&](const Assignment& assignment, const char* name) {
    return assignment.storage[network->find_tensor(name)];
  };
  BuildOptions options = fp16_options(ConstraintMode::kObey);
  const Assignment mixed = assign_precisions(*spec, options);
  EXPECT_EQ(stored(mixed, "both"), DataType::kFloat32);
  EXPECT_EQ(stored(mixed, "copy"), DataType::kFloat16);
  layer_named(*network, "High").precision = DataType::kFloat16;
  EXPECT_EQ(stored(assign_precisions(*spec, options), "both"), DataType::kFloat16);
  // The two narrow types together need a type that holds both.
  layer_named(*network, "High").precision = DataType::kBFloat16;
  options.enabled.set(Precision::kBF16);
  EXPECT_EQ(stored(assign_precisions(*spec, options), "both"), DataType::kFloat32);
}

TEST(Precisions, ConstantsAreFoldedInFp32BeforeTheyAreRounded) {
  Model model;
  model.input("x", {1});
  model.node("Mul", {"big", "big"}, {"huge"}, "Huge");  // 1e10: no fp16 value
  model.node("Div", {"huge", "huge_too"}, {"two"}, "Two");
  model.node("Mul", {"x", "two"}, {"y"}, "Scale");
  *model.graph().add_initializer() = float_tensor("big", {1}, {1e5f});
  *model.graph().add_initializer() = float_tensor("huge_too", {1}, {5e9f});
  model.output("y");
  const auto engine = Engine::build(model.load(), fp16_options(ConstraintMode::kNone, Fusion::kNone, true));
  EXPECT_THAT(run_first(*engine, {Tensor::of<float>({1}, {3})}), ElementsAre(6));
  EXPECT_THAT(report_of(*engine)["Huge"].reason, HasSubstr("before anything runs"));
}

TEST(Precisions, ArithmeticOfShapesStaysInFp32) {
  Model model;
  model.input("x", {1, 5000});
  model.node("ReduceMax", {"x"}, {"top"}, "Top");
  model.node("Mul", {"top", "large"}, {"length"}, "Length");  // 1e5 in fp32, infinity in fp16
  auto& cast = model.node("Cast", {"length"}, {"index"}, "ToInteger");
  add_attribute(cast, "to", onnx::AttributeProto::INT).set_i(onnx::TensorProto::INT64);
  model.node("Mod", {"index", "five"}, {"choice"}, "Choice");
  model.node("Gather", {"table", "choice"}, {"picked"}, "Pick");
  model.node("Mul", {"picked", "x"}, {"y"}, "Scale");
  *model.graph().add_initializer() = float_tensor("large", {}, {100003.0f});
  *model.graph().add_initializer() = float_tensor("table", {5}, {10, 11, 12, 13, 14});
  *model.graph().add_initializer() = int64_tensor("five", {}, {5});
  model.output("y");
  const auto engine = Engine::build(model.load(), fp16_options(ConstraintMode::kNone, Fusion::kNone, true));
  auto rows = report_of(*engine);
  EXPECT_EQ(rows["Length"].precision, "fp32");
  EXPECT_THAT(rows["Length"].reason, HasSubstr("shapes, lengths or indices"));
  EXPECT_EQ(rows["Scale"].precision, "fp16");
  Tensor x(DataType::kFloat32, {1, 5000});
  std::fill_n(x.data<float>(), 5000, 1.0f);
  EXPECT_EQ(run_first(*engine, {x})[0], 13.0f);
}

}  // namespace
}  // namespace ulpscope::testing
