// Calibration: thresholds against plain implementations, and whole networks.
#include "calibration/calibration.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "compare/log_capture.h"
#include "onnx/model_builder.h"
#include "ulpscope/error.h"

namespace ulpscope::testing {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

std::vector<float> gaussian(std::size_t count, unsigned seed, float sigma = 1) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, sigma);
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

MagnitudeHistogram histogram_of(const std::vector<float>& values) {
  MagnitudeHistogram histogram;
  histogram.add(values);
  return histogram;
}

/// The published method, word by word: every distribution is an array. KL divergences for i = 128 ... size.
std::vector<double> plain_divergences(const std::vector<std::int64_t>& bins, double smoothing) {
  const std::size_t size = bins.size();
  std::vector<double> result;
  for (std::size_t i = 128; i <= size; ++i) {
    std::vector<double> p(bins.begin(), bins.begin() + static_cast<std::ptrdiff_t>(i)), q(i, 0);
    for (std::size_t k = i; k < size; ++k) p[i - 1] += static_cast<double>(bins[k]);
    for (std::size_t level = 0; level < 128; ++level) {
      double sum = 0, filled = 0;
      for (std::size_t k = level * i / 128; k < (level + 1) * i / 128; ++k) {
        sum += static_cast<double>(bins[k]);
        filled += bins[k] > 0;
      }
      for (std::size_t k = level * i / 128; k < (level + 1) * i / 128; ++k)
        if (bins[k] > 0) q[k] = sum / filled;
    }
    double p_sum = 0, q_sum = 0, divergence = 0;
    for (double value : p) p_sum += value;
    for (double value : q) q_sum += value;
    for (std::size_t k = 0; k < i; ++k) {
      const double a = p[k] / p_sum, b = (1 - smoothing) * q[k] / q_sum + smoothing / static_cast<double>(i);
      if (a > 0) divergence += b > 0 ? a * std::log(a / b) : std::numeric_limits<double>::infinity();
    }
    result.push_back(q_sum > 0 ? divergence : std::numeric_limits<double>::infinity());
  }
  return result;
}

std::vector<std::int64_t> binned(const std::vector<float>& values, std::size_t size, float largest) {
  std::vector<std::int64_t> bins(size, 0);
  for (float value : values)
    if (std::abs(value) < largest) ++bins[std::abs(value) / largest * static_cast<float>(size)];
  return bins;
}

TEST(EntropyThreshold, IsWhereThePlainMethodHasItsMinimum) {
  std::mt19937 random(7);
  std::vector<std::vector<std::int64_t>> cases{binned(gaussian(20000, 1), 2048, 4.5f),
                                               binned(gaussian(300, 2), 512, 4.0f), binned(gaussian(5000, 3), 300, 9)};
  std::vector<std::int64_t> with_tail = binned(gaussian(20000, 4), 1500, 20);
  with_tail[1499] = 7;
  with_tail[1100] = 1;
  cases.push_back(with_tail);
  std::vector<std::int64_t> holes(700, 0);
  for (int k = 0; k < 200; ++k) holes[random() % 700] += static_cast<std::int64_t>(random() % 50);
  cases.push_back(holes);
  for (std::size_t c = 0; c < cases.size(); ++c) {
    for (double smoothing : {0.0, 1e-4}) {
      const std::vector<double> plain = plain_divergences(cases[c], smoothing);
      const double best = *std::min_element(plain.begin(), plain.end());
      const double threshold = entropy_threshold(cases[c], smoothing);
      const auto i = static_cast<std::size_t>(threshold);
      EXPECT_EQ(threshold, i == cases[c].size() ? static_cast<double>(i) : static_cast<double>(i) + 0.5) << c;
      ASSERT_GE(i, 128u);
      // Rounding of the sums: observed 1e-14.
      EXPECT_NEAR(plain[i - 128], best, 2e-9) << "case " << c << ", smoothing " << smoothing << ", i " << i;
    }
  }
}

TEST(EntropyThreshold, EveryValueOfItsOwnIsWorthKeeping) {
  // No loss at any width: the widest is taken.
  std::vector<std::int64_t> few(2048, 0);
  few[3] = few[900] = few[2047] = 5;
  EXPECT_EQ(entropy_threshold(few, 0), 2048);
  EXPECT_EQ(entropy_threshold(few, 1e-4), 2048);
  EXPECT_EQ(entropy_threshold(std::vector<std::int64_t>(100, 1), 0), 100);
}

