// How the range of a tensor that int8 gets is found from the values that the tensor had: TensorRT's four calibrators.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "ulpscope/calibrate.h"

namespace ulpscope {

/// From a TensorRT class ("IInt8MinMaxCalibrator") or a short word: entropy, max, percentile. Throws
/// Error(kInvalidArgument) with the names that there are and the nearest ones.
CalibrationAlgorithm calibration_algorithm_from_name(std::string_view name);
/// The class.
std::string_view class_name_of(CalibrationAlgorithm algorithm) noexcept;

/// From here on a finite value is a mask that stands for minus infinity (-3.4e38 in attention), not a measurement: it
/// saturates in int8, and does not count for calibrators that look at the distribution. MinMax takes it as it is.
inline constexpr float kMaskMagnitude = 1e30f;

/// What calibrators know of the values of one tensor, over all samples: counts of |x| in equal bins from 0 to a power
/// of two. The range doubles when a larger value comes, by adding pairs of bins, so the memory is fixed and the order
/// of the samples does not matter. Not thread-safe.
class MagnitudeHistogram {
 public:
  /// At least half of them are below the largest value, more than entropy calibration's 2048 / 2.
  static constexpr std::size_t kBins = 8192;

  /// `with_bins` false: only what MinMax needs is kept.
  explicit MagnitudeHistogram(bool with_bins = true);

  void add(std::span<const float> values) noexcept;

  /// The largest finite magnitude; 0 when there is none.
  float largest() const noexcept { return largest_; }
  /// The same without masks.
  float largest_counted() const noexcept { return largest_counted_; }
  /// Elements: counted in bins (not zero), exactly zero, masks, NaN or infinite.
  std::int64_t counted() const noexcept { return counted_; }
  std::int64_t zeros() const noexcept { return zeros_; }
  std::int64_t masks() const noexcept { return masks_; }
  std::int64_t non_finite() const noexcept { return non_finite_; }

  /// Counts of the bins, without exact zeros. Empty if bins are not kept.
  std::span<const std::int64_t> bins() const noexcept { return bins_; }
  double bin_width() const noexcept;

 private:
  void grow_to(int exponent) noexcept;

  float largest_ = 0, largest_counted_ = 0;
  std::int64_t counted_ = 0, zeros_ = 0, masks_ = 0, non_finite_ = 0;
  int exponent_;  ///< The bins cover [0, 2^exponent_).
  std::vector<std::int64_t> bins_;
};

/// The magnitude that becomes 127: larger values saturate. `quantile`: for kLegacy. 0 when there were only zeros.
double calibrated_threshold(const MagnitudeHistogram& histogram, CalibrationAlgorithm algorithm, double quantile);

/// threshold / 127, kept within what a float32 scale can be: 1 / 127 for a tensor of zeros (which every scale
/// represents) and for magnitudes whose scale would be subnormal.
float scale_from_threshold(double threshold) noexcept;

/// Entropy calibration on equal bins of |x|, after Migacz, "8-bit Inference with TensorRT" (GTC 2017). For every
/// i from 128 to the number of bins: the reference P is bins 0 to i - 1 with everything beyond added to the last one;
/// the candidate Q is bins 0 to i - 1 summed into 128 levels (level j: bins i j / 128 to i (j + 1) / 128), every sum
/// spread evenly over those of its bins that are not empty; both are divided by their sums. The i of the smallest
/// KL(P || Q) wins, the largest of equal ones, and the threshold is (i + 0.5) bins; i bins if it is all of them.
/// `smoothing` L: Q is mixed with the uniform distribution of i bins, (1 - L) Q + L / i, so that values which saturate
/// into an empty bin cost something finite; with 0 such an i is passed over. Returns the threshold in bins.
double entropy_threshold(std::span<const std::int64_t> bins, double smoothing);

}  // namespace ulpscope
