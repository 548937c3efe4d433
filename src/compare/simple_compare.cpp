// `--compare simple`: tolerances on a statistic of the absolute and relative difference.
#include <algorithm>
#include <cmath>
#include <cstdio>

#include "compare/compare_functions.h"
#include "compare/difference.h"
#include "compare/log_levels.h"
#include "compare/pairing.h"
#include "compare/statistics_log.h"
#include "core/messages.h"
#include "ulpscope/error.h"

namespace ulpscope {
namespace {

/// The range that the histograms of two compared outputs share.
std::pair<double, double> shared_range(const Tensor& a, const Statistics& statistics_a, const Tensor& b,
                                       const Statistics& statistics_b) {
  if (a.size() == 0 || b.size() == 0) return {0, 0};
  // NaN in either must not be lost: there is no histogram then.
  const auto smaller = [](double x, double y) { return std::isnan(x) || x < y ? x : y; };
  const auto larger = [](double x, double y) { return std::isnan(x) || x > y ? x : y; };
  return {smaller(statistics_a.min, statistics_b.min), larger(statistics_a.max, statistics_b.max)};
}

std::string format_g4(double value) {
  char buffer[64];
  std::snprintf(buffer, sizeof(buffer), "%.4g", value);
  return buffer;
}

/// The runner's name as it stands in front of a message.
std::string padded(std::string name) {
  name.resize(std::max<std::size_t>(35, name.size()), ' ');
  return name;
}

class SimpleCompare {
 public:
  explicit SimpleCompare(const CompareOptions& options) : options_(options) {}

  IterationVerdict operator()(const IterationResult& first, const IterationResult& second) const {
    warn_unknown_names(options_.rtol, "the rtol dictionary", first, second);
    warn_unknown_names(options_.atol, "the atol dictionary", first, second);
    warn_unknown_names(options_.error_stat, "the check_error_stat dictionary", first, second);
    warn_unknown_names(options_.error_quantile, "the quantile dictionary", first, second);
    if (!options_.check_shapes)
      log_once(LogLevel::kInfo,
               "Strict shape checking disabled. Will attempt to match output shapes before comparisons");
    return compare_outputs(first, second, "", options_.fail_fast,
                           [&](const std::string& name, const Tensor& a, const std::string& other_name,
                               const Tensor& b) { return match(first, name, a, second, other_name, b); });
  }

 private:
  OutputVerdict match(const IterationResult& first, const std::string& name, const Tensor& a,
                      const IterationResult& second, const std::string& other_name, const Tensor& b) const {
    const double atol = options_.atol.get(name, 1e-5), rtol = options_.rtol.get(name, 1e-5);
    const std::string stat = options_.error_stat.get(name, "elemwise");
    const double quantile = options_.error_quantile.get(name, 0.99);
    log_info("Tolerance: [abs=" + format_g5(atol) + ", rel=" + format_g5(rtol) + "] | Checking " + stat + " error");
    OutputVerdict verdict{name, other_name};
    const auto aligned = align_shapes(name, a, b, options_.check_shapes);
    if (!aligned) {
      log_both_statistics(first, name, a, second, other_name, b, false);
      return verdict;
    }

    const Difference diff = difference(a, *aligned, options_.infinities_compare_equal);
    if (diff.zeros_in_reference) {
      log_once(
          LogLevel::kWarning,
          padded(second.runner_name) + " | Output: " + other_name +
              ": Some values are 0. Will add a small epsilon quantity to these when computing relative difference. "
              "Note that this may cause some relative differences to be extremely high. ");
    }
    const Statistics absolute = compute_statistics(diff.absolute), relative = compute_statistics(diff.relative);
    ErrorMetrics metrics{absolute.max, relative.max, absolute.mean, relative.mean, absolute.median, relative.median};
    if (stat == "quantile") {
      metrics.quantile_abs = quantile_of(diff.absolute, quantile);
      metrics.quantile_rel = quantile_of(diff.relative, quantile);
    }
    const auto [checked_abs, checked_rel] = selected_error(metrics, stat);
    if (stat == "elemwise") {
      verdict.passed = count_mismatches(diff, atol, rtol) == 0;
    } else {
      verdict.passed = checked_abs <= atol || checked_rel <= rtol;  // false for NaN
    }

    if (log_enabled(LogLevel::kInfo)) {
      log_both_statistics(first, name, a, second, other_name, *aligned, verdict.passed);
      log_info("Error Metrics: " + name);
      const LogIndent indent;
      std::string line = "Minimum Required Tolerance: " + stat + " error | [abs=" + format_g5(checked_abs) +
                         "] OR [rel=" + format_g5(checked_rel) + "]";
      if (stat == "elemwise") line += " (requirements may be lower if both abs/rel tolerances are set)";
      if (stat == "quantile") line += " (quantile=" + format_g4(quantile) + ")";
      log_info(line);
      log_statistics(diff.absolute, absolute, !verdict.passed, "Absolute Difference");
      log_statistics(diff.relative, relative, !verdict.passed, "Relative Difference");
    }
    if (options_.draw) options_.draw({first, second, name, other_name, diff.absolute, diff.relative, *aligned});
    const std::string tolerances = "(rel=" + options_.rtol_text.get(name, python_float(rtol)) +
                                   ", abs=" + options_.atol_text.get(name, python_float(atol)) + ")";
    const std::string about = " | Output: '" + name + "' | Difference ";
    log_result(verdict.passed, verdict.passed ? "PASSED" + about + "is within tolerance " + tolerances
                                              : "FAILED" + about + "exceeds tolerance " + tolerances);
    verdict.metrics = metrics;
    verdict.tolerance = {stat, atol, rtol};
    return verdict;
  }

  CompareOptions options_;
};

}  // namespace

std::pair<double, double> selected_error(const ErrorMetrics& metrics, const std::string& stat) {
  if (stat == "mean") return {metrics.mean_abs, metrics.mean_rel};
  if (stat == "median") return {metrics.median_abs, metrics.median_rel};
  if (stat == "quantile") return {metrics.quantile_abs.value_or(0), metrics.quantile_rel.value_or(0)};
  return {metrics.max_abs, metrics.max_rel};
}

void log_both_statistics(const IterationResult& first, const std::string& name, const Tensor& a,
                         const IterationResult& second, const std::string& other_name, const Tensor& b, bool passed) {
  if (!log_enabled(LogLevel::kInfo)) return;
  const Statistics statistics_a = compute_statistics(a), statistics_b = compute_statistics(b);
  const auto range = shared_range(a, statistics_a, b, statistics_b);
  log_statistics(a, statistics_a, !passed, first.runner_name + ": " + name, range);
  log_statistics(b, statistics_b, !passed, second.runner_name + ": " + other_name, range);
}

CompareFunction simple_compare(const CompareOptions& options) {
  check_error_stats(options.error_stat);
  return SimpleCompare(options);
}

void check_error_stats(const PerName<std::string>& error_stat) {
  for (const auto& [name, stat] : error_stat.entries()) {
    if (stat == "elemwise" || stat == "max" || stat == "mean" || stat == "median" || stat == "quantile") continue;
    throw invalid_argument("[compare] Invalid choice for check_error_stat: " + stat +
                           "; valid choices are: ['max', 'mean', 'median', 'elemwise', 'quantile']");
  }
}

}  // namespace ulpscope
