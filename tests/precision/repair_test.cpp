// Repairs: constants beyond fp16.
#include "precision/repair.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/build_helpers.h"
#include "ulpscope/error.h"

namespace ulpscope::testing {
namespace {

/// y = x + (1 - mask) * lowest, as exporters write attention masks; the constant is an initializer or a Constant node.
std::shared_ptr<Network> masked(bool as_node, float lowest = -3.4e38f) {
  Model model;
  model.input("x", {4});
  model.input("mask", {4});
  model.node("Sub", {"one", "mask"}, {"inverse"}, "Sub");
  model.node("Mul", {"inverse", "lowest"}, {"bias"}, "Mul");
  model.node("Add", {"x", "bias"}, {"y"}, "Add");
  *model.graph().add_initializer() = float_tensor("one", {1}, {1});
  *model.graph().add_initializer() = float_tensor(as_node ? "unused" : "lowest", {1}, {lowest});
  if (as_node) {
    auto* node = model.graph().mutable_node()->Add();
    node->set_op_type("Constant");
    node->set_name("Lowest");
    node->add_output("lowest");
    auto* attribute = node->add_attribute();
    attribute->set_name("value");
    attribute->set_type(onnx::AttributeProto::TENSOR);
    *attribute->mutable_t() = float_tensor("", {1}, {lowest});
  }
  model.output("y");
  return model.load();
}

Assignment low_of(const Network& network, const Specialization& spec) {
  (void)network;
  return assign_precisions(spec, fp16_options(ConstraintMode::kObey, Fusion::kNone, true));
}

TEST(Repair, FindsAndClampsConstantsBeyondFp16) {
  for (bool as_node : {false, true}) {
    const auto network = masked(as_node);
    const auto spec = specialize(*network, {{4}, {4}});
    const auto found = find_clamps(*spec, low_of(*network, *spec));
    ASSERT_EQ(found.size(), 1u);
    EXPECT_EQ(found[0].kind, "clamp");
    EXPECT_EQ(found[0].name, "lowest");
    EXPECT_THAT(found[0].text, ::testing::HasSubstr("read by 'Mul'"));
    Network repaired = *network;
    clamp_constant(repaired, found[0].name, found[0].limit);
    const auto shared = std::make_shared<const Network>(repaired);
    const std::vector<Tensor> inputs{Tensor::of<float>({4}, {1, 2, 3, 4}), Tensor::of<float>({4}, {1, 0, 1, 0})};
    const auto low = fp16_options(ConstraintMode::kObey, Fusion::kNone, true);
    EXPECT_THAT(floats(Engine::build(shared, low)->run(inputs)[0]), ::testing::ElementsAre(1, -32752, 3, -32752));
    EXPECT_THAT(floats(Engine::build(network, low)->run(inputs)[0])[0], ::testing::IsNan());
    const auto again = specialize(repaired, {{4}, {4}});
    EXPECT_TRUE(find_clamps(*again, low_of(repaired, *again)).empty());
  }
}

TEST(Repair, AClampBringsTheScalesOfWhatItReachesDown) {
  const auto network = masked(false);
  Repair clamp;
  clamp.kind = "clamp";
  clamp.name = "lowest";
  clamp.limit = kHalfOfFp16;
  Network repaired = *network;
  std::map<std::string, float> scales{{"bias", 2.7e36f}, {"y", 2.7e36f}, {"x", 0.01f}, {"large", 500.0f}};
  apply_repairs(repaired, scales, std::span(&clamp, 1));
  EXPECT_FLOAT_EQ(scales["bias"], 32752.0f / 127);
  EXPECT_FLOAT_EQ(scales["y"], 32752.0f / 127);
  EXPECT_EQ(scales["x"], 0.01f);
  EXPECT_EQ(scales["large"], 500.0f);
}

TEST(Repair, LeavesAloneWhatFitsOrIsKeptHigh) {
  const auto network = masked(false, -1e4f);
  const auto spec = specialize(*network, {{4}, {4}});
  EXPECT_TRUE(find_clamps(*spec, low_of(*network, *spec)).empty());
  const auto large = masked(false);
  const auto large_spec = specialize(*large, {{4}, {4}});
  EXPECT_TRUE(find_clamps(*large_spec, assign_precisions(*large_spec, BuildOptions{})).empty());
}

TEST(Repair, RefusesNamesAndLimitsThatMakeNoSense) {
  Network network = *masked(false);
  EXPECT_THROW(clamp_constant(network, "lowset", 1), Error);
  EXPECT_THROW(clamp_constant(network, "x", 1), Error);
  EXPECT_THROW(clamp_constant(network, "lowest", 0), Error);
  EXPECT_THROW(clamp_constant(network, "lowest", std::nan("")), Error);
  try {
    clamp_constant(network, "lowset", 1);
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), ::testing::HasSubstr("did you mean 'lowest'"));
  }
}

}  // namespace
}  // namespace ulpscope::testing
