#include "calibration/calibrators.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <string>
#include <utility>

#include "core/messages.h"
#include "core/vector_clones.h"
#include "graph/name_match.h"

namespace ulpscope {
namespace {

struct AlgorithmName {
  std::string_view name;
  CalibrationAlgorithm algorithm;
};

constexpr std::array kNames{
    AlgorithmName{"IInt8EntropyCalibrator2", CalibrationAlgorithm::kEntropy2},
    AlgorithmName{"IInt8EntropyCalibrator", CalibrationAlgorithm::kEntropy},
    AlgorithmName{"IInt8MinMaxCalibrator", CalibrationAlgorithm::kMinMax},
    AlgorithmName{"IInt8LegacyCalibrator", CalibrationAlgorithm::kLegacy},
    AlgorithmName{"entropy", CalibrationAlgorithm::kEntropy2},
    AlgorithmName{"max", CalibrationAlgorithm::kMinMax},
    AlgorithmName{"percentile", CalibrationAlgorithm::kLegacy},
};

/// Levels of one sign in int8, and bins of the published histogram.
constexpr std::size_t kLevels = 128;
constexpr std::size_t kEntropyBins = 2048;
/// Smaller ranges are not told apart: their scales would be next to subnormal.
constexpr int kSmallestExponent = -100;
/// The weight of the uniform distribution in IInt8EntropyCalibrator2.
constexpr double kSmoothing = 1e-4;

/// The bins up to the largest value, in at most 2048 and at least 1366 groups of equal width.
std::vector<std::int64_t> grouped(std::span<const std::int64_t> bins, std::size_t used, std::size_t group) {
  std::vector<std::int64_t> result((used + group - 1) / group, 0);
  for (std::size_t b = 0; b < used; ++b) result[b / group] += bins[b];
  return result;
}

/// As NumPy's linear method over all magnitudes, zeros included; the values of a bin are taken as spread evenly.
double quantile_of(const MagnitudeHistogram& histogram, double quantile) {
  const double rank = quantile * static_cast<double>(histogram.zeros() + histogram.counted() - 1);
  double below = static_cast<double>(histogram.zeros());
  if (rank < below) return 0;
  const double width = histogram.bin_width();
  const auto bins = histogram.bins();
  for (std::size_t b = 0; b < bins.size(); ++b) {
    const auto count = static_cast<double>(bins[b]);
    if (count > 0 && rank < below + count) return (static_cast<double>(b) + (rank - below + 0.5) / count) * width;
    below += count;
  }
  return static_cast<double>(histogram.largest_counted());
}

}  // namespace

CalibrationAlgorithm calibration_algorithm_from_name(std::string_view name) {
  for (const AlgorithmName& entry : kNames)
    if (entry.name == name) return entry.algorithm;
  std::vector<std::string> names;
  for (const AlgorithmName& entry : kNames) names.emplace_back(entry.name);
  std::string listed;
  for (const std::string& each : names) listed += (listed.empty() ? "" : ", ") + each;
  throw invalid_argument("[calibrate] calibrator: expected one of {}, got '{}'{}", listed, name,
                         did_you_mean(name, names));
}

std::string_view class_name_of(CalibrationAlgorithm algorithm) noexcept {
  return std::ranges::find(kNames, algorithm, &AlgorithmName::algorithm)->name;
}

std::string_view cache_name_of(CalibrationAlgorithm algorithm) noexcept {
  static constexpr std::array<std::string_view, 4> kNames{"EntropyCalibration2", "EntropyCalibration",
                                                          "MinMaxCalibration", "LegacyCalibration"};
  return kNames[static_cast<std::size_t>(algorithm)];
}

double MagnitudeHistogram::bin_width() const noexcept {
  return std::ldexp(1.0, exponent_) / static_cast<double>(kBins);
}

MagnitudeHistogram::MagnitudeHistogram(bool with_bins) : exponent_(kSmallestExponent) {
  if (with_bins) bins_.assign(kBins, 0);
}

void MagnitudeHistogram::grow_to(int exponent) noexcept {
  if (exponent <= exponent_) return;
  // 13 doublings put everything into the first bin.
  const int shift = std::min(exponent - exponent_, 13);
  for (std::size_t b = 0; b < bins_.size(); ++b) bins_[b >> shift] += std::exchange(bins_[b], 0);
  exponent_ = exponent;
}

namespace {

/// What one pass over values finds. Magnitudes as the bits of floats.
struct MagnitudeCounts {
  std::int32_t largest = 0, counted = 0;  ///< The largest finite one; the same without masks.
  std::int64_t zeros = 0, masks_or_more = 0, non_finite = 0;
};

ULPSCOPE_VECTOR_CLONES void count_magnitudes(const float* values, std::size_t size, MagnitudeCounts& result) noexcept {
  // The bits of magnitudes are ordered as the magnitudes are, NaN last: loops over them need no branches.
  constexpr std::int32_t kMask = std::bit_cast<std::int32_t>(kMaskMagnitude);
  constexpr std::int32_t kInfinity = 0x7f800000;
  std::int32_t largest = 0, counted = 0;
  constexpr std::size_t kBlock = 4096;
  for (std::size_t begin = 0; begin < size; begin += kBlock) {
    const std::size_t end = size - begin < kBlock ? size : begin + kBlock;
    std::int32_t zeros = 0, masks = 0, non_finite = 0;
    for (std::size_t i = begin; i < end; ++i) {
      std::int32_t bits;
      __builtin_memcpy(&bits, values + i, sizeof bits);
      bits &= 0x7fffffff;
      const std::int32_t finite = bits < kInfinity ? bits : 0, measured = bits < kMask ? bits : 0;
      largest = largest < finite ? finite : largest;
      counted = counted < measured ? measured : counted;
      zeros += bits == 0;
      masks += bits >= kMask;
      non_finite += bits >= kInfinity;
    }
    result.zeros += zeros;
    result.masks_or_more += masks;
    result.non_finite += non_finite;
  }
  result.largest = largest;
  result.counted = counted;
}

}  // namespace

void MagnitudeHistogram::add(std::span<const float> values) noexcept {
  MagnitudeCounts counts;
  count_magnitudes(values.data(), values.size(), counts);
  const auto [largest, counted, zeros, masks_or_more, non_finite] = counts;
  largest_ = std::max(largest_, std::bit_cast<float>(largest));
  largest_counted_ = std::max(largest_counted_, std::bit_cast<float>(counted));
  zeros_ += zeros;
  non_finite_ += non_finite;
  masks_ += masks_or_more - non_finite;
  counted_ += static_cast<std::int64_t>(values.size()) - zeros - masks_or_more;
  if (bins_.empty() || counted == 0) return;
  int exponent = 0;
  std::frexp(std::bit_cast<float>(counted), &exponent);  // counted < 2^exponent
  grow_to(std::max(exponent, kSmallestExponent));
  // A power of two: the product is exact.
  const float to_bin = std::ldexp(static_cast<float>(kBins), -exponent_);
  for (float value : values) {
    const float magnitude = std::abs(value);
    if (magnitude > 0 && magnitude < kMaskMagnitude) ++bins_[magnitude * to_bin];
  }
}

namespace {

/// Where the sums differ by rounding, divergences are equal (all 0, say).
constexpr double kEqual = 1e-9;

/// Divergences of the candidates of entropy_threshold().
class Divergences {
 public:
  Divergences(std::span<const std::int64_t> bins, double smoothing)
      : bins_(bins), smoothing_(smoothing), count_(bins.size() + 1, 0), c_log_c_(count_), filled_(bins.size() + 1, 0) {
    for (std::size_t k = 0; k < bins.size(); ++k) {
      const auto c = static_cast<double>(bins[k]);
      count_[k + 1] = count_[k] + c;
      c_log_c_[k + 1] = c_log_c_[k] + (c > 0 ? c * std::log(c) : 0);
      filled_[k + 1] = filled_[k] + (c > 0);
    }
    total_ = count_.back();
    log_total_ = std::log(total_);
  }

