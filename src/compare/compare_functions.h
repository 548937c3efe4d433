// The comparison functions that options can name.
#pragma once

#include <string_view>
#include <utility>

#include "compare/comparison.h"
#include "compare/statistics.h"

namespace ulpscope {

CompareFunction simple_compare(const CompareOptions& options);
/// Positions of values, as those of a Top-K, may differ by a tolerance.
CompareFunction indices_compare(const CompareOptions& options);

enum class Metric { kL2, kCosineSimilarity, kPsnr, kSnr };

/// One number per output and metric, each against its threshold.
CompareFunction metric_compare(const std::vector<Metric>& metrics, const CompareOptions& options);

/// The number itself, accumulated in float64; `a` is judged against `b`.
/// REQUIRES: equal shapes.
double metric_value(Metric metric, const Tensor& a, const Tensor& b);

/// The range that the histograms of two compared outputs share.
std::pair<double, double> shared_range(const Tensor& a, const Statistics& statistics_a, const Tensor& b,
                                       const Statistics& statistics_b);

}  // namespace ulpscope
