// The comparison functions that options can name.
#pragma once

#include <utility>

#include "compare/comparison.h"

namespace ulpscope {

CompareFunction simple_compare(const CompareOptions& options);
/// Positions of values, as those of a Top-K, may differ by a tolerance.
CompareFunction indices_compare(const CompareOptions& options);

/// One number per output and metric, each against its threshold.
CompareFunction metric_compare(const std::vector<Metric>& metrics, const CompareOptions& options);

/// The number itself, accumulated in float64; `a` is judged against `b`.
/// REQUIRES: equal shapes.
double metric_value(Metric metric, const Tensor& a, const Tensor& b);

/// "L2 Norm: 0.5 (tolerance: 1e-05) | FAILED", with as many digits as tell value and threshold apart.
std::string to_text(const MetricCheck& check);

/// The pair of numbers that `stat` selects: absolute, relative; 0 for a quantile that was not computed.
std::pair<double, double> selected_error(const ErrorMetrics& metrics, const std::string& stat);

/// Logs the statistics of two compared outputs; where they disagree (`passed` is false) their values and histograms,
/// over a range that both share, too.
void log_both_statistics(const IterationResult& first, const std::string& name, const Tensor& a,
                         const IterationResult& second, const std::string& other_name, const Tensor& b, bool passed);

}  // namespace ulpscope