  /// Of the first i bins; infinite where that is none, or is found to be above `limit` on the way.
  double of(std::size_t i, double limit) const {
    const double kept = count_[i];
    const double outliers = total_ - kept;
    const bool last_empty = bins_[i - 1] == 0;
    if (kept == 0 || (last_empty && outliers > 0 && smoothing_ == 0)) return kNone;
    // sum P log P: the first i - 1 bins, and the last one with the outliers.
    const double last = static_cast<double>(bins_[i - 1]) + outliers;
    double divergence = (c_log_c_[i - 1] - count_[i - 1] * log_total_) / total_;
    if (last > 0) divergence += last / total_ * std::log(last / total_);
    // - sum P log Q: Q is the same in all the filled bins of a level.
    const double uniform = smoothing_ / static_cast<double>(i);
    const auto term = [&](std::size_t level) {
      const std::size_t begin = level * i / kLevels, end = (level + 1) * i / kLevels;
      const double sum = count_[end] - count_[begin];
      if (sum == 0) return 0.0;
      const double q = (1 - smoothing_) * sum / (static_cast<double>(filled_[end] - filled_[begin]) * kept) + uniform;
      const double mass = sum + (end == i && !last_empty ? outliers : 0);
      return mass / total_ * std::log(q);
    };
    const double last_level = term(kLevels - 1);
    const double in_empty = last_empty && outliers > 0 ? outliers / total_ * std::log(uniform) : 0;
    for (std::size_t level = 0; level + 1 < kLevels; ++level) {
      if (level % kBetweenBounds == 0 && divergence - last_level - in_empty + least(level, i) > limit) return kNone;
      divergence -= term(level);
    }
    return divergence - last_level - in_empty;
  }