TEST(Calibrators, EntropyClipsTheTailOfAGaussian) {
  std::vector<float> values = gaussian(400000, 11, 2.0f);
  const MagnitudeHistogram histogram = histogram_of(values);
  // Known of this method: between 3.5 and 5 sigma for about a million values.
  const double sigma2 = calibrated_threshold(histogram, CalibrationAlgorithm::kEntropy2, 1);
  const double sigma1 = calibrated_threshold(histogram, CalibrationAlgorithm::kEntropy, 1);
  EXPECT_GT(sigma2, 3.0 * 2);
  EXPECT_LT(sigma2, 5.0 * 2);
  EXPECT_GT(sigma1, 3.0 * 2);
  EXPECT_LT(sigma1, 5.0 * 2);
  // One outlier changes the range, not the threshold.
  values.push_back(40);
  const double with_outlier = calibrated_threshold(histogram_of(values), CalibrationAlgorithm::kEntropy2, 1);
  EXPECT_GT(with_outlier, 3.0 * 2);
  EXPECT_LT(with_outlier, 6.0 * 2);
}

TEST(Calibrators, EntropyKeepsWhatIsUniform) {
  std::vector<float> values(100000);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i) / 1000;
  EXPECT_GT(calibrated_threshold(histogram_of(values), CalibrationAlgorithm::kEntropy2, 1), 95);
}

TEST(Calibrators, ZerosOfAReluDoNotMoveVersion2) {
  std::vector<float> values = gaussian(200000, 5);
  for (float& value : values) value = std::abs(value);
  const double alone = calibrated_threshold(histogram_of(values), CalibrationAlgorithm::kEntropy2, 1);
  values.resize(values.size() * 10, 0.0f);
  EXPECT_EQ(calibrated_threshold(histogram_of(values), CalibrationAlgorithm::kEntropy2, 1), alone);
}

TEST(Calibrators, MinMaxIsExact) {
  EXPECT_EQ(calibrated_threshold(histogram_of({1, -3.1415927f, 2}), CalibrationAlgorithm::kMinMax, 1), 3.1415927f);
  MagnitudeHistogram without_bins(false);
  without_bins.add(std::vector<float>{1, -7});
  without_bins.add(std::vector<float>{5});
  EXPECT_EQ(calibrated_threshold(without_bins, CalibrationAlgorithm::kMinMax, 1), 7);
  EXPECT_TRUE(without_bins.bins().empty());
}

TEST(Calibrators, QuantileIsThatOfTheSortedMagnitudes) {
  for (unsigned seed : {1u, 2u, 3u}) {
    std::vector<float> values = gaussian(30000, seed, 0.01f);
    values[5] = values[6] = 0;
    const MagnitudeHistogram histogram = histogram_of(values);
    std::vector<double> sorted;
    for (float value : values) sorted.push_back(std::abs(static_cast<double>(value)));
    std::sort(sorted.begin(), sorted.end());
    for (double q : {0.001, 0.5, 0.9, 0.99, 0.9999, 1.0}) {
      const double rank = q * static_cast<double>(sorted.size() - 1);
      const auto below = static_cast<std::size_t>(rank);
      const auto above = std::min(below + 1, sorted.size() - 1);
      const double exact = sorted[below] + (rank - std::floor(rank)) * (sorted[above] - sorted[below]);
      const double next = std::max(sorted[above] - sorted[below], histogram.bin_width());
      EXPECT_NEAR(calibrated_threshold(histogram, CalibrationAlgorithm::kLegacy, q), exact, next) << q;
    }
    EXPECT_EQ(calibrated_threshold(histogram, CalibrationAlgorithm::kLegacy, 1), sorted.back());
  }
  // A quantile that falls on the zeros would clip all the others.
  EXPECT_EQ(calibrated_threshold(histogram_of({0, 0, 0, 0, 2}), CalibrationAlgorithm::kLegacy, 0.5), 2);
}

