#include <algorithm>
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
  const char* label;
  const char* unit;
  bool higher_is_better;
};

MetricInfo info_of(Metric metric) {
  switch (metric) {
    case Metric::kL2:
      return {"L2 Norm", "", false};
    case Metric::kCosineSimilarity:
      return {"Cosine Similarity", "", true};
    case Metric::kPsnr:
      return {"PSNR", " dB", true};
    case Metric::kSnr:
      return {"SNR", " dB", true};
  }
  throw InternalError("info_of: unknown metric");
}

double threshold_of(Metric metric, const CompareOptions& options, const std::string& name) {
  switch (metric) {
    case Metric::kL2:
      return options.l2_tolerance.get(name, 1e-5);
    case Metric::kCosineSimilarity:
      return options.cosine_similarity_threshold.get(name, 0.997);
    case Metric::kPsnr:
      return options.psnr_tolerance.get(name, 30.0);
    case Metric::kSnr:
      return options.snr_tolerance.get(name, 20.0);
  }
  throw InternalError("threshold_of: unknown metric");
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

/// The thresholds as Polygraphy names them.
std::pair<const PerName<double>*, const char*> thresholds_of(Metric metric, const CompareOptions& options) {
  switch (metric) {
    case Metric::kL2:
      return {&options.l2_tolerance, "the l2_threshold dictionary"};
    case Metric::kCosineSimilarity:
      return {&options.cosine_similarity_threshold, "the cosine_similarity_threshold dictionary"};
    case Metric::kPsnr:
      return {&options.psnr_tolerance, "the psnr_threshold dictionary"};
    case Metric::kSnr:
      return {&options.snr_tolerance, "the snr_threshold dictionary"};
  }
  throw InternalError("thresholds_of: unknown metric");
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
  const MetricInfo info = info_of(check.metric);
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
    for (Metric metric : metrics) {
      const auto [thresholds, what] = thresholds_of(metric, options);
      warn_unknown_names(*thresholds, what, first, second);
    }
    std::string label;
    for (Metric metric : metrics) label += (label.empty() ? "" : ", ") + std::string(info_of(metric).label);
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
            const MetricCheck& check = verdict.checks.emplace_back(
                MetricCheck{metric, metric_value(metric, a, *aligned), threshold_of(metric, options, name)});
            log_result(check.passed(), to_text(check));
            verdict.passed = verdict.passed && check.passed();
          }
          log_both_statistics(first, name, a, second, other_name, *aligned, verdict.passed);
          return verdict;
        });
  };
}

}  // namespace ulpscope
