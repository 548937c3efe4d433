// Building and running: shapes, inputs, messages, control flow.
#include "runtime/engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "engine/build_helpers.h"

namespace ulpscope::testing {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

/// y = softmax(x w) of x [batch, 3].
Model dynamic_model() {
  Model model;
  set_type(*model.graph().add_input(), "x", onnx::TensorProto::FLOAT, {1, 3});
  model.graph().mutable_input(0)->mutable_type()->mutable_tensor_type()->mutable_shape()->mutable_dim(0)->set_dim_param(
      "batch");
  model.node("MatMul", {"x", "w"}, {"p"}, "Product");
  model.node("Softmax", {"p"}, {"y"}, "Softmax");
  *model.graph().add_initializer() = float_tensor("w", {3, 2}, {1, 0, 0, 1, 0, 0});
  model.output("y");
  return model;
}

TEST(Engine, RunsTheShapesThatComeOneAfterTheOther) {
  const auto network = dynamic_model().load();
  for (Fusion fusion : {Fusion::kNone, Fusion::kFull}) {
    const auto engine = Engine::build(network, fp16_options(ConstraintMode::kNone, fusion, true));
    EXPECT_THAT(engine->inputs()[0].shape, ::testing::Optional(ElementsAre(-1, 3)));
    for (std::int64_t batch : {2, 5, 1, 5, 300, 2, 0}) {
      Tensor x(DataType::kFloat32, {batch, 3});
      for (std::int64_t i = 0; i < x.size(); ++i) x.data<float>()[i] = static_cast<float>(i % 5);
      const auto y = engine->run(std::vector<Tensor>{x})[0];
      EXPECT_THAT(y.shape(), ElementsAre(batch, 2));
      for (std::int64_t b = 0; b < batch; ++b) {
        const double difference =
            static_cast<double>(x.data<float>()[b * 3]) - static_cast<double>(x.data<float>()[b * 3 + 1]);
        EXPECT_NEAR(y.data<float>()[b * 2], 1 / (1 + std::exp(-difference)), 1e-3) << "batch " << batch;
      }
    }
  }
}

TEST(Engine, ProfilesLimitTheShapes) {
  BuildOptions options = tested_options();
  options.profiles.push_back({{{"x", {2, 3}}}, {{"x", {4, 3}}}, {{"x", {8, 3}}}});
  const auto engine = Engine::build(dynamic_model().load(), options);
  for (std::int64_t batch : {2, 8})
    EXPECT_THAT(engine->run(std::vector<Tensor>{Tensor(DataType::kFloat32, {batch, 3})})[0].shape(),
                ElementsAre(batch, 2));
  for (std::int64_t batch : {1, 9})
    expect_error(ErrorCode::kInvalidArgument, {"'x'", "profile"}, [&] {
      engine->run(std::vector<Tensor>{Tensor(DataType::kFloat32, {batch, 3})});
    });
  options.profiles[0].opt["x"] = {4, 7};
  expect_error(ErrorCode::kInvalidArgument, {"'x'", "(4, 7)"}, [&] { Engine::build(dynamic_model().load(), options); });
}

TEST(Engine, NamesTheInputThatDoesNotFit) {
  const auto engine = Engine::build(dynamic_model().load(), {});
  const Tensor good(DataType::kFloat32, {2, 3});
  expect_error(ErrorCode::kInvalidArgument, {"expected 1 inputs, got 0"}, [&] { engine->run({}); });
  expect_error(ErrorCode::kInvalidArgument, {"expected 1 inputs, got 2"}, [&] {
    engine->run(std::vector<Tensor>{good, good});
  });
  expect_error(ErrorCode::kInvalidArgument, {"'x'", "float32", "float64"}, [&] {
    engine->run(std::vector<Tensor>{Tensor(DataType::kFloat64, {2, 3})});
  });
  expect_error(ErrorCode::kInvalidArgument, {"'x'", "(2, 4)"}, [&] {
    engine->run(std::vector<Tensor>{Tensor(DataType::kFloat32, {2, 4})});
  });
  expect_error(ErrorCode::kInvalidArgument, {"'x'", "(6,)"},
               [&] { engine->run(std::vector<Tensor>{Tensor(DataType::kFloat32, {6})}); });
}

TEST(Engine, HandsOutAnInputAndAConstantAsTheyAre) {
  Model model;
  model.input("x", {2});
  model.node("Identity", {"x"}, {"same"}, "Same");
  model.node("Identity", {"c"}, {"constant"}, "Constant");
  *model.graph().add_initializer() = float_tensor("c", {2}, {1e6f, 2});
  model.output("same");
  model.output("constant");
  const auto outputs = Engine::build(model.load(), fp16_options(ConstraintMode::kNone, Fusion::kFull, true))
                           ->run(std::vector<Tensor>{Tensor::of<float>({2}, {1e6f, 1})});
  EXPECT_THAT(floats(outputs[0]), ElementsAre(1e6f, 1));
  EXPECT_THAT(floats(outputs[1]), ElementsAre(1e6f, 2));
}

TEST(Engine, OutputsAreTheCallersOwn) {
  const auto engine = Engine::build(add_sub(), {});
  const auto first = engine->run(std::vector<Tensor>{Tensor::of<float>({4}, {1, 1, 1, 1})});
  engine->run(std::vector<Tensor>{Tensor::of<float>({4}, {2, 2, 2, 2})});
  EXPECT_THAT(floats(first[0]), Each(1.0f));
}

TEST(Engine, FoldsABatchNormalizationIntoItsConvolutionInFp32) {
  // A variance of 1e8 is infinite in fp16; scale and weight together are ordinary numbers.
  Model model;
  model.input("x", {1, 1, 2, 2});
  model.node("Conv", {"x", "w"}, {"c"}, "Conv");
  auto& norm = model.node("BatchNormalization", {"c", "one", "zero", "zero", "variance"}, {"y"}, "Norm");
  add_attribute(norm, "epsilon", onnx::AttributeProto::FLOAT).set_f(0);
  *model.graph().add_initializer() = float_tensor("w", {1, 1, 1, 1}, {20000});
  *model.graph().add_initializer() = float_tensor("one", {1}, {1});
  *model.graph().add_initializer() = float_tensor("zero", {1}, {0});
  *model.graph().add_initializer() = float_tensor("variance", {1}, {1e8f});
  model.output("y");
  const std::vector<Tensor> x{Tensor::of<float>({1, 1, 2, 2}, {1, 2, 4, 8})};
  EXPECT_THAT(run_first(*Engine::build(model.load(), fp16_options(ConstraintMode::kNone, Fusion::kFull, true)), x),
              ElementsAre(2, 4, 8, 16));
  // Apart, the convolution overflows from 4 on; the parameters themselves are still prepared in fp32.
  EXPECT_THAT(run_first(*Engine::build(model.load(), fp16_options(ConstraintMode::kNone, Fusion::kNone, true)), x),
              ElementsAre(::testing::FloatNear(2, 1e-2f), ::testing::FloatNear(4, 1e-2f), INFINITY, INFINITY));
}

/// y = (x > 0 somewhere) ? (x + 65504) - 65504 : -x, inside of an If.
Model branches() {
  Model model;
  model.input("x", {2});
  add_saturating_choice(model, "y");
  model.output("y");
  return model;
}

TEST(ControlFlow, BranchesFollowTheSameRules) {
  const auto network = branches().load();
  const std::vector<Tensor> positive{Tensor::of<float>({2}, {1, 1.5f})},
      negative{Tensor::of<float>({2}, {-1, -1.0001f})};
  const auto lowest = [&](Fusion fusion) {
    return Engine::build(network, fp16_options(ConstraintMode::kNone, fusion, true));
  };
  EXPECT_THAT(run_first(*lowest(Fusion::kFull), positive), ElementsAre(1, 1.5f));
  EXPECT_THAT(run_first(*lowest(Fusion::kNone), positive), ElementsAre(0, 0));
  EXPECT_THAT(run_first(*lowest(Fusion::kNone), negative), ElementsAre(1, 1));
  // Costs are not modeled inside of branches: they stay in fp32.
  EXPECT_THAT(run_first(*Engine::build(network, fp16_options()), negative), ElementsAre(1, 1.0001f));
}

TEST(ControlFlow, BodiesObeyThePrecisionOfTheirLayer) {
  const auto network = branches().load();
  layer_named(*network, "If").precision = DataType::kFloat32;
  const std::vector<Tensor> positive{Tensor::of<float>({2}, {1, 1.5f})};
  const auto engine = Engine::build(network, fp16_options(ConstraintMode::kObey, Fusion::kNone, true));
  EXPECT_THAT(run_first(*engine, positive), ElementsAre(1, 1.5f));
}

TEST(ControlFlow, LoopsCarryRoundedValues) {
  // s = 2048; four times s = s + 1: fp16 has no 2049.
  Model model;
  model.input("x", {1});
  auto& loop = model.node("Loop", {"trips", "", "x"}, {"y"}, "Loop");
  onnx::GraphProto& body = *add_attribute(loop, "body", onnx::AttributeProto::GRAPH).mutable_g();
  body.set_name("body");
  set_type(*body.add_input(), "i", onnx::TensorProto::INT64, {});
  set_type(*body.add_input(), "go", onnx::TensorProto::BOOL, {});
  set_type(*body.add_input(), "s", onnx::TensorProto::FLOAT, {1});
  add_node(body, "Identity", {"go"}, {"go_on"}, "Go");
  add_node(body, "Add", {"s", "one"}, {"next"}, "Count");
  body.add_output()->set_name("go_on");
  body.add_output()->set_name("next");
  *model.graph().add_initializer() = int64_tensor("trips", {}, {4});
  *model.graph().add_initializer() = float_tensor("one", {1}, {1});
  model.output("y");
  const auto network = model.load();
  const std::vector<Tensor> x{Tensor::of<float>({1}, {2048})};
  EXPECT_THAT(run_first(*Engine::build(network, {}), x), ElementsAre(2052));
  EXPECT_THAT(run_first(*Engine::build(network, fp16_options(ConstraintMode::kNone, Fusion::kFull, true)), x),
              ElementsAre(2048));
}

}  // namespace
}  // namespace ulpscope::testing
