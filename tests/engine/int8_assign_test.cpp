// Which layers take int8, what is said about those that do not, and what is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "compare/log_capture.h"
#include "engine/build_helpers.h"
#include "engine/tactics.h"

namespace ulpscope::testing {
namespace {

using ::testing::HasSubstr;

/// y = Relu(x w + b) + r, layers "MatMul", "Bias", "Relu", "Sum".
Model biased_product() {
  Model model;
  model.input("x", {4, 8});
  model.input("r", {4, 6});
  model.node("MatMul", {"x", "w"}, {"xw"}, "MatMul");
  model.node("Add", {"xw", "b"}, {"z"}, "Bias");
  model.node("Relu", {"z"}, {"a"}, "Relu");
  model.node("Add", {"a", "r"}, {"y"}, "Sum");
  *model.graph().add_initializer() = float_tensor("w", {8, 6}, std::vector<float>(48, 0.5f));
  *model.graph().add_initializer() = float_tensor("b", {6}, std::vector<float>(6, 0.25f));
  model.output("y");
  return model;
}

BuildOptions options_with_scales(std::map<std::string, float> scales, ConstraintMode mode = ConstraintMode::kNone,
                                 bool lowest = true) {
  BuildOptions options = fp16_options(mode, Fusion::kFull, lowest);
  options.enabled.set(Precision::kINT8);
  options.scales = std::move(scales);
  return options;
}

TEST(Int8Choice, TheLowestWhereScalesAllowIt) {
  auto rows =
      report_of(*Engine::build(biased_product().load(), options_with_scales({{"x", 0.1f}, {"a", 0.1f}, {"r", 1.0f}})));
  EXPECT_EQ(rows["MatMul"].precision, "int8");
  EXPECT_EQ(rows["MatMul"].reason, "the lowest enabled precision");
  EXPECT_EQ(rows["Bias"].precision, "int8");
  EXPECT_EQ(rows["Relu"].precision, "fp16");
  EXPECT_EQ(rows["Sum"].precision, "int8");
  EXPECT_EQ(rows["MatMul"].group, "MatMul + Bias + Relu");
  EXPECT_EQ(rows["Sum"].group, "Sum");
}

TEST(Int8Choice, ALayerWithoutAScaleTakesTheNextHigherPrecisionAndTheTensorIsNamed) {
  auto model = biased_product();
  model.graph().mutable_input(1)->set_name("no_scale");
  *model.graph().mutable_node(3)->mutable_input(1) = "no_scale";
  const LogCapture log;
  auto rows =
      report_of(*Engine::build(model.load(), options_with_scales({{"x", 0.1f}, {"a", 0.1f}, {"elsewhere", 1.0f}})));
  EXPECT_TRUE(log.has("[W] int8: 1 tensor(s) have no scale"));
  EXPECT_TRUE(log.has("precision: no_scale."));
  EXPECT_EQ(rows["MatMul"].precision, "int8");
  EXPECT_EQ(rows["Sum"].precision, "fp16");
  EXPECT_THAT(rows["Sum"].reason, HasSubstr("no int8 scale for 'no_scale'"));
}

TEST(Int8Choice, TheWarningNamesTenTensorsAndCountsTheRest) {
  Model model;
  model.input("x0", {2});
  for (int i = 0; i < 13; ++i)
    model.node("Add", {"x" + std::to_string(i), "x" + std::to_string(i)}, {"x" + std::to_string(i + 1)});
  model.output("x13");
  const LogCapture log;
  Engine::build(model.load(), options_with_scales({{"x0", 1.0f}}));
  EXPECT_TRUE(log.has("12 tensor(s) have no scale"));
  EXPECT_TRUE(log.has("x10 and 2 more"));
  EXPECT_FALSE(log.has("x11,"));
}

TEST(Int8Choice, RefusedRequestsNameTheLayerAndTheReason) {
  const auto with = [](const char* name, DataType type, std::map<std::string, float> scales, ConstraintMode mode) {
    auto network = biased_product().load();
    layer_named(*network, name).precision = type;
    return report_of(*Engine::build(network, options_with_scales(std::move(scales), mode)));
  };
  const std::map<std::string, float> all{{"x", 0.1f}, {"a", 0.1f}, {"r", 0.1f}};
  expect_error(ErrorCode::kBuild, {"'Sum'", "int8", "no scales for r", "obey"},
               [&] { with("Sum", DataType::kInt8, {{"x", 0.1f}, {"a", 1.0f}}, ConstraintMode::kObey); });
  expect_error(ErrorCode::kBuild, {"'Relu'", "no int8 form"},
               [&] { with("Relu", DataType::kInt8, all, ConstraintMode::kObey); });
  {
    const LogCapture log;
    EXPECT_EQ(with("Relu", DataType::kInt8, all, ConstraintMode::kPrefer)["Relu"].precision, "fp16");
    EXPECT_TRUE(log.has("[W] Layer 'Relu' (Relu) was asked to run in int8, but it has no int8 form"));
  }
  EXPECT_EQ(with("MatMul", DataType::kInt8, all, ConstraintMode::kObey)["MatMul"].reason, "requested (obey)");
  auto rows = with("MatMul", DataType::kFloat32, all, ConstraintMode::kObey);
  EXPECT_EQ(rows["MatMul"].precision, "fp32");
  EXPECT_EQ(rows["Bias"].precision, "fp16");
}

TEST(Int8Choice, ABiasFollowsItsProduct) {
  const std::map<std::string, float> scales{{"x", 0.1f}};
  auto network = biased_product().load();
  layer_named(*network, "Bias").precision = DataType::kInt8;
  EXPECT_EQ(report_of(*Engine::build(network, options_with_scales(scales, ConstraintMode::kObey)))["Bias"].precision,
            "int8");
  layer_named(*network, "MatMul").precision = DataType::kFloat16;
  expect_error(ErrorCode::kBuild, {"'Bias'", "int8", "the bias of 'MatMul'"},
               [&] { Engine::build(network, options_with_scales(scales, ConstraintMode::kObey)); });
  EXPECT_EQ(report_of(*Engine::build(network, options_with_scales(scales, ConstraintMode::kPrefer)))["Bias"].precision,
            "fp16");
  // A bias in fp32 is still added before anything is rounded, and stored as asked.
  layer_named(*network, "MatMul").precision = DataType::kInt8;
  layer_named(*network, "Bias").precision = DataType::kFloat32;
  auto rows = report_of(*Engine::build(network, options_with_scales(scales, ConstraintMode::kObey)));
  EXPECT_EQ(rows["Bias"].precision, "fp32");
  EXPECT_EQ(rows["Bias"].group, "MatMul + Bias");
}

TEST(Int8Choice, LayersThatMoveValuesPassOnTheirScaleAndTakeAnyRequest) {
  Model model;
  model.input("x", {2, 6});
  model.node("Transpose", {"x"}, {"t"}, "Transpose");
  model.node("Flatten", {"t"}, {"f"}, "Flatten");
  model.node("Mul", {"f", "f"}, {"y"}, "Square");
  model.output("y");
  auto network = model.load();
  layer_named(*network, "Flatten").precision = DataType::kInt8;
  layer_named(*network, "Square").precision = DataType::kInt8;
  const Tensor x = Tensor::of<float>({2, 6}, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12.4f});
  const auto engine = Engine::build(network, options_with_scales({{"x", 1.0f}}, ConstraintMode::kObey));
  EXPECT_THAT(run_first(*engine, {x}), ::testing::ElementsAre(1, 49, 4, 64, 9, 81, 16, 100, 25, 121, 36, 144));
}

TEST(Int8Choice, ReversedAndCompressedValuesHaveTheirScaleToo) {
  Model model;
  model.input("x", {3, 2});
  *model.graph().add_initializer() = int64_tensor("lengths", {2}, {3, 2});
  onnx::TensorProto& wanted = *model.graph().add_initializer();
  wanted.set_name("wanted");
  wanted.set_data_type(onnx::TensorProto::BOOL);
  wanted.add_dims(3);
  for (const int each : {1, 0, 1}) wanted.add_int32_data(each);
  model.node("ReverseSequence", {"x", "lengths"}, {"r"}, "Reverse");
  add_attribute(model.node("Compress", {"r", "wanted"}, {"c"}, "Compress"), "axis", onnx::AttributeProto::INT).set_i(0);
  model.node("Mul", {"c", "c"}, {"y"}, "Square");
  model.output("y");
  auto network = model.load();
  layer_named(*network, "Square").precision = DataType::kInt8;
  const Tensor x = Tensor::of<float>({3, 2}, {1, 2.4f, 3, 4, 5.4f, 6});
  const auto engine = Engine::build(network, options_with_scales({{"x", 1.0f}}, ConstraintMode::kObey));
  EXPECT_THAT(run_first(*engine, {x}), ::testing::ElementsAre(25, 16, 1, 36));
}

TEST(Int8Choice, CostsTakeItForLargeProductsOnly) {
  Model model;
  model.input("x", {2048, 2048});
  model.node("MatMul", {"x", "x"}, {"a"}, "First");
  model.node("MatMul", {"a", "x"}, {"b"}, "Second");
  model.node("Relu", {"b"}, {"y"}, "Relu");
  model.output("y");
  auto rows = report_of(
      *Engine::build(model.load(), options_with_scales({{"x", 0.1f}, {"a", 1.0f}}, ConstraintMode::kNone, false)));
  EXPECT_EQ(rows["First"].precision, "int8");
  EXPECT_THAT(rows["First"].reason, HasSubstr("NVIDIA L4"));
  EXPECT_EQ(rows["Second"].precision, "int8");
  EXPECT_EQ(rows["Relu"].precision, "fp16");
  EXPECT_EQ(rows["Second"].group, "Second + Relu");
  rows = report_of(*Engine::build(biased_product().load(), options_with_scales({{"x", 0.1f}, {"a", 1.0f}, {"r", 1.0f}},
                                                                               ConstraintMode::kNone, false)));
  for (const char* name : {"MatMul", "Bias", "Relu", "Sum"}) EXPECT_EQ(rows[name].precision, "fp32") << name;
}

// Whoever gives scales wants to see what they do: a launch for every boundary would leave all of this in float32. The
// Relu, which has no int8 form, is no boundary where nothing but float32 is beside int8.
TEST(Int8Choice, CostsTakeItForSmallProductsBehindEachOther) {
  Model model;
  model.input("x", {2, 8});
  *model.graph().add_initializer() = float_tensor("w", {8, 8}, std::vector<float>(64, 0.5f));
  *model.graph().add_initializer() = float_tensor("v", {8, 8}, std::vector<float>(64, 0.25f));
  model.node("MatMul", {"x", "w"}, {"a"}, "First");
  model.node("Relu", {"a"}, {"b"}, "Relu");
  model.node("MatMul", {"b", "v"}, {"y"}, "Second");
  model.output("y");
  for (bool fp16 : {false, true}) {
    BuildOptions options = options_with_scales({{"x", 0.1f}, {"b", 1.0f}}, ConstraintMode::kNone, false);
    options.enabled.set(Precision::kFP16, fp16);
    auto rows = report_of(*Engine::build(model.load(), options));
    EXPECT_EQ(rows["First"].precision, "int8");
    EXPECT_EQ(rows["Relu"].precision, fp16 ? "fp16" : "fp32");
    EXPECT_EQ(rows["Second"].precision, "int8");
    EXPECT_EQ(rows["First"].group, "First + Relu");
  }
}

TEST(Int8Choice, RefusesScalesThatAreNoNumbers) {
  for (float bad : {-1.0f, std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()})
    expect_error(ErrorCode::kInvalidArgument, {"'x'", "scale"},
                 [&] { Engine::build(biased_product().load(), options_with_scales({{"x", bad}})); });
}

TEST(Int8Choice, AReplayKeepsTheEpilogueOfAnInt8ProductInFloat) {
  const BuildOptions options = options_with_scales({{"x", 0.1f}});
  BuildOptions again = options;
  again.tactic_replay = std::make_shared<const TacticReplay>(
      tactics_from_json(Engine::build(biased_product().load(), options)->tactic_replay_json()));
  auto rows = report_of(*Engine::build(biased_product().load(), again));
  EXPECT_EQ(rows["MatMul"].precision, "int8");
  EXPECT_EQ(rows["Bias"].precision, "int8");
  EXPECT_EQ(rows["Relu"].precision, "fp16");
}

}  // namespace
}  // namespace ulpscope::testing
