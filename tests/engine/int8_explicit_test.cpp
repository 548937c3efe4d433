// QuantizeLinear and DequantizeLinear around a layer are its int8 form, bit for bit.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/build_helpers.h"
#include "engine/int8_reference.h"
#include "formats/rounding.h"

namespace ulpscope::testing {
namespace {

using ::testing::ElementsAreArray;
using ::testing::Not;

onnx::TensorProto int8_tensor(const std::string& name, const Dims& dims, const std::vector<std::int64_t>& values) {
  onnx::TensorProto result;
  result.set_name(name);
  result.set_data_type(onnx::TensorProto::INT8);
  for (std::int64_t dim : dims) result.add_dims(dim);
  std::string bytes;
  for (std::int64_t value : values) bytes.push_back(static_cast<char>(value));
  result.set_raw_data(bytes);
  return result;
}

/// name -> name_q -> name_dq.
void add_pair(Model& model, const std::string& name, float scale, std::int64_t zero = 0) {
  *model.graph().add_initializer() = float_tensor(name + "_s", {}, {scale});
  *model.graph().add_initializer() = int8_tensor(name + "_z", {}, {zero});
  model.node("QuantizeLinear", {name, name + "_s", name + "_z"}, {name + "_q"}, name + "_Q");
  model.node("DequantizeLinear", {name + "_q", name + "_s", name + "_z"}, {name + "_dq"}, name + "_DQ");
}

/// Constant weights as int8 with a scale per channel of `axis`.
void add_weights(Model& model, const std::string& name, const Dims& dims, const std::vector<std::int64_t>& values,
                 const std::vector<float>& scales, std::int64_t axis) {
  *model.graph().add_initializer() = int8_tensor(name + "_q", dims, values);
  *model.graph().add_initializer() =
      float_tensor(name + "_s", scales.size() == 1 ? Dims{} : Dims{static_cast<std::int64_t>(scales.size())}, scales);
  auto& node = model.node("DequantizeLinear", {name + "_q", name + "_s"}, {name + "_dq"}, name + "_DQ");
  add_attribute(node, "axis", onnx::AttributeProto::INT).set_i(axis);
}

void expect_same_bits(const Model& weak, const std::map<std::string, float>& scales, const Model& typed,
                      const std::vector<Tensor>& inputs) {
  for (Fusion fusion : {Fusion::kNone, Fusion::kPointwise, Fusion::kFull})
    for (int threads : {1, 2}) {
      BuildOptions options = tested_options();
      options.fusion = fusion;
      options.threads = threads;
      BuildOptions int8 = options, strong = options;
      int8.enabled.set(Precision::kINT8);
      int8.assume_lowest = true;
      int8.scales = scales;
      strong.strongly_typed = true;
      const auto engine = Engine::build(weak.load(), int8);
      EXPECT_EQ(report_of(*engine)["Layer"].precision, "int8");
      const auto expected = run_first(*engine, inputs);
      EXPECT_THAT(run_first(*Engine::build(typed.load(), options), inputs), ElementsAreArray(expected));
      EXPECT_THAT(run_first(*Engine::build(typed.load(), strong), inputs), ElementsAreArray(expected));
      // With the flag, the pairs give the scales, and nothing changes.
      int8.scales.clear();
      const auto flagged = Engine::build(typed.load(), int8);
      EXPECT_EQ(report_of(*flagged)["Layer"].precision, "int8");
      EXPECT_THAT(run_first(*flagged, inputs), ElementsAreArray(expected));
    }
}

TEST(ExplicitInt8, MatMulWithBias) {
  std::mt19937 random(1);
  const std::int64_t m = 5, k = 2000, n = 24;
  const auto x = random_values(random, m * k, 2), b = random_values(random, n);
  std::vector<float> w = random_values(random, k * n);
  const auto column = [&](std::size_t i) { return i % static_cast<std::size_t>(n); };
  const auto scales = weight_scales(w, static_cast<std::size_t>(n), column);
  Model weak, typed;
  for (Model* model : {&weak, &typed}) {
    model->input("x", {m, k});
    *model->graph().add_initializer() = float_tensor("b", {n}, b);
  }
  *weak.graph().add_initializer() = float_tensor("w", {k, n}, w);
  weak.node("MatMul", {"x", "w"}, {"xw"}, "Layer");
  weak.node("Add", {"xw", "b"}, {"y"}, "Bias");
  add_pair(typed, "x", 0.05f);
  add_weights(typed, "w", {k, n}, quantized_weights(w, scales, column), scales, 1);
  typed.node("MatMul", {"x_dq", "w_dq"}, {"xw"}, "Layer");
  typed.node("Add", {"xw", "b"}, {"y"}, "Bias");
  for (Model* model : {&weak, &typed}) model->output("y");
  expect_same_bits(weak, {{"x", 0.05f}}, typed, {tensor({m, k}, x)});
}

TEST(ExplicitInt8, ConvolutionWithBias) {
  std::mt19937 random(2);
  const auto x = random_values(random, 8 * 9 * 9), w = random_values(random, 12 * 8 * 9), b = random_values(random, 12);
  const auto channel = [](std::size_t i) { return i / 72; };
  const auto scales = weight_scales(w, 12, channel);
  Model weak, typed;
  for (Model* model : {&weak, &typed}) {
    model->input("x", {1, 8, 9, 9});
    *model->graph().add_initializer() = float_tensor("b", {12}, b);
  }
  *weak.graph().add_initializer() = float_tensor("w", {12, 8, 3, 3}, w);
  weak.node("Conv", {"x", "w", "b"}, {"y"}, "Layer");
  add_pair(typed, "x", 0.02f);
  add_weights(typed, "w", {12, 8, 3, 3}, quantized_weights(w, scales, channel), scales, 0);
  typed.node("Conv", {"x_dq", "w_dq", "b"}, {"y"}, "Layer");
  for (Model* model : {&weak, &typed}) model->output("y");
  expect_same_bits(weak, {{"x", 0.02f}}, typed, {tensor({1, 8, 9, 9}, x)});
}

TEST(ExplicitInt8, PointwiseLayersAndProductsOfActivations) {
  std::mt19937 random(3);
  const auto x = random_values(random, 64 * 64), z = random_values(random, 64 * 64);
  for (const std::string op : {"Add", "Mul", "MatMul"}) {
    Model weak, typed;
    for (Model* model : {&weak, &typed}) {
      model->input("x", {64, 64});
      model->input("z", {64, 64});
    }
    weak.node(op, {"x", "z"}, {"y"}, "Layer");
    add_pair(typed, "x", 0.013f);
    add_pair(typed, "z", 0.027f);
    typed.node(op, {"x_dq", "z_dq"}, {"y"}, "Layer");
    for (Model* model : {&weak, &typed}) model->output("y");
    expect_same_bits(weak, {{"x", 0.013f}, {"z", 0.027f}}, typed, {tensor({64, 64}, x), tensor({64, 64}, z)});
  }
}

TEST(ExplicitInt8, AConstantOperandOfAPointwiseLayer) {
  std::mt19937 random(4);
  const auto x = random_values(random, 8 * 16), c = random_values(random, 8 * 16);
  float scale = 0;
  for (float v : c) scale = std::max(scale, std::fabs(v));
  scale /= 127.0f;
  Model weak, typed;
  for (Model* model : {&weak, &typed}) model->input("x", {8, 16});
  *weak.graph().add_initializer() = float_tensor("c", {8, 16}, c);
  weak.node("Mul", {"x", "c"}, {"y"}, "Layer");
  add_pair(typed, "x", 0.013f);
  add_weights(typed, "c", {8, 16}, quantized(c, scale, -127), {scale}, 0);
  typed.node("Mul", {"x_dq", "c_dq"}, {"y"}, "Layer");
  for (Model* model : {&weak, &typed}) model->output("y");
  expect_same_bits(weak, {{"x", 0.013f}}, typed, {tensor({8, 16}, x)});
}

TEST(ExplicitInt8, ZeroPointsRunAsWritten) {
  std::mt19937 random(5);
  const auto x = random_values(random, 4 * 8);
  Model model;
  model.input("x", {4, 8});
  add_pair(model, "x", 0.05f, 7);
  add_weights(model, "w", {8, 2}, std::vector<std::int64_t>(16, 3), {0.25f}, 0);
  model.node("MatMul", {"x_dq", "w_dq"}, {"y"}, "Layer");
  model.output("y");
  std::vector<float> expected;
  for (std::size_t i = 0; i < 4; ++i) {
    double sum = 0;
    for (std::size_t k = 0; k < 8; ++k) {
      const std::int64_t q =
          std::clamp<std::int64_t>(std::llround(std::nearbyint(x[i * 8 + k] / 0.05f)) + 7, -128, 127);
      sum += static_cast<double>(static_cast<float>(q - 7) * 0.05f) * 0.75;
    }
    expected.insert(expected.end(), 2, static_cast<float>(sum));
  }
  const auto y = run_first(*Engine::build(model.load(), {}), {tensor({4, 8}, x)});
  for (std::size_t i = 0; i < y.size(); ++i) EXPECT_NEAR(y[i], expected[i], 1e-5f);
}

}  // namespace
}  // namespace ulpscope::testing
