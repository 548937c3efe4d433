// Statistics of an array as Polygraphy computes them with NumPy: the same types, summation order and NaN rules.
#pragma once

#include <optional>
#include <string>

#include "ulpscope/tensor.h"

namespace ulpscope {

/// All values as double; those that NumPy computes in float32 were rounded to it. NaN in the data makes everything NaN,
/// with the indices of the first NaN. Empty arrays: mean and avg_magnitude NaN, quantiles inf, the rest 0.
struct Statistics {
  double mean = 0;     ///< Accumulated in float32, pairwise in blocks of 128.
  double std_dev = 0;  ///< Population; float32 for float32 data, else float64.
  double variance = 0;
  double median = 0;  ///< Of the middle two for an even number.
  double min = 0;
  double max = 0;
  Shape min_index;  ///< The first position of it.
  Shape max_index;
  double avg_magnitude = 0;  ///< Mean of the absolute values.
  /// Linear interpolation; nothing for bool.
  std::optional<double> p90, p95, p99;
};

/// Takes every numeric type and bool; float16 and bfloat16 are computed in float32.
Statistics compute_statistics(const Tensor& tensor);

/// "mean=2.5, std-dev=1.118, ..., p99=3.97".
std::string to_string(const Statistics& statistics, bool is_empty);

/// numpy.mean(x, dtype=float32).
float mean_f32(const Tensor& tensor);
/// numpy.median.
double median_of(const Tensor& tensor);
/// numpy.quantile(x, q), linear; inf for empty arrays.
double quantile_of(const Tensor& tensor, double q);
/// numpy.amin and amax; 0 for empty arrays.
double min_of(const Tensor& tensor);
double max_of(const Tensor& tensor);

/// numpy.add.reduce of contiguous data in the precision of T.
float pairwise_sum(const float* values, std::size_t count);
double pairwise_sum(const double* values, std::size_t count);

/// "%.5g" as Python's format prints it ("nan", "inf").
std::string format_g5(double value);

/// float16 and bfloat16 become float32, 8- and 16-bit integers int32, uint32 int64; others are returned as they are.
Tensor cast_up(const Tensor& tensor);

}  // namespace ulpscope
