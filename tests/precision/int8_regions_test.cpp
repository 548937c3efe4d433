// Region scaling in networks that compute with integers, too: scales of int8 move with the tensors, and searches offer
// it to the layers that leave int8 for fp16.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "calibration/calibration.h"
#include "calibration/region_scaling.h"
#include "engine/assign.h"
#include "precision/repair.h"
#include "precision/search_helpers.h"
#include "ulpscope/error.h"

namespace ulpscope::testing {
namespace {

using ::testing::Contains;
using ::testing::Each;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

constexpr std::int64_t kFeatures = 16;

void weights(Model& model, const std::string& name, double gain, std::uint32_t seed) {
  const Tensor values = values_in({kFeatures, kFeatures}, -gain, gain, seed);
  *model.graph().add_initializer() = float_tensor(name, {kFeatures, kFeatures}, floats(values));
}

/// y = (x up) down: a value far beyond fp16 between two products.
Model between_products() {
  Model model;
  model.input("x", {kFeatures, kFeatures});
  weights(model, "up", 2e5, 1);
  weights(model, "down", 2e-6, 2);
  model.node("MatMul", {"x", "up"}, {"large"}, "Up");
  model.node("MatMul", {"large", "down"}, {"y"}, "Down");
  model.output("y");
  return model;
}

/// t is an output, and stays; its product with itself is beyond fp16.
Model square_of_an_output() {
  Model model;
  model.input("x", {kFeatures, kFeatures});
  weights(model, "up", 3e3, 1);
  *model.graph().add_initializer() = float_tensor("back", {1}, {1e-9F});
  model.node("MatMul", {"x", "up"}, {"t"}, "Up");
  model.node("MatMul", {"t", "t"}, {"square"}, "Square");
  model.node("Mul", {"square", "back"}, {"y"}, "y");
  model.output("t");
  model.output("y");
  return model;
}

struct Calibrated {
  std::shared_ptr<const Network> network;
  SearchData data;
  BuildOptions build;

  explicit Calibrated(Model model)
      : network(model.load()), data(data_for(model.load(), "x", {kFeatures, kFeatures}, -1, 1)) {
    data.network = network;
    CalibrationOptions calibration;
    calibration.algorithm = CalibrationAlgorithm::kMinMax;
    std::size_t next = 0;
    build.scales = calibrate(network, calibration, [&]() -> std::optional<TensorMap> {
                     return next < data.samples.size() ? std::optional(data.samples[next++]) : std::nullopt;
                   }).scales;
    build.assume_lowest = true;
    build.constraints = ConstraintMode::kObey;
    build.fusion = Fusion::kNone;
  }

  /// For everything in fp16.
  std::vector<Repair> regions() const {
    BuildOptions fp16 = build;
    fp16.enabled.set(Precision::kFP16);
    const auto spec = specialize(*network, {{kFeatures, kFeatures}});
    return find_region_scaling(*spec, assign_precisions(*spec, fp16), data.samples, {}, {}, build.scales).regions;
  }

