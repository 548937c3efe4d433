#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <limits>

#include "compare/compare_functions.h"
#include "compare/log_levels.h"
#include "compare/pairing.h"
#include "ulpscope/error.h"

namespace ulpscope {
namespace {

struct MetricInfo {
  const char *label, *unit;
  bool higher_is_better;
  PerName<double> CompareOptions::* thresholds;
  double threshold;   ///< Where none is given.
  const char* named;  ///< The thresholds as Polygraphy names them.
};

const MetricInfo& info_of(Metric metric) {
  using O = CompareOptions;
  static constexpr std::array<MetricInfo, 4> kMetrics{
      {{"L2 Norm", "", false, &O::l2_tolerance, 1e-5, "the l2_threshold dictionary"},
       {"Cosine Similarity", "", true, &O::cosine_similarity_threshold, 0.997,
        "the cosine_similarity_threshold dictionary"},
       {"PSNR", " dB", true, &O::psnr_tolerance, 30.0, "the psnr_threshold dictionary"},
       {"SNR", " dB", true, &O::snr_tolerance, 20.0, "the snr_threshold dictionary"}}};
  return kMetrics[static_cast<std::size_t>(metric)];
}

/// Value and threshold with as many digits as tell them apart, five at least.
std::pair<std::string, std::string> distinct(double value, double threshold) {
  char first[64], second[64];
  for (int precision = 5; precision <= 17; ++precision) {
    std::snprintf(first, sizeof(first), "%.*g", precision, value);
    std::snprintf(second, sizeof(second), "%.*g", precision, threshold);
    if (value == threshold || std::string(first) != second) break;
  }
  return {std::isnan(value) ? "nan" : first, second};
}

struct Sums {
  double aa = 0, bb = 0, ab = 0, noise = 0;  ///< Sums of a*a, b*b, a*b and (a-b)^2.
  double max_a = -std::numeric_limits<double>::infinity();
};

Sums sums_of(const Tensor& x, const Tensor& y, double scale_x = 1, double scale_y = 1) {
  const double* p = x.data<double>();
  const double* q = y.data<double>();
  Sums sums;
  for (std::int64_t i = 0; i < x.size(); ++i) {
    const double a = p[i] * scale_x, b = q[i] * scale_y;
    sums.aa += a * a;
    sums.bb += b * b;
    sums.ab += a * b;
    sums.noise += (a - b) * (a - b);
    sums.max_a = std::max(sums.max_a, a);
  }
  return sums;
}

/// A power of two that brings the largest value near 1; 1 where none can.
double scale_of(const Tensor& tensor) {
  double largest = 0;
  for (std::int64_t i = 0; i < tensor.size(); ++i) largest = std::max(largest, std::abs(tensor.data<double>()[i]));
  if (largest == 0 || !std::isfinite(largest)) return 1;
  return std::ldexp(1.0, -std::clamp(std::ilogb(largest), -1000, 1000));
}

double cosine_similarity(const Tensor& x, const Tensor& y, Sums sums) {
  const auto unsafe = [](double sum) { return sum < 1e-200 || !std::isfinite(sum); };
  if (unsafe(sums.aa) || unsafe(sums.bb)) sums = sums_of(x, y, scale_of(x), scale_of(y));
  if (sums.aa == 0 && sums.bb == 0) return 1;
  if (sums.aa == 0 || sums.bb == 0) return 0;
  const double similarity = sums.ab / (std::sqrt(sums.aa) * std::sqrt(sums.bb));
  return std::isnan(similarity) ? similarity : std::clamp(similarity, -1.0, 1.0);
}

}  // namespace

bool MetricCheck::passed() const { return info_of(metric).higher_is_better ? value >= threshold : value <= threshold; }

std::string to_text(const MetricCheck& check) {
  const MetricInfo& info = info_of(check.metric);
  const auto [value, threshold] = distinct(check.value, check.threshold);
  return std::string(info.label) + ": " + value + info.unit + " (" +
         (info.higher_is_better ? "min required" : "tolerance") + ": " + threshold + info.unit + ") | " +
         (check.passed() ? "PASSED" : "FAILED");
}

double metric_value(Metric metric, const Tensor& a, const Tensor& b) {
  const Tensor x = a.cast(DataType::kFloat64), y = b.cast(DataType::kFloat64);
  const Sums sums = sums_of(x, y);
  const auto count = static_cast<double>(a.size());
  switch (metric) {
    case Metric::kL2:
      return std::sqrt(sums.noise);
    case Metric::kCosineSimilarity:
      return cosine_similarity(x, y, sums);
    case Metric::kPsnr: {
      if (sums.noise == 0) return std::numeric_limits<double>::infinity();
      const double peak = sums.max_a > 0 ? sums.max_a : 1.0;
      return 20 * std::log10(peak) - 10 * std::log10(sums.noise / count);
    }
    case Metric::kSnr: {
      if (sums.noise == 0) return std::numeric_limits<double>::infinity();
      if (sums.aa == 0) return -std::numeric_limits<double>::infinity();
      return 10 * std::log10(sums.aa / sums.noise);
    }
  }
  throw InternalError("metric_value: unknown metric");
}

CompareFunction metric_compare(const std::vector<Metric>& metrics, const CompareOptions& options) {
  return [metrics, options](const IterationResult& first, const IterationResult& second) {
    std::string label;
    for (Metric metric : metrics) {
      const MetricInfo& info = info_of(metric);
      warn_unknown_names(options.*info.thresholds, info.named, first, second);
      label += (label.empty() ? "" : ", ") + std::string(info.label);
    }
    return compare_outputs(
        first, second, label, options.fail_fast,
        [&](const std::string& name, const Tensor& a, const std::string& other_name, const Tensor& b) {
          OutputVerdict verdict{name, other_name};
          const auto aligned = align_shapes(name, a, b, options.check_shapes);
          if (!aligned) {
            log_both_statistics(first, name, a, second, other_name, b, false);
            return verdict;
          }
          verdict.passed = true;
          for (Metric metric : metrics) {
            const MetricInfo& info = info_of(metric);
            const double threshold = (options.*info.thresholds).get(name, info.threshold);
            const MetricCheck& check =
                verdict.checks.emplace_back(MetricCheck{metric, metric_value(metric, a, *aligned), threshold});
            log_result(check.passed(), to_text(check));
            verdict.passed = verdict.passed && check.passed();
          }
          log_both_statistics(first, name, a, second, other_name, *aligned, verdict.passed);
          return verdict;
        });
  };
}

}  // namespace ulpscope
