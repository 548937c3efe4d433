// What low formats do to weights that have one trouble each, and that it is not named where it is not.
#include "precision/operand_loss.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace ulpscope::testing {
namespace {

using ::testing::HasSubstr;

constexpr std::int64_t kSum = 256, kColumns = 64;

/// The matrix of a MatMul: sums go down its columns.
Tensor normal_weights() {
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  Tensor result(DataType::kFloat32, {kSum, kColumns});
  for (std::int64_t i = 0; i < result.size(); ++i) result.data<float>()[i] = normal(random);
  return result;
}

Encoding in_blocks(ulpscope::Format format, std::int64_t block, ulpscope::Format scale, bool second = false) {
  return {format, Granularity::kBlock, 0, block, scale, second};
}
const Encoding kInt4 = in_blocks(ulpscope::Format::kInt4, 64, ulpscope::Format::kFloat16);
const Encoding kNVFP4 = in_blocks(ulpscope::Format::kFloat4E2M1, 16, ulpscope::Format::kFloat8E4M3, true);
const Encoding kMXFP8 = in_blocks(ulpscope::Format::kFloat8E4M3, 32, ulpscope::Format::kFloat8E8M0);
const Encoding kFP8{.format = ulpscope::Format::kFloat8E4M3, .granularity = Granularity::kTensor};

struct Explained {
  OperandLoss loss;
  Reason reason;
  std::string text;
};

Explained explained(const Encoding& encoding, const Tensor& values) {
  const ScaleLayout layout(encoding, values.shape());
  const std::vector<int> sharing = encoding.granularity == Granularity::kTensor ? std::vector{0, 1} : std::vector{0};
  Explained result{operand_loss(values, quantize(encoding, layout, values), encoding, layout, sharing), {}, {}};
  result.text = explain_loss(result.loss, result.reason);
  return result;
}

TEST(OperandLoss, OfOrdinaryWeightsHasNoCause) {
  for (const Encoding& encoding : {kInt4, kNVFP4, kMXFP8, kFP8}) {
    const Explained ordinary = explained(encoding, normal_weights());
    EXPECT_EQ(ordinary.text, "") << to_string(encoding);
    EXPECT_EQ(ordinary.reason.kind, ReasonKind::kRounding);
    EXPECT_EQ(ordinary.loss.saturated + ordinary.loss.too_small, 0);
    EXPECT_GT(ordinary.loss.relative(), 0.02);
    EXPECT_LT(ordinary.loss.relative(), 0.13);
  }
}

/// Weights of one input, 48 times as large as those of the others.
TEST(OperandLoss, NamesAnOutlierChannel) {
  Tensor weights = normal_weights();
  for (std::int64_t n = 0; n < kColumns; ++n) weights.data<float>()[181 * kColumns + n] = n % 2 == 0 ? 48.0f : -48.0f;
  for (const Encoding& encoding : {kInt4, kNVFP4}) {
    const Explained found = explained(encoding, weights);
    EXPECT_THAT(found.text, HasSubstr("outlier channel: channel 181 of dimension 0 is 48")) << to_string(encoding);
    EXPECT_EQ(found.reason.kind, ReasonKind::kResolution);
  }
  // E4M3 has the range for it.
  EXPECT_EQ(explained(kFP8, weights).text, "");
  EXPECT_EQ(explained(kMXFP8, weights).text, "");
}

/// One large value in each second block, each time of another input.
TEST(OperandLoss, NamesBlocksThatTheirLargestValueSwallows) {
  Tensor weights = normal_weights();
  for (std::int64_t n = 0; n < kColumns; ++n)
    for (std::int64_t block = n % 2; block < kSum / 16; block += 2)
      weights.data<float>()[(block * 16 + (n * 7 + block) % 16) * kColumns + n] = 60;
  const Explained found = explained(kNVFP4, weights);
  EXPECT_EQ(found.loss.swallowed, kSum / 16 * kColumns / 2);
  EXPECT_THAT(found.text, HasSubstr("512 of 1024 blocks are swallowed by their largest value: up to "));
  EXPECT_GT(found.loss.peak, 60);
  EXPECT_EQ(found.reason.kind, ReasonKind::kResolution);
  EXPECT_EQ(explained(kFP8, weights).text, "");
}

/// Half of the inputs are a ten-millionth of the others: no E4M3 is as small, beside 448 for the largest block.
TEST(OperandLoss, NamesScalesThatUnderflow) {
  Tensor weights = normal_weights();
  for (std::int64_t i = 0; i < weights.size() / 2; ++i) weights.data<float>()[i] *= 1e-7f;
  const Explained found = explained(kNVFP4, weights);
  EXPECT_EQ(found.loss.too_small, kSum / 16 * kColumns / 2);
  EXPECT_THAT(found.text, HasSubstr("scale underflow: 512 of 1024 blocks"));
  EXPECT_THAT(found.text, HasSubstr("8192 of their values become 0"));
  EXPECT_EQ(found.reason.kind, ReasonKind::kUnderflow);
  EXPECT_EQ(found.reason.count, kSum * kColumns / 2);
  // Powers of two are as small as floats.
  EXPECT_EQ(explained(kMXFP8, weights).loss.too_small, 0);
  EXPECT_EQ(explained(kMXFP8, weights).text, "");
  // The one scale of fp8 is made for the largest weight.
  const Explained of_one_scale = explained(kFP8, weights);
  EXPECT_EQ(of_one_scale.text,
            "scale underflow: 8192 of 16384 become 0 beside the largest that their scale is made for");
  EXPECT_EQ(of_one_scale.reason.kind, ReasonKind::kUnderflow);
}

/// OCP's scales leave values up to 1.99 times the largest element.
TEST(OperandLoss, NamesSaturation) {
  Tensor weights = normal_weights();
  for (std::int64_t i = 0; i < weights.size(); ++i) weights.data<float>()[i] = i % 3 == 0 ? 1.99f : 1.0f;
  Encoding down = kMXFP8;
  down.rule = BlockScale::kLargestRoundedDown;
  const Explained found = explained(down, weights);
  EXPECT_THAT(found.text, HasSubstr("saturation: "));
  EXPECT_THAT(found.text, HasSubstr("by up to 1.14 times"));
  EXPECT_EQ(found.reason.kind, ReasonKind::kSaturation);
  EXPECT_EQ(found.reason.count, (kSum * kColumns + 2) / 3);
  EXPECT_EQ(explained(kMXFP8, weights).loss.saturated, 0);
}

}  // namespace
}  // namespace ulpscope::testing