TEST(MagnitudeHistogram, DoesNotDependOnOrderOrPieces) {
  std::vector<float> values = gaussian(5000, 3, 100);
  for (std::size_t i = 0; i < 100; ++i) values.push_back(std::ldexp(1.0f, static_cast<int>(i) - 60));
  const MagnitudeHistogram whole = histogram_of(values);
  std::reverse(values.begin(), values.end());
  MagnitudeHistogram pieces;
  for (std::size_t i = 0; i < values.size(); i += 7)
    pieces.add(std::span(values).subspan(i, std::min<std::size_t>(7, values.size() - i)));
  EXPECT_EQ(whole.bin_width(), pieces.bin_width());
  EXPECT_THAT(pieces.bins(), ::testing::ElementsAreArray(whole.bins()));
  EXPECT_EQ(whole.largest(), std::ldexp(1.0f, 39));
  std::int64_t sum = 0;
  for (std::int64_t count : whole.bins()) sum += count;
  EXPECT_EQ(sum, static_cast<std::int64_t>(values.size()));
}

TEST(MagnitudeHistogram, GrowsFromTinyToLarge) {
  MagnitudeHistogram growing;
  growing.add(std::vector<float>{1e-30f});
  growing.add(std::vector<float>{3});
  const MagnitudeHistogram at_once = histogram_of({3, 1e-30f});
  EXPECT_THAT(growing.bins(), ::testing::ElementsAreArray(at_once.bins()));
  growing.add(std::vector<float>{5});
  EXPECT_EQ(growing.bins()[0], 1);
  EXPECT_EQ(growing.bins()[3 * 1024], 1);
  EXPECT_EQ(growing.bins()[5 * 1024], 1);
}

TEST(Calibrators, MasksAndNonFiniteValuesDoNotCount) {
  std::vector<float> values = gaussian(100000, 9);
  const double alone = calibrated_threshold(histogram_of(values), CalibrationAlgorithm::kEntropy2, 1);
  for (int i = 0; i < 1000; ++i) values.insert(values.end(), {-3.4028235e38f, kInfinity, -kInfinity, kNaN});
  const MagnitudeHistogram histogram = histogram_of(values);
  EXPECT_EQ(calibrated_threshold(histogram, CalibrationAlgorithm::kEntropy2, 1), alone);
  EXPECT_EQ(histogram.masks(), 1000);
  EXPECT_EQ(histogram.non_finite(), 3000);
  EXPECT_EQ(calibrated_threshold(histogram, CalibrationAlgorithm::kMinMax, 1), 3.4028235e38f);
  const float scale = scale_from_threshold(3.4028235e38f);
  EXPECT_TRUE(std::isfinite(scale * 127));
}

TEST(Calibrators, ScalesAreNeverZeroOrSubnormal) {
  for (auto algorithm : {CalibrationAlgorithm::kEntropy2, CalibrationAlgorithm::kEntropy, CalibrationAlgorithm::kMinMax,
                         CalibrationAlgorithm::kLegacy}) {
    for (const std::vector<float>& values : {std::vector<float>{0, -0.0f, 0}, std::vector<float>{},
                                             std::vector<float>{kNaN, kInfinity}, std::vector<float>{1e-45f, 0}}) {
      EXPECT_EQ(scale_from_threshold(calibrated_threshold(histogram_of(values), algorithm, 0.99)), 1.0f / 127);
    }
    const float small = scale_from_threshold(calibrated_threshold(histogram_of({1e-33f, -1e-33f}), algorithm, 0.99));
    EXPECT_GT(small, 0);
    EXPECT_LE(small, 1e-33f / 126);
  }
}

TEST(Calibrators, HaveNames) {
  EXPECT_EQ(calibration_algorithm_from_name("IInt8EntropyCalibrator2"), CalibrationAlgorithm::kEntropy2);
  EXPECT_EQ(calibration_algorithm_from_name("IInt8EntropyCalibrator"), CalibrationAlgorithm::kEntropy);
  EXPECT_EQ(calibration_algorithm_from_name("max"), CalibrationAlgorithm::kMinMax);
  EXPECT_EQ(calibration_algorithm_from_name("percentile"), CalibrationAlgorithm::kLegacy);
  expect_error(ErrorCode::kInvalidArgument, {"IInt8MinMaxCalibrator", "got 'IInt8MinMaxCalibrater'; did you mean"},
               [] { calibration_algorithm_from_name("IInt8MinMaxCalibrater"); });
}