  /// Products with integers, everything else in fp32.
  std::vector<TensorMap> with_integers(const std::shared_ptr<const Network>& of,
                                       const std::map<std::string, float>& scales) const {
    BuildOptions int8 = build;
    int8.enabled.set(Precision::kINT8);
    int8.scales = scales;
    Trials trials(of, int8, data.samples);
    const Assignment low = trials.assign(Requests(of->layers.size()));
    EXPECT_THAT(low.precision, Contains(Precision::kINT8).Times(2));
    return trials.run(low, false);
  }
};

TEST(Int8Regions, IntegersStayWhatTheyAre) {
  for (Model (*make)() : {between_products, square_of_an_output}) {
    const Calibrated setting(make());
    const std::vector<Repair> regions = setting.regions();
    ASSERT_THAT(regions, SizeIs(1));
    auto repaired = std::make_shared<Network>(*setting.network);
    auto scales = setting.build.scales;
    apply_repairs(*repaired, scales, regions);
    EXPECT_NE(scales, setting.build.scales);
    const auto before = setting.with_integers(setting.network, setting.build.scales);
    EXPECT_TRUE(same_bits(before, setting.with_integers(repaired, scales)));
  }
}

TEST(Int8Regions, ScalesMoveByTheExponentOfTheirTensor) {
  const Calibrated setting(between_products());
  const std::vector<Repair> regions = setting.regions();
  ASSERT_THAT(regions, SizeIs(1));
  EXPECT_THAT(regions[0].text, HasSubstr("1 int8 scale(s) move with them"));
  const int exponent = std::get<ScaleRegion>(regions[0].change).exponent;
  EXPECT_LT(exponent, 0);
  Network repaired = *setting.network;
  auto scales = setting.build.scales;
  apply_repairs(repaired, scales, regions);
  EXPECT_EQ(scales.at("large"), std::ldexp(setting.build.scales.at("large"), exponent));
  EXPECT_EQ(scales.at("x"), setting.build.scales.at("x"));
  // Whoever has no scales gets none, and the same network.
  std::map<std::string, float> none;
  Network without = *setting.network;
  apply_repairs(without, none, regions);
  EXPECT_THAT(none, IsEmpty());
}

TEST(Int8Regions, WhatIsInsertedInFrontOfAProductHasAScale) {
  const Calibrated setting(square_of_an_output());
  const std::vector<Repair> regions = setting.regions();
  ASSERT_THAT(regions, SizeIs(1));
  const auto& edits = std::get<ScaleRegion>(regions[0].change).edits;
  ASSERT_THAT(edits, Contains(Field(&ScaleEdit::kind, ScaleEdit::Kind::kInsertion)));
  Network repaired = *setting.network;
  auto scales = setting.build.scales;
  const auto insertion = std::ranges::find(edits, ScaleEdit::Kind::kInsertion, &ScaleEdit::kind);
  apply_repairs(repaired, scales, regions);
  const Layer& square = repaired.layer(repaired.find_layer("Square"));
  const std::string& copy = repaired.tensor(square.inputs[0]).name;
  EXPECT_NE(copy, "t");
  EXPECT_EQ(scales.at(copy), std::ldexp(scales.at("t"), insertion->exponent));
  EXPECT_EQ(scales.at("t"), setting.build.scales.at("t"));
}

TEST(Int8Regions, ASearchScalesForTheRungThatLayersLeaveInt8For) {
  const Calibrated setting(between_products());
  // Too tight for integers, wide enough for fp16; and wide enough for whatever is finite: integers saturate.
  const auto tight = make_metric_criterion(MetricKind::kRelativeL2, 2e-3);
  const auto wide = make_metric_criterion(MetricKind::kRelativeL2, 100);
  for (const Fusion fusion : {Fusion::kNone, Fusion::kFull}) {
    SearchTask task;
    task.objective = Objective::kSmallest;
    task.ladder = {Precision::kFP16, Precision::kFP32};
    task.build = setting.build;
    task.build.enabled.set(Precision::kINT8);
    task.build.enabled.set(Precision::kFP16);
    task.build.fusion = fusion;
    const Answer answer = run(setting.data, *tight, task);
    EXPECT_EQ(answer.verdict, Answer::Verdict::kFound);
    ASSERT_THAT(answer.repairs, SizeIs(1));
    EXPECT_EQ(kind_of(answer.repairs[0]), "scale");
    EXPECT_TRUE(std::isinf(answer.repairs[0].used_before));
    EXPECT_LT(answer.repairs[0].used_after, 0.5);
    EXPECT_THAT(answer.kept, Not(IsEmpty()));
    EXPECT_THAT(answer.kept, Each(Field(&KeptLayer::precision, Precision::kFP16)));
    const Answer low = run(setting.data, *wide, task);
    EXPECT_THAT(low.kept, IsEmpty());
    EXPECT_THAT(low.repairs, IsEmpty());
    task.repair = false;
    EXPECT_THAT(run(setting.data, *tight, task).kept, Contains(Field(&KeptLayer::precision, Precision::kFP32)));
  }
}

TEST(Int8Regions, RefusesScalesThatDoNotFit) {
  const Calibrated setting(between_products());
  const auto refusal = [&](const ScaleEdit& edit, float scale) -> std::string {
    try {
      Network copy = *setting.network;
      std::map<std::string, float> scales{{"large", scale}};
      apply_region_scaling(copy, scales, std::span(&edit, 1));
    } catch (const Error& e) {
      return e.what();
    }
    return {};
  };
  using Kind = ScaleEdit::Kind;
  EXPECT_EQ(refusal({Kind::kInt8Scale, "large", 0, -8}, 0.5F), "");
  EXPECT_THAT(refusal({Kind::kInt8Scale, "small", 0, -8}, 0.5F), HasSubstr("tensor 'small'"));
  EXPECT_THAT(refusal({Kind::kInt8Scale, "large", 0, -40}, 1e-30F), HasSubstr("stays in float32's range times 2^-40"));
  EXPECT_THAT(refusal({Kind::kInt8Scale, "large", 0, 40}, 1e30F), HasSubstr("expected an int8 scale (1e+30)"));
}

}  // namespace
}  // namespace ulpscope::testing
