#include "compare/comparison.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "compare/accuracy.h"
#include "compare/compare_functions.h"
#include "compare/log_levels.h"
#include "compare/statistics.h"
#include "core/messages.h"

namespace ulpscope {
namespace {

bool all_passed(const IterationVerdict& verdicts) {
  return std::ranges::all_of(verdicts, [](const OutputVerdict& verdict) { return verdict.passed; });
}

void log_average_summary(const PairVerdict& pair) {
  std::vector<std::pair<std::string, bool>> outputs;  // passed if all functions say so
  for (const OutputVerdict& verdict : *pair.averages) {
    const auto known = std::ranges::find(outputs, verdict.output, &std::pair<std::string, bool>::first);
    if (known == outputs.end()) {
      outputs.emplace_back(verdict.output, verdict.passed);
    } else {
      known->second = known->second && verdict.passed;
    }
  }
  const auto passed = std::ranges::count_if(outputs, &std::pair<std::string, bool>::second);
  log_result(pair.passed(), "Accuracy Summary | " + pair.first + " vs. " + pair.second + " | Passed: " +
                                std::to_string(passed) + "/" + std::to_string(outputs.size()) + " outputs");
  const LogIndent indent;
  for (const auto& [output, output_passed] : outputs) {
    log_result(output_passed, output + " | " + (output_passed ? "PASSED" : "FAILED") + ":");
    const LogIndent inner;
    for (const OutputVerdict& verdict : *pair.averages) {
      if (verdict.output != output) continue;
      for (const MetricCheck& check : verdict.checks) log_result(check.passed(), to_text(check));
      if (!verdict.metrics) continue;
      const ErrorTolerance& tolerance = verdict.tolerance;
      const auto [absolute, relative] = selected_error(*verdict.metrics, tolerance.stat);
      log_result(verdict.passed,
                 "Average of " + tolerance.stat + " errors: [abs=" + format_g5(absolute) +
                     ", rel=" + format_g5(relative) + "] (tolerance: [abs=" + format_g5(tolerance.absolute) +
                     ", rel=" + format_g5(tolerance.relative) + "]) | " + (verdict.passed ? "PASSED" : "FAILED"));
    }
  }
}

void log_summary(const PairVerdict& pair) {
  const std::int64_t passed = pair.passed_iterations();
  const auto total = static_cast<std::int64_t>(pair.iterations.size());
  const double rate = total == 0 ? 100.0 : static_cast<double>(passed) / static_cast<double>(total) * 100.0;
  log_result(pair.passed(), "Accuracy Summary | " + pair.first + " vs. " + pair.second +
                                " | Passed: " + std::to_string(passed) + "/" + std::to_string(total) +
                                " iterations | Pass Rate: " + fmt::format("{:.2f}%", rate));
}

IterationVerdict compare_iteration(const IterationResult& first, const IterationResult& second,
                                   const std::vector<CompareFunction>& functions) {
  IterationVerdict verdicts;
  for (std::size_t function = 0; function < functions.size(); ++function) {
    IterationVerdict more = functions[function](first, second);
    for (OutputVerdict& verdict : more) verdict.function = function;
    verdicts.insert(verdicts.end(), std::make_move_iterator(more.begin()), std::make_move_iterator(more.end()));
  }
  return verdicts;
}

}  // namespace

const std::vector<std::string>& compare_function_names() {
  static const std::vector<std::string> names = {
      "simple", "indices", "l2", "cosine_similarity", "psnr", "snr", "distance_metrics", "quality_metrics"};
  return names;
}

CompareFunction compare_function(std::string_view name, const CompareOptions& options) {
  if (name == "simple") return simple_compare(options);
  if (name == "indices") return indices_compare(options);
  if (name == "l2") return metric_compare({Metric::kL2}, options);
  if (name == "cosine_similarity") return metric_compare({Metric::kCosineSimilarity}, options);
  if (name == "psnr") return metric_compare({Metric::kPsnr}, options);
  if (name == "snr") return metric_compare({Metric::kSnr}, options);
  if (name == "distance_metrics") return metric_compare({Metric::kL2, Metric::kCosineSimilarity}, options);
  if (name == "quality_metrics") return metric_compare({Metric::kPsnr, Metric::kSnr}, options);
  if (name == "perceptual_metrics")
    throw unsupported(
        "[compare] perceptual_metrics: LPIPS needs PyTorch and the weights of a network, which this program does not "
        "have; try --compare quality_metrics, or a function that computes LPIPS with --compare-func-script");
  throw invalid_argument("[compare] unknown comparison '" + std::string(name) +
                         "'; valid choices are: " + python_list(compare_function_names()));
}

std::int64_t PairVerdict::passed_iterations() const { return std::ranges::count_if(iterations, all_passed); }

bool PairVerdict::passed() const {
  if (averages) return all_passed(*averages);
  return passed_iterations() == static_cast<std::int64_t>(iterations.size());
}

bool AccuracyResult::passed() const {
  return std::ranges::all_of(pairs, [](const PairVerdict& pair) { return pair.passed(); });
}

AccuracyResult compare_accuracy(const RunResults& results, const std::vector<CompareFunction>& functions,
                                const AccuracyOptions& options) {
  AccuracyResult accuracy;
  accuracy.functions = functions.size();
  accuracy.averaged = options.check_average;
  for (std::size_t i = 0; i + 1 < results.size(); ++i) {
    const auto& [first_name, first] = results[i];
    const auto& [second_name, second] = results[i + 1];
    log_start("Accuracy Comparison | " + first_name + " vs. " + second_name);
    PairVerdict& pair = accuracy.pairs.emplace_back(PairVerdict{first_name, second_name, {}, {}});
    const std::size_t iterations = std::min(first.size(), second.size());
    {
      const LogIndent indent;
      if (first.size() != second.size()) {
        log_warning("The results have different numbers of iterations (" + std::to_string(first.size()) + " and " +
                    std::to_string(second.size()) + "). Only the first " + std::to_string(iterations) +
                    " will be compared");
      }
      for (std::size_t k = 0; k < iterations; ++k) {
        if (iterations > 1) log_info("Iteration: " + std::to_string(k));
        const LogIndent inner(iterations > 1 ? 1 : 0);
        pair.iterations.push_back(compare_iteration(first[k], second[k], functions));
        if (options.fail_fast && !all_passed(pair.iterations.back())) return accuracy;
      }
    }
    if (options.check_average) {
      pair.averages = average_verdicts(pair.iterations);
      log_average_summary(pair);
    } else {
      log_summary(pair);
    }
  }
  return accuracy;
}

}  // namespace ulpscope