/// x -> Relu r -> Mul by 3: y; x -> Reshape by shape: flat.
std::shared_ptr<Network> network() {
  Model model;
  model.input("x", {-1, 4});
  model.node("Relu", {"x"}, {"r"}, "relu");
  model.node("Mul", {"r", "three"}, {"y"}, "mul");
  *model.graph().add_initializer() = float_tensor("three", {1}, {3});
  model.output("y");
  return model.load();
}

SampleSource source_of(std::vector<TensorMap> samples) {
  return [samples = std::move(samples), next = std::size_t{0}]() mutable -> std::optional<TensorMap> {
    if (next == samples.size()) return std::nullopt;
    return samples[next++];
  };
}

TensorMap sample(std::vector<float> values) {
  const auto rows = static_cast<std::int64_t>(values.size()) / 4;
  return {{"x", Tensor::of<float>({rows, 4}, std::span<const float>(values))}};
}

CalibrationOptions min_max() {
  CalibrationOptions options;
  options.algorithm = CalibrationAlgorithm::kMinMax;
  return options;
}

TEST(Calibrate, TakesEveryFloatTensorOverAllSamples) {
  std::vector<std::size_t> seen;
  const Calibration made =
      calibrate(network(), min_max(), source_of({sample({1, -20, 3, 4}), sample({1, 2, 3, 9, 0, 0, 0, 0})}),
                [&](std::size_t s) { seen.push_back(s); });
  EXPECT_THAT(made.scales, ::testing::ElementsAre(::testing::Pair("r", 9.0f / 127), ::testing::Pair("x", 20.0f / 127),
                                                  ::testing::Pair("y", 27.0f / 127)));
  EXPECT_EQ(made.samples, 2u);
  EXPECT_THAT(seen, ::testing::ElementsAre(0, 1));
  EXPECT_EQ(made.first_shapes.at("x"), (Shape{1, 4}));
}

TEST(Calibrate, IsTheSameForAnyThreadsOrderAndMemory) {
  std::vector<TensorMap> samples;
  for (unsigned s = 0; s < 5; ++s) samples.push_back(sample(gaussian(4000 * (s + 1), s)));
  for (auto algorithm :
       {CalibrationAlgorithm::kEntropy2, CalibrationAlgorithm::kEntropy, CalibrationAlgorithm::kLegacy}) {
    CalibrationOptions options;
    options.algorithm = algorithm;
    options.threads = 1;
    const auto first = calibrate(network(), options, source_of(samples)).scales;
    options.threads = 5;
    EXPECT_EQ(calibrate(network(), options, source_of(samples)).scales, first);
    options.memory_limit = 1;  // One tensor at a time.
    std::reverse(samples.begin(), samples.end());
    EXPECT_EQ(calibrate(network(), options, source_of(samples)).scales, first);
  }
}

TEST(Calibrate, IgnoresRequestedPrecisions) {
  const auto asked = network();
  for (Layer& layer : asked->layers) layer.precision = DataType::kFloat16;
  LogCapture log;
  const auto made = calibrate(asked, min_max(), source_of({sample({1, 2.0001f, 3, 4})}));
  EXPECT_EQ(made.scales.at("y"), 12.0f / 127);
  EXPECT_FALSE(log.has("precision-constraints"));
}

TEST(Calibrate, WarnsOfValuesThatAreNotFinite) {
  LogCapture log;
  const auto made = calibrate(network(), min_max(), source_of({sample({1, kNaN, 3, kInfinity})}));
  EXPECT_EQ(made.scales.at("x"), 3.0f / 127);
  EXPECT_TRUE(log.has("NaN or infinite"));
  EXPECT_TRUE(log.has("'x'"));
}

