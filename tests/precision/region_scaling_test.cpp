// Region scaling of networks: what operators say about exponents, and that nothing but ranges changes.
#include "calibration/region_scaling.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "calibration/scaling_model.h"
#include "engine/assign.h"
#include "precision/repair.h"
#include "precision/search_helpers.h"
#include "ulpscope/error.h"

namespace ulpscope::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

/// y = Out(x * large): values far beyond fp16 between two products.
struct Between {
  std::shared_ptr<Network> network;
  SearchData data;
  std::shared_ptr<const Specialization> spec;
  RegionScaling found;

  explicit Between(Model& model, Dims shape = {4, 8})
      : network(model.load()), data(data_for(network, "x", shape, 1, 2)) {
    spec = specialize(*network, {shape});
    BuildOptions build;
    build.enabled.set(Precision::kFP16);
    build.assume_lowest = true;
    found = find_region_scaling(*spec, assign_precisions(*spec, build), data.samples);
  }
};

/// Starts with large = x * factor.
Model scaled_by(float factor = 1e6F) {
  Model model;
  model.input("x", {4, 8});
  *model.graph().add_initializer() = float_tensor("factor", {1}, {factor});
  *model.graph().add_initializer() = float_tensor("back", {1}, {1e-6F});
  *model.graph().add_initializer() = float_tensor("two", {1}, {2});
  model.node("Mul", {"x", "factor"}, {"large"}, "Grow");
  model.output("y");
  return model;
}

/// The outputs of all samples in fp32.
std::vector<TensorMap> exact(const std::shared_ptr<const Network>& network, const SearchData& data) {
  Trials trials(network, BuildOptions{}, data.samples);
  return trials.run(trials.full_precision(), false);
}

TEST(RegionScaling, ConstantsTakeThePowersUp) {
  Model model = scaled_by();
  model.node("Relu", {"large"}, {"t"}, "t");
  model.node("Mul", {"t", "back"}, {"y"}, "y");
  const Between between(model);
  ASSERT_EQ(between.found.regions.size(), 1u);
  EXPECT_THAT(between.found.beyond, IsEmpty());
  auto repaired = std::make_shared<Network>(*between.network);
  std::map<std::string, float> scales;
  apply_repairs(*repaired, scales, between.found.regions);
  EXPECT_EQ(repaired->layers.size(), between.network->layers.size());
  EXPECT_TRUE(same_bits(exact(between.network, between.data), exact(repaired, between.data)));
}

TEST(RegionScaling, SquaresAndRootsStayWhole) {
  // Root of a square times 2e6: the constant's exponent must be even, whatever is best.
  Model model = scaled_by();
  model.node("Pow", {"large", "two"}, {"square"}, "square");
  model.node("Mul", {"square", "two"}, {"more"}, "more");
  model.node("Sqrt", {"more"}, {"root"}, "root");
  model.node("Mul", {"root", "back"}, {"y"}, "y");
  const Between between(model);
  ASSERT_EQ(between.found.regions.size(), 1u);
  auto repaired = std::make_shared<Network>(*between.network);
  std::map<std::string, float> scales;
  apply_repairs(*repaired, scales, between.found.regions);
  EXPECT_TRUE(same_bits(exact(between.network, between.data), exact(repaired, between.data)));
}

TEST(RegionScaling, FunctionsThatAreNotHomogeneousPin) {
  Model model = scaled_by();
  model.node("Tanh", {"large"}, {"y"}, "y");
  const Between between(model);
  EXPECT_THAT(between.found.regions, IsEmpty());
  ASSERT_EQ(between.found.beyond.size(), 1u);
  EXPECT_THAT(between.found.beyond[0], HasSubstr("'large'"));
  EXPECT_THAT(between.found.beyond[0], HasSubstr("pinned by 'y' (Tanh)"));
}

TEST(RegionScaling, OutputsPin) {
  Model model = scaled_by();
  model.node("Mul", {"large", "back"}, {"y"}, "y");
  model.output("large");
  const Between between(model);
  EXPECT_THAT(between.found.regions, IsEmpty());
  ASSERT_EQ(between.found.beyond.size(), 1u);
  EXPECT_THAT(between.found.beyond[0], HasSubstr("output 'large'"));
}

TEST(RegionScaling, WhatFitsIsLeftAlone) {
  Model model = scaled_by(100);
  model.node("Mul", {"large", "back"}, {"y"}, "y");
  const Between between(model);
  EXPECT_THAT(between.found.regions, IsEmpty());
  EXPECT_THAT(between.found.beyond, IsEmpty());
}

TEST(RegionScaling, ConstantsNeverBecomeSubnormal) {
  // The factor would have to be divided, and one of its elements cannot be.
  std::vector<float> factors(8, 1e6F);
  factors[3] = 1.5e-38F;
  Model model = scaled_by(1);
  model.node("Mul", {"x", "factors"}, {"more"}, "more");
  model.node("Mul", {"more", "back"}, {"t"}, "t");
  model.node("Add", {"t", "x"}, {"y"}, "y");
  *model.graph().add_initializer() = float_tensor("factors", {8}, factors);
  const Between between(model);
  EXPECT_THAT(between.found.regions, IsEmpty());
  ASSERT_EQ(between.found.beyond.size(), 1u);
  EXPECT_THAT(between.found.beyond[0], HasSubstr("'more'"));
}

TEST(RegionScaling, RefusesEditsOfOtherNetworks) {
  Model model = scaled_by();
  model.node("Mul", {"large", "back"}, {"y"}, "y");
  const auto network = model.load();
  const auto refusal = [&](const ScaleEdit& edit) -> std::string {
    try {
      Network copy = *network;
      std::map<std::string, float> scales;
      apply_region_scaling(copy, scales, std::span(&edit, 1));
    } catch (const Error& e) {
      return e.what();
    }
    return {};
  };
  using Kind = ScaleEdit::Kind;
  EXPECT_EQ(refusal({Kind::kConstant, "Grow", 1, -3}), "");
  EXPECT_THAT(refusal({Kind::kConstant, "Grew", 1, -3}), HasSubstr("layer 'Grew'"));
  EXPECT_THAT(refusal({Kind::kConstant, "Grow", 0, -3}), HasSubstr("expected a constant of type float32"));
  EXPECT_THAT(refusal({Kind::kConstant, "Grow", 7, -3}), HasSubstr("expected an input that the layer has"));
  EXPECT_THAT(refusal({Kind::kSharedConstant, "nothing", 0, -3}), HasSubstr("tensor 'nothing'"));
  EXPECT_THAT(refusal({Kind::kEpsilon, "Grow", 0, -3}), HasSubstr("expected a normalization"));
  EXPECT_THAT(refusal({Kind::kInsertion, "Grow", 0, 99}), HasSubstr("expected an exponent of at most 64"));
}

}  // namespace
}  // namespace ulpscope::testing
