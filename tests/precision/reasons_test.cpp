// The reasons that a search gives, on networks with one cause each.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <numeric>

#include "core/parallel.h"
#include "engine/build_helpers.h"
#include "precision/search_helpers.h"
#include "ulpscope/error.h"

namespace ulpscope::testing {
namespace {

using ::testing::HasSubstr;

/// Sum or difference of x and a constant, then more layers that need raising by the tolerance.
Answer sum_of(const std::string& op, const std::vector<float>& operand, double low, double high, double tolerance) {
  Model model;
  const auto n = static_cast<std::int64_t>(operand.size());
  model.input("x", {n});
  model.node(op, {"x", "c"}, {"y"}, "Sum");
  *model.graph().add_initializer() = float_tensor("c", {n}, operand);
  model.output("y");
  const SearchData data = data_for(model.load(), "x", {n}, low, high);
  return run(data, *make_metric_criterion(MetricKind::kRelativeL2, tolerance), fp16_search());
}

TEST(Reasons, NameCancellationWhereItIs) {
  const auto row = kept_rows(sum_of("Sub", std::vector<float>(32, 1000.0f), 1000.5, 1002.5, 1e-4)).at("Sum");
  EXPECT_EQ(row.reason.kind, ReasonKind::kCancellation) << row.reason.text;
  EXPECT_THAT(row.reason.text, HasSubstr("where fp16 steps by 0.5; their difference is about 1."));
  EXPECT_EQ(row.reason.count, 96);
}

TEST(Reasons, NameWhatIsSwallowed) {
  const auto row = kept_rows(sum_of("Add", std::vector<float>(32, 4096.0f), 0.1, 1, 1e-5)).at("Sum");
  EXPECT_EQ(row.reason.kind, ReasonKind::kCancellation) << row.reason.text;
  EXPECT_THAT(row.reason.text, HasSubstr("where fp16 steps by 4; what is added (about 0."));
  EXPECT_EQ(row.reason.tensor, "c");
}

TEST(Reasons, SayWhatALowFormatDoesToWeights) {
  constexpr std::int64_t kSum = 256, kColumns = 32;
  Model model;
  model.input("x", {16, kSum});
  model.node("MatMul", {"x", "w"}, {"y"}, "Product");
  Tensor w = values_in({kSum, kColumns}, -1, 1, 7);
  for (std::int64_t n = 0; n < kColumns; ++n) w.data<float>()[101 * kColumns + n] = n % 2 == 0 ? 30.0f : -30.0f;
  *model.graph().add_initializer() = float_tensor("w", w.shape(), {w.values<float>().begin(), w.values<float>().end()});
  model.output("y");
  const SearchData data = data_for(model.load(), "x", {16, kSum}, -1, 1);
  SearchTask task = fp16_search();
  task.build.enabled = PrecisionSet{Precision::kFP32, Precision::kINT4};
  const Answer answer = run(data, *make_metric_criterion(MetricKind::kRelativeL2, 0.01), task);
  const Reason reason = kept_rows(answer).at("Product").reason;
  EXPECT_EQ(reason.kind, ReasonKind::kResolution) << reason.text;
  EXPECT_EQ(reason.tensor, "w");
  EXPECT_THAT(reason.text, HasSubstr("; outlier channel: channel 101 of dimension 0 is 5"));
}

/// Samples are counted side by side, and added in their order.
TEST(Reasons, DoNotDependOnThreads) {
  std::vector<float> operand(4096, 1000.0f);
  for (std::size_t i = 0; i < operand.size(); ++i) operand[i] += 0.37f * static_cast<float>(i % 101);
  std::vector<Reason> reasons;
  for (const int threads : {1, 2, 3, 7}) {
    const ScopedThreads scoped(threads);
    reasons.push_back(kept_rows(sum_of("Sub", operand, 999.5, 1040, 1e-4)).at("Sum").reason);
  }
  for (const Reason& reason : reasons) {
    EXPECT_EQ(reason.text, reasons[0].text);
    EXPECT_EQ(reason.count, reasons[0].count);
    EXPECT_EQ(reason.total, reasons[0].total);
    EXPECT_EQ(reason.largest, reasons[0].largest);
    EXPECT_EQ(reason.exponents, reasons[0].exponents);
  }
}

/// What a mask covers is meant to be lost.
TEST(Reasons, DoNotBlameMasks) {
  Model model;
  model.input("x", {4, 32});
  std::vector<float> mask(32, -32752.0f);
  std::fill(mask.begin(), mask.begin() + 8, 0.0f);
  model.node("Add", {"x", "mask"}, {"s"}, "Sum");
  model.node("Softmax", {"s"}, {"y"}, "Softmax");
  *model.graph().add_initializer() = float_tensor("mask", {1, 32}, mask);
  model.output("y");
  const SearchData data = data_for(model.load(), "x", {4, 32}, -4, 4);
  const auto rows = kept_rows(run(data, *make_metric_criterion(MetricKind::kRelativeL2, 1e-5), fp16_search()));
  EXPECT_EQ(rows.at("Sum").reason.kind, ReasonKind::kRounding) << rows.at("Sum").reason.text;
}

/// Elements of a Mul, with a tolerance that rounding fails: overflow and underflow of operand and of result.
Reason reason_of_product(float factor, double low, double high) {
  Model model;
  model.input("x", {32});
  model.node("Mul", {"x", "c"}, {"y"}, "Product");
  *model.graph().add_initializer() = float_tensor("c", {1}, {factor});
  model.output("y");
  const SearchData data = data_for(model.load(), "x", {32}, low, high);
  SearchTask options = fp16_search();
  options.repair = false;
  return kept_rows(run(data, *make_metric_criterion(MetricKind::kRelativeL2, 1e-5), options)).at("Product").reason;
}

TEST(Reasons, NameTheTensorThatLeavesTheRange) {
  const Reason weights_over = reason_of_product(1e6f, 1e-4, 2e-4);
  EXPECT_EQ(weights_over.kind, ReasonKind::kOverflow) << weights_over.text;
  EXPECT_EQ(weights_over.tensor, "c");
  EXPECT_EQ(weights_over.count, 1);
  EXPECT_EQ(weights_over.largest, 1e6);
  const Reason result_over = reason_of_product(1000.0f, 100, 200);
  EXPECT_EQ(result_over.kind, ReasonKind::kOverflow) << result_over.text;
  EXPECT_EQ(result_over.tensor, "y");
  EXPECT_EQ(result_over.count, 96);
  EXPECT_EQ(result_over.total, 96);
  const Reason weights_under = reason_of_product(1.5e-7f, 100, 200);
  EXPECT_EQ(weights_under.kind, ReasonKind::kUnderflow) << weights_under.text;
  EXPECT_EQ(weights_under.tensor, "c");
  EXPECT_EQ(weights_under.largest, static_cast<double>(1.5e-7f));
  const Reason result_under = reason_of_product(1e-4f, 1e-4, 1e-3);
  EXPECT_EQ(result_under.kind, ReasonKind::kUnderflow) << result_under.text;
  EXPECT_EQ(result_under.tensor, "y");
  const Reason rounding = reason_of_product(1.1f, 1, 2);
  EXPECT_EQ(rounding.kind, ReasonKind::kRounding) << rounding.text;
}

/// Small values beside large ones, as behind a softmax, cost less than the steps at the large ones.
TEST(Reasons, DoNotBlameSmallValuesBesideLargeOnes) {
  Model model;
  model.input("x", {4, 32});
  model.node("Mul", {"x", "scale"}, {"s"}, "Scale");
  model.node("Softmax", {"s"}, {"p"}, "Softmax");
  model.node("MatMul", {"p", "w"}, {"y"}, "Product");
  *model.graph().add_initializer() = float_tensor("scale", {1}, {20});
  *model.graph().add_initializer() = float_tensor("w", {32, 4}, floats(values_in({32, 4}, -1, 1, 7)));
  model.output("y");
  const SearchData data = data_for(model.load(), "x", {4, 32}, -1, 1);
  const auto rows = kept_rows(run(data, *make_metric_criterion(MetricKind::kRelativeL2, 1e-6), fp16_search()));
  EXPECT_EQ(rows.at("Product").reason.kind, ReasonKind::kRounding) << rows.at("Product").reason.text;
}

/// What int8 loses: by clipping, or by steps that are too coarse.
Reason int8_reason(double low, double high, float scale) {
  Model model;
  model.input("x", {4, 16});
  model.node("MatMul", {"x", "w"}, {"y"}, "Product");
  *model.graph().add_initializer() = float_tensor("w", {16, 16}, floats(values_in({16, 16}, -1, 1, 3)));
  model.output("y");
  const SearchData data = data_for(model.load(), "x", {4, 16}, low, high);
  SearchTask options = fp16_search();
  options.build.enabled.set(Precision::kFP16, false);
  options.build.enabled.set(Precision::kINT8);
  options.build.scales = {{"x", scale}, {"y", 0.1f}};
  return kept_rows(run(data, *make_metric_criterion(MetricKind::kRelativeL2, 1e-5), options)).at("Product").reason;
}

TEST(Reasons, TellClippingFromCoarseSteps) {
  const Reason clipped = int8_reason(-1, 1, 0.5f / 127);
  EXPECT_EQ(clipped.kind, ReasonKind::kSaturation) << clipped.text;
  EXPECT_EQ(clipped.tensor, "x");
  EXPECT_GT(clipped.count, 50);
  EXPECT_LT(clipped.count, 150);
  const Reason barely = int8_reason(-1, 1, 0.99f / 127);
  EXPECT_EQ(barely.kind, ReasonKind::kRounding) << barely.text;
  const Reason coarse = int8_reason(-1, 1, 100.0f / 127);
  EXPECT_EQ(coarse.kind, ReasonKind::kResolution) << coarse.text;
  EXPECT_EQ(coarse.tensor, "x");
}

/// Why a product of ordinary weights with rows of 256 numbers has to stay higher: `factor(row, column)` times +-[0.5,
/// 1], within twice `largest`, which is the calibrated one where it is not 0.
Reason activation_reason(Precision precision, const std::function<float(std::int64_t, std::int64_t)>& factor,
                         MxScaleRule rule = MxScaleRule::kCeil, float largest = 0) {
  constexpr std::int64_t kRows = 16, kSum = 256, kColumns = 32;
  Model model;
  model.input("x", {kRows, kSum});
  model.node("MatMul", {"x", "w"}, {"y"}, "Product");
  const Tensor w = values_in({kSum, kColumns}, -1, 1, 7);
  *model.graph().add_initializer() = float_tensor("w", w.shape(), {w.values<float>().begin(), w.values<float>().end()});
  model.output("y");
  SearchData data = data_for(model.load(), "x", {kRows, kSum}, 0.5, 1);
  for (auto* samples : {&data.samples, &data.held_out})
    for (auto& sample : *samples)
      for (std::int64_t i = 0; i < kRows * kSum; ++i) {
        float& x = sample[0].tensor.data<float>()[i];
        x *= (i * 7 % 5 < 2 ? -1.0f : 1.0f) * factor(i / kSum, i % kSum);
        if (largest == 0) continue;
        x = std::clamp(x, -2 * largest, 2 * largest);
      }
  float most = largest;
  if (largest == 0)
    for (const auto& sample : data.samples)
      for (const float x : sample[0].tensor.values<float>()) most = std::max(most, std::fabs(x));
  SearchTask task = fp16_search();
  task.build.enabled = PrecisionSet{Precision::kFP32, precision};
  task.build.scale_choice.mx = rule;
  task.build.scales = {{"x", most / 127}};
  return kept_rows(run(data, *make_metric_criterion(MetricKind::kRelativeL2, 1e-6), task)).at("Product").reason;
}

constexpr auto kBlocks = {Precision::kNVFP4, Precision::kMXFP4};

TEST(Reasons, FindNoCauseInOrdinaryActivations) {
  for (const Precision precision : {Precision::kFP8, Precision::kMXFP8, Precision::kNVFP4, Precision::kMXFP4}) {
    const Reason reason = activation_reason(precision, [](auto, auto) { return 1.0f; });
    EXPECT_EQ(reason.kind, ReasonKind::kRounding) << reason.text;
    EXPECT_THAT(reason.text, HasSubstr("rounding of its inputs and weights to "));
    EXPECT_THAT(reason.text, HasSubstr("its input 'x' loses "));
    EXPECT_THAT(reason.text, HasSubstr("the weights 'w' lose "));
    EXPECT_THAT(reason.text, ::testing::Not(HasSubstr(";")));
  }
}

TEST(Reasons, NameAnOutlierChannelOfActivations) {
  const auto outlier = [](std::int64_t, std::int64_t column) { return column == 101 ? 60.0f : 1.0f; };
  for (const Precision precision : kBlocks) {
    const Reason reason = activation_reason(precision, outlier);
    EXPECT_EQ(reason.kind, ReasonKind::kResolution) << reason.text;
    EXPECT_EQ(reason.tensor, "x");
    EXPECT_THAT(reason.text, HasSubstr("; in 'x', outlier channel: channel 101 of dimension 1 is 6"));
  }
  // E4M3 has the range for it.
  for (const Precision precision : {Precision::kFP8, Precision::kMXFP8})
    EXPECT_EQ(activation_reason(precision, outlier).kind, ReasonKind::kRounding);
}

TEST(Reasons, NameBlocksOfActivationsThatTheirLargestValueSwallows) {
  for (const Precision precision : kBlocks) {
    const std::int64_t block = precision == Precision::kNVFP4 ? 16 : 32;
    const Reason reason = activation_reason(precision, [&](std::int64_t row, std::int64_t column) {
      return (row * 5 + column / block * 3) % block == column % block ? 60.0f : 1.0f;
    });
    EXPECT_EQ(reason.kind, ReasonKind::kResolution) << reason.text;
    EXPECT_EQ(reason.tensor, "x");
    EXPECT_EQ(reason.count, reason.total);
    EXPECT_EQ(reason.total, 3 * 16 * 256 / block);  // Of all samples.
    EXPECT_THAT(reason.text, HasSubstr("; in 'x', "));
    EXPECT_THAT(reason.text, HasSubstr("blocks are swallowed by their largest value: up to "));
  }
}

/// Beside rows that are ten million times as large, blocks get the scale 0, and elements of fp8 become 0.
TEST(Reasons, NameScalesOfActivationsThatUnderflow) {
  const auto small = [](std::int64_t row, std::int64_t) { return row % 2 == 0 ? 1e-7f : 1.0f; };
  const Reason blocks = activation_reason(Precision::kNVFP4, small);
  EXPECT_EQ(blocks.kind, ReasonKind::kUnderflow) << blocks.text;
  EXPECT_EQ(blocks.tensor, "x");
  EXPECT_EQ(blocks.count, 3 * 8 * 256);
  EXPECT_EQ(blocks.total, 3 * 16 * 256);
  EXPECT_THAT(blocks.text, HasSubstr("; in 'x', scale underflow: 384 of 768 blocks need less than half of "));
  const Reason one_scale = activation_reason(Precision::kFP8, small);
  EXPECT_EQ(one_scale.kind, ReasonKind::kUnderflow) << one_scale.text;
  EXPECT_EQ(one_scale.count, 3 * 8 * 256);
  EXPECT_EQ(activation_reason(Precision::kMXFP8, small).kind, ReasonKind::kRounding);
}

TEST(Reasons, NameActivationsThatSaturate) {
  // OCP's scales leave values up to 1.99 times the largest element.
  const auto just_below = [](std::int64_t, std::int64_t) { return 1.95f; };
  const Reason down = activation_reason(Precision::kMXFP4, just_below, MxScaleRule::kOcp, 0.99f);
  EXPECT_EQ(down.kind, ReasonKind::kSaturation) << down.text;
  EXPECT_EQ(down.tensor, "x");
  // A calibrated range of half of the values.
  for (const Precision precision : {Precision::kFP8, Precision::kNVFP4}) {
    const Reason clipped = activation_reason(precision, [](auto, auto) { return 3.0f; }, MxScaleRule::kCeil, 0.5f);
    EXPECT_EQ(clipped.kind, ReasonKind::kSaturation) << clipped.text;
    EXPECT_EQ(clipped.tensor, "x");
  }
}

}  // namespace
}  // namespace ulpscope::testing