 private:
  static constexpr double kNone = std::numeric_limits<double>::infinity();
  static constexpr std::size_t kBetweenBounds = 8;

  /// What - sum P log Q of the levels from this one to the last but one is at least: their - sum P log P, and their
  /// divergence if all of them were one bin.
  double least(std::size_t level, std::size_t i) const {
    const std::size_t begin = level * i / kLevels, end = (kLevels - 1) * i / kLevels;
    const double sum = count_[end] - count_[begin];
    if (sum == 0) return 0;
    const double q =
        (1 - smoothing_) * sum / count_[i] + smoothing_ * static_cast<double>(end - begin) / static_cast<double>(i);
    const double p_log_p = (c_log_c_[end] - c_log_c_[begin] - sum * log_total_) / total_;
    return sum / total_ * (std::log(sum) - log_total_ - std::log(q)) - p_log_p;
  }

  std::span<const std::int64_t> bins_;
  const double smoothing_;
  // Sums of the first k bins: of counts, of c log c, and the number of bins that are not empty.
  std::vector<double> count_, c_log_c_;
  std::vector<std::int64_t> filled_;
  double total_ = 0, log_total_ = 0;
};

}  // namespace

double entropy_threshold(std::span<const std::int64_t> bins, double smoothing) {
  const std::size_t size = bins.size();
  if (size <= kLevels) return static_cast<double>(size);
  const Divergences divergences(bins, smoothing);
  double best = std::numeric_limits<double>::infinity();
  // Of candidates that are clearly worse than one of these, the rest need not be added up.
  constexpr std::size_t kSparse = 32;
  for (std::size_t i = kLevels; i <= size; i += kSparse) best = std::min(best, divergences.of(i, best + 2 * kEqual));
  std::size_t best_i = size;
  for (std::size_t i = kLevels; i <= size; ++i) {
    const double divergence = divergences.of(i, best + 2 * kEqual);
    if (std::isinf(divergence) || divergence > best + kEqual) continue;  // Of equal ones, the widest range is taken.
    best = std::min(best, divergence);
    best_i = i;
  }
  return best_i == size ? static_cast<double>(size) : static_cast<double>(best_i) + 0.5;
}

double calibrated_threshold(const MagnitudeHistogram& histogram, CalibrationAlgorithm algorithm, double quantile) {
  const auto largest = static_cast<double>(histogram.largest_counted());
  if (algorithm == CalibrationAlgorithm::kMinMax || largest == 0) return static_cast<double>(histogram.largest());
  if (algorithm == CalibrationAlgorithm::kLegacy) {
    const double threshold = quantile_of(histogram, quantile);
    // Nearly all are zero: a quantile of zero would make all the others zero, too.
    return threshold > 0 ? std::min(threshold, largest) : largest;
  }
  const auto bins = histogram.bins();
  const double width = histogram.bin_width();
  const auto used = std::min(bins.size(), static_cast<std::size_t>(largest / width) + 1);
  const std::size_t group = (used + kEntropyBins - 1) / kEntropyBins;
  std::vector<std::int64_t> counts = grouped(bins, used, group);
  // Zeros are exact in int8 whatever the scale. The published method has them in the first bin, where those of a ReLU
  // outweigh the values; version 2 leaves them out.
  if (algorithm == CalibrationAlgorithm::kEntropy) counts[0] += histogram.zeros();
  const double smoothing = algorithm == CalibrationAlgorithm::kEntropy2 ? kSmoothing : 0;
  return std::min(entropy_threshold(counts, smoothing) * static_cast<double>(group) * width, largest);
}

float scale_from_threshold(double threshold) noexcept {
  const auto scale = static_cast<float>(threshold / 127);
  if (!(scale >= std::numeric_limits<float>::min())) return 1.0f / 127.0f;
  // 127 times the scale of the largest float may round to infinity.
  return std::isfinite(scale * 127.0f) ? scale : std::nextafter(std::numeric_limits<float>::max() / 127.0f, 0.0f);
}

}  // namespace ulpscope
