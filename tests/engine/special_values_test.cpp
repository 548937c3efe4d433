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
  BuildOptions options;
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

INSTANTIATE_TEST_SUITE_P(All, SpecialValues,
                         ::testing::Combine(::testing::Values("Relu", "HardSwish"), ::testing::Bool(),
                                            ::testing::Values(Fusion::kNone, Fusion::kPointwise, Fusion::kFull)));

}  // namespace
}  // namespace ulpscope::testing
