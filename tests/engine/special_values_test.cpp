// Infinities and NaN are what people look for: no fusion may swallow them.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "engine/build_helpers.h"

namespace ulpscope::testing {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity(), kNaN = std::numeric_limits<float>::quiet_NaN();

constexpr std::int64_t kChannels = 16;

/// y = activation(conv(x) [+ x]), where every channel of conv(x) is the mean of those of x.
std::shared_ptr<Network> convolution_with(const std::string& activation, bool residual) {
  Model model;
  model.input("x", {1, kChannels, 1, 4});
  model.node("Conv", {"x", "w"}, {"c"}, "Conv");
  if (residual) model.node("Add", {"c", "x"}, {"sum"}, "Add");
  model.node(activation, {residual ? "sum" : "c"}, {"y"}, "Activation");
  *model.graph().add_initializer() =
      float_tensor("w", {kChannels, kChannels, 1, 1}, std::vector<float>(kChannels * kChannels, 1.0f / kChannels));
  model.output("y");
  return model.load();
}

class SpecialValues : public ::testing::TestWithParam<std::tuple<const char*, bool, Fusion>> {};

TEST_P(SpecialValues, PassThroughAFusedActivation) {
  const auto& [activation, residual, fusion] = GetParam();
  const float pixels[]{kNaN, kInf, 4, -4};
  Tensor x(DataType::kFloat32, {1, kChannels, 1, 4});
  for (std::int64_t i = 0; i < x.size(); ++i) x.data<float>()[i] = pixels[i % 4];
  BuildOptions options = tested_options();
  options.fusion = fusion;
  options.threads = 1;
  const std::vector<float> y = run_first(*Engine::build(convolution_with(activation, residual), options), {x});
  ASSERT_EQ(y.size(), static_cast<std::size_t>(x.size()));
  for (std::size_t i = 0; i < y.size(); i += 4) {
    EXPECT_TRUE(std::isnan(y[i]));
    EXPECT_EQ(y[i + 1], kInf);
    EXPECT_FLOAT_EQ(y[i + 2], residual ? 8.0f : 4.0f);
    EXPECT_EQ(y[i + 3], 0.0f);
  }
}

TEST(Training, BatchNormalizationHandsOutItsRunningStatistics) {
  Model model(15);
  model.input("x", {1, 1, 4});
  auto& norm = model.node("BatchNormalization", {"x", "scale", "shift", "mean", "variance"}, {"y", "m", "v"}, "Norm");
  add_attribute(norm, "training_mode", onnx::AttributeProto::INT).set_i(1);
  for (const char* name : {"scale", "variance"}) *model.graph().add_initializer() = float_tensor(name, {1}, {1});
  for (const char* name : {"shift", "mean"}) *model.graph().add_initializer() = float_tensor(name, {1}, {0});
  for (const char* name : {"y", "m", "v"}) model.output(name);
  const auto engine = Engine::build(model.load(), fp16_options());
  const std::vector<Tensor> outputs = engine->run(std::vector<Tensor>{Tensor::of<float>({1, 1, 4}, {1, 2, 3, 4})});
  EXPECT_NEAR(outputs[1].data<float>()[0], 0.25f, 1e-6f);          // 0.9 * 0 + 0.1 * 2.5
  EXPECT_NEAR(outputs[2].data<float>()[0], 0.9f + 0.125f, 1e-6f);  // 0.9 * 1 + 0.1 * 1.25
}

TEST(MaxPool, TakesSpecialValuesOfItsWindow) {
  Model model;
  model.input("x", {1, 2, 1, 6});
  auto& pool = model.node("MaxPool", {"x"}, {"y"}, "Pool");
  const auto integers = [&](const char* name, std::initializer_list<std::int64_t> values) {
    auto& attribute = add_attribute(pool, name, onnx::AttributeProto::INTS);
    for (std::int64_t value : values) attribute.add_ints(value);
  };
  integers("kernel_shape", {1, 3});
  integers("strides", {1, 2});
  integers("pads", {0, 1, 0, 0});
  model.output("y");
  BuildOptions options = tested_options();
  options.threads = 1;
  const Tensor x = Tensor::of<float>({1, 2, 1, 6}, {1, 2, kNaN, 3, -kInf, -kInf, 5, 4, 3, kInf, 2, 1});
  const std::vector<float> y = run_first(*Engine::build(model.load(), options), {x});
  ASSERT_EQ(y.size(), 6u);
  EXPECT_EQ(y[0], 2);
  EXPECT_TRUE(std::isnan(y[1]));
  EXPECT_EQ(y[2], 3);
  EXPECT_EQ(y[3], 5);
  EXPECT_EQ(y[4], kInf);
  EXPECT_EQ(y[5], kInf);
}

INSTANTIATE_TEST_SUITE_P(All, SpecialValues,
                         ::testing::Combine(::testing::Values("Relu", "HardSwish"), ::testing::Bool(),
                                            ::testing::Values(Fusion::kNone, Fusion::kPointwise, Fusion::kFull)));

}  // namespace
}  // namespace ulpscope::testing
