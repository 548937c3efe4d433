// Repairs: constants beyond fp16.
#include "precision/repair.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "engine/build_helpers.h"
#include "ulpscope/error.h"

namespace ulpscope::testing {
namespace {

/// y = Softmax(x + (1 - mask) * lowest), as exporters write attention masks; the constant is an initializer or a
/// Constant node.
std::shared_ptr<Network> masked(bool as_node, float lowest = -3.4e38f) {
  Model model;
  model.input("x", {4});
  model.input("mask", {4});
  model.node("Sub", {"one", "mask"}, {"inverse"}, "Sub");
  model.node("Mul", {"inverse", "lowest"}, {"bias"}, "Mul");
  model.node("Add", {"x", "bias"}, {"masked"}, "Add");
  model.node("Softmax", {"masked"}, {"y"}, "Softmax");
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
    EXPECT_EQ(kind_of(found[0]), "clamp");
    EXPECT_EQ(found[0].name, "lowest");
    EXPECT_THAT(found[0].text, ::testing::HasSubstr("read by 'Mul'"));
    Network repaired = *network;
    clamp_constant(repaired, found[0].name, std::get<Clamp>(found[0].change).limit);
    const auto shared = std::make_shared<const Network>(repaired);
    const std::vector<Tensor> inputs{Tensor::of<float>({4}, {1, 2, 3, 4}), Tensor::of<float>({4}, {1, 0, 1, 0})};
    const auto low = fp16_options(ConstraintMode::kObey, Fusion::kNone, true);
    EXPECT_THAT(floats(Engine::build(shared, low)->run(inputs)[0]),
                ::testing::ElementsAre(::testing::FloatNear(0.119F, 1e-3F), 0, ::testing::FloatNear(0.881F, 1e-3F), 0));
    EXPECT_THAT(floats(Engine::build(network, low)->run(inputs)[0])[0], ::testing::IsNan());
    const auto again = specialize(repaired, {{4}, {4}});
    EXPECT_TRUE(find_clamps(*again, low_of(repaired, *again)).empty());
  }
}

TEST(Repair, AClampBringsTheScalesOfWhatItReachesDown) {
  const auto network = masked(false);
  const Repair clamp{"lowest", Clamp{kHalfOfFp16}};
  Network repaired = *network;
  std::map<std::string, float> scales{
      {"bias", 2.7e36f}, {"masked", 2.7e36f}, {"x", 0.01f}, {"large", 500.0f}, {"inverse", 2e5f}};
  apply_repairs(repaired, scales, std::span(&clamp, 1));
  EXPECT_FLOAT_EQ(scales["bias"], 32752.0f / 127);
  EXPECT_FLOAT_EQ(scales["masked"], 32752.0f / 127);
  EXPECT_EQ(scales["x"], 0.01f);
  // Large, too, but not by the mask.
  EXPECT_EQ(scales["inverse"], 2e5f);
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

TEST(Repair, LeavesInfinitiesAndNanAlone) {
  const float inf = std::numeric_limits<float>::infinity();
  Network network = *masked(false);
  const TensorId id = network.find_tensor("lowest");
  network.tensor(id).value = Tensor::of<float>({5}, {-inf, inf, std::nanf(""), -3.4e38F, 40000});
  clamp_constant(network, "lowest", kHalfOfFp16);
  const std::vector<float> values = floats(network.tensor(id).value);
  EXPECT_THAT(std::vector<float>(values.begin(), values.begin() + 2), ::testing::ElementsAre(-inf, inf));
  EXPECT_TRUE(std::isnan(values[2]));
  EXPECT_THAT(std::vector<float>(values.begin() + 3, values.end()), ::testing::ElementsAre(-32752, 32752));
  // Nothing but infinities: float16 holds them.
  for (const float infinite : {-inf, inf, std::nanf("")}) {
    const auto endless = masked(false, infinite);
    const auto spec = specialize(*endless, {{4}, {4}});
    EXPECT_TRUE(find_clamps(*spec, low_of(*endless, *spec)).empty()) << infinite;
  }
}

/// A model with a constant C of these elements, and data x [4] and a condition.
Model with_constant(const std::vector<float>& elements) {
  Model model;
  model.input("x", {4});
  model.input("condition", {4}, onnx::TensorProto::BOOL);
  *model.graph().add_initializer() = float_tensor("C", {static_cast<std::int64_t>(elements.size())}, elements);
  return model;
}

std::vector<Repair> clamps_of(Model& model, const std::string& output) {
  model.output(output);
  const auto network = model.load();
  const auto spec = specialize(*network, {{4}, {4}});
  return find_clamps(*spec, low_of(*network, *spec));
}

TEST(Repair, CutsNothingThatFp16Holds) {
  Model model = with_constant({-3.4e38F, -50000, 0, 65519});
  model.node("Add", {"x", "C"}, {"sum"}, "Add");
  model.node("Softmax", {"sum"}, {"y"}, "Softmax");
  const auto found = clamps_of(model, "y");
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(std::get<Clamp>(found[0].change).limit, 65519);  // It is 65504 in float16.
  EXPECT_THAT(found[0].text, ::testing::HasSubstr("1 element(s)"));
  Model none = with_constant({-65519, 65504, -50000, 1});
  none.node("Add", {"x", "C"}, {"sum"}, "Add");
  none.node("Softmax", {"sum"}, {"y"}, "Softmax");
  EXPECT_TRUE(clamps_of(none, "y").empty());
}

TEST(Repair, MasksAreFoundInTheirForms) {
  using Write = void (*)(Model&);
  const std::vector<std::pair<const char*, Write>> forms{{"where",
                                                          [](Model& m) {
                                                            m.node("Where", {"condition", "x", "C"}, {"s"}, "Select");
                                                            m.node("Softmax", {"s"}, {"y"}, "y");
                                                          }},
                                                         {"scaled scores",
                                                          [](Model& m) {
                                                            m.node("Add", {"x", "C"}, {"s"}, "Mask");
                                                            m.node("Div", {"s", "two"}, {"t"}, "Scale");
                                                            m.node("Softmax", {"t"}, {"y"}, "y");
                                                          }},
                                                         {"softmax by hand",
                                                          [](Model& m) {
                                                            m.node("Add", {"x", "C"}, {"s"}, "Mask");
                                                            m.node("ReduceMax", {"s"}, {"most"}, "Most");
                                                            m.node("Sub", {"s", "most"}, {"t"}, "Shift");
                                                            m.node("Exp", {"t"}, {"y"}, "y");
                                                          }},
                                                         {"bounded from below",
                                                          [](Model& m) {
                                                            m.node("Add", {"x", "C"}, {"s"}, "Mask");
                                                            m.node("Max", {"s", "least"}, {"t"}, "Bound");
                                                            m.node("Softmax", {"t"}, {"y"}, "y");
                                                          }},
                                                         {"compared with 0",
                                                          [](Model& m) {
                                                            m.node("Mul", {"x", "C"}, {"s"}, "Mask");
                                                            m.node("Equal", {"s", "nought"}, {"free"}, "Free");
                                                            m.node("Where", {"free", "x", "s"}, {"t"}, "Select");
                                                            m.node("Softmax", {"t"}, {"y"}, "y");
                                                          }},
                                                         {"gate", [](Model& m) {
                                                            m.node("Sub", {"x", "C"}, {"s"}, "Mask");
                                                            m.node("Sigmoid", {"s"}, {"y"}, "y");
                                                          }}};
  for (const auto& [name, write] : forms) {
    Model model = with_constant({-3.4e38F});
    *model.graph().add_initializer() = float_tensor("two", {1}, {2});
    *model.graph().add_initializer() = float_tensor("least", {1}, {-60000});
    *model.graph().add_initializer() = float_tensor("nought", {1}, {0});
    write(model);
    EXPECT_EQ(clamps_of(model, "y").size(), 1u) << name;
  }
}

TEST(Repair, BoundsDivisorsWeightsAndWhatIsSeenAreNoMasks) {
  using Write = void (*)(Model&);
  const std::vector<std::pair<const char*, Write>> forms{{"clip",
                                                          [](Model& m) {
                                                            m.node("Clip", {"x", "", "C"}, {"y"}, "y");
                                                          }},
                                                         {"max",
                                                          [](Model& m) {
                                                            m.node("Max", {"x", "C"}, {"y"}, "y");
                                                          }},
                                                         {"min",
                                                          [](Model& m) {
                                                            m.node("Min", {"C", "x"}, {"y"}, "y");
                                                          }},
                                                         {"divisor",
                                                          [](Model& m) {
                                                            m.node("Div", {"x", "C"}, {"y"}, "y");
                                                          }},
                                                         {"factor",
                                                          [](Model& m) {
                                                            m.node("Mul", {"x", "C"}, {"y"}, "y");
                                                          }},
                                                         {"comparison",
                                                          [](Model& m) {
                                                            m.node("Less", {"x", "C"}, {"less"}, "Less");
                                                            m.node("Where", {"less", "x", "x"}, {"y"}, "y");
                                                          }},
                                                         {"square",
                                                          [](Model& m) {
                                                            m.node("Add", {"x", "C"}, {"s"}, "Add");
                                                            m.node("Mul", {"s", "s"}, {"t"}, "Square");
                                                            m.node("Sqrt", {"t"}, {"y"}, "y");
                                                          }},
                                                         {"mask and bound", [](Model& m) {
                                                            m.node("Add", {"x", "C"}, {"s"}, "Mask");
                                                            m.node("Softmax", {"s"}, {"t"}, "Softmax");
                                                            m.node("Clip", {"t", "", "C"}, {"y"}, "y");
                                                          }}};
  for (const auto& [name, write] : forms) {
    Model model = with_constant({3.4e38F});
    auto& shape = *model.graph().mutable_initializer(0);
    shape.clear_dims();  // A scalar: Clip takes no other.
    write(model);
    EXPECT_TRUE(clamps_of(model, "y").empty()) << name;
  }
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