TEST(Calibrate, RefusesWhatDoesNotFit) {
  expect_error(ErrorCode::kInvalidArgument, {"expected at least one sample"},
               [] { calibrate(network(), {}, source_of({})); });
  expect_error(ErrorCode::kInvalidArgument, {"[calibrate] sample 1", "Input tensor: x"}, [] {
    calibrate(network(), {}, source_of({sample({1, 2, 3, 4}), {{"x", Tensor::of<float>({3}, {1, 2, 3})}}}));
  });
  for (double quantile : {0.0, -1.0, 1.5, std::nan("")}) {
    CalibrationOptions options;
    options.quantile = quantile;
    expect_error(ErrorCode::kInvalidArgument, {"quantile"}, [&] {
      calibrate(network(), options, source_of({sample({1, 2, 3, 4})}));
    });
  }
}

TEST(CheckScales, TellsOtherModelsFromMissingTensors) {
  const auto net = network();
  const std::vector<TensorId> wanted{net->find_tensor("x"), net->find_tensor("r"), net->find_tensor("y")};
  CalibrationCache cache;
  cache.scales = {{"x", 1.0f}, {"elsewhere", 1.0f}};
  {
    LogCapture log;
    check_scales(cache, *net, wanted, "c.cache");
    EXPECT_TRUE(log.has("has no scale for 2 tensor(s)"));
    EXPECT_TRUE(log.has("'r', 'y'"));
  }
  cache.scales.erase("x");
  expect_error(ErrorCode::kInvalidFile, {"c.cache", "another model: 'elsewhere'", "'x', 'r', 'y'"},
               [&] { check_scales(cache, *net, wanted, "c.cache"); });
  cache.scales.clear();
  expect_error(ErrorCode::kInvalidFile, {"none at all"}, [&] { check_scales(cache, *net, wanted, "c.cache"); });
}

/// The layers that count give what the values themselves give, for samples of several shapes.
TEST(RowRanges, OfCountsAreThoseOfValues) {
  Model model;
  model.input("x", {-1, 5});
  model.node("Exp", {"x"}, {"e"}, "exp");
  model.node("Mul", {"e", "e"}, {"m"}, "mul");
  model.node("Log", {"x"}, {"l"}, "log");
  model.node("Relu", {"x"}, {"r"}, "relu");
  model.node("Transpose", {"m"}, {"t"}, "transpose");
  model.node("Mul", {"r", "large"}, {"y"}, "large");
  *model.graph().add_initializer() = float_tensor("large", {1}, {3e28F});
  for (const char* output : {"m", "l", "t", "y"}) model.output(output);
  const auto network = model.load();
  std::vector<TensorMap> samples;
  std::mt19937 random(7);
  for (const std::int64_t rows : {3, 1, 6}) {
    Tensor x(DataType::kFloat32, {rows, 5});
    std::uniform_real_distribution<float> uniform(-60, 60);
    for (std::int64_t i = 0; i < x.size(); ++i) x.data<float>()[i] = i / 5 % 3 == 1 ? -1.0F : uniform(random);
    samples.push_back({{"x", x}});
  }
  std::vector<TensorId> tensors{network->find_tensor("x")};
  for (const char* name : {"e", "m", "l", "r", "t", "y"}) tensors.push_back(network->find_tensor(name));
  std::vector<RowRange> counted(tensors.size()), valued(tensors.size());
  visit_counts(*network, tensors, samples, {}, {}, "cpu",
               [&](std::size_t t, std::span<const std::int32_t> counts) { counted[t].add(counts); });
  visit_values(*network, tensors, samples, {}, {},
               [&](std::size_t t, const Tensor& value) { valued[t].add(value); });
  for (std::size_t t = 0; t < tensors.size(); ++t) {
    SCOPED_TRACE(network->tensor(tensors[t]).name);
    EXPECT_EQ(counted[t].largest(), valued[t].largest());
    EXPECT_EQ(counted[t].smallest(), valued[t].smallest());
    EXPECT_EQ(counted[t].has_zero_rows(), valued[t].has_zero_rows());
    for (int exponent = -151; exponent <= 131; ++exponent) {
      EXPECT_EQ(counted[t].share_below(exponent), valued[t].share_below(exponent)) << exponent;
      EXPECT_EQ(counted[t].lost_bits(exponent, 14), valued[t].lost_bits(exponent, 14)) << exponent;
    }
  }
  EXPECT_TRUE(counted[4].has_zero_rows());
}

}  // namespace
}  // namespace ulpscope::testing
