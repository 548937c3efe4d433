// Whether the outputs of two runners agree. Logs what Polygraphy logs; the verdict is the return value.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "compare/name_values.h"
#include "compare/results.h"

namespace ulpscope {

/// Statistics of the absolute and relative difference of one output.
struct ErrorMetrics {
  double max_abs = 0, max_rel = 0;
  double mean_abs = 0, mean_rel = 0;
  double median_abs = 0, median_rel = 0;
  std::optional<double> quantile_abs, quantile_rel;  ///< Only when the quantile is checked.
};

/// What `simple` held them against.
struct ErrorTolerance {
  std::string stat;  ///< elemwise, max, mean, median, quantile
  double absolute = 0, relative = 0;
};

enum class Metric { kL2, kCosineSimilarity, kPsnr, kSnr };

/// One number against its threshold.
struct MetricCheck {
  Metric metric = Metric::kL2;
  double value = 0, threshold = 0;
  /// False for NaN.
  bool passed() const;
};

/// The verdict on one output.
struct OutputVerdict {
  std::string output;        ///< Its name in the first result.
  std::string other_output;  ///< Its partner's name in the second.
  bool passed = false;
  std::optional<ErrorMetrics> metrics;  ///< `simple` only; absent when shapes differ.
  ErrorTolerance tolerance;             ///< `simple` only.
  std::vector<MetricCheck> checks;      ///< `l2`, `cosine_similarity`, `psnr`, `snr`; empty when shapes differ.
  std::size_t function = 0;             ///< Which of the functions given to compare_accuracy judged.
};

/// In the order of the first result's outputs.
using IterationVerdict = std::vector<OutputVerdict>;

/// Compares two results; may throw Error. A user's script can stand in.
using CompareFunction = std::function<IterationVerdict(const IterationResult& first, const IterationResult& second)>;

/// What there is to draw about one compared output. Valid during the call.
struct ComparedOutput {
  const IterationResult &first, &second;
  const std::string &name, &other_name;
  const Tensor &absolute, &relative;  ///< Differences, element by element.
  const Tensor& reference;            ///< The second output.
};

struct CompareOptions {
  bool check_shapes = true;
  /// Stop at the first output that fails.
  bool fail_fast = false;
  // simple
  PerName<double> atol = 1e-5;
  PerName<double> rtol = 1e-5;
  /// How verdicts print them: Python's ints and floats as they were given. Without an entry: as floats.
  PerName<std::string> atol_text, rtol_text;
  PerName<std::string> error_stat = std::string("elemwise");  ///< elemwise, max, mean, median, quantile
  PerName<double> error_quantile = 0.99;
  bool infinities_compare_equal = false;
  /// Called for every output that was compared; may throw Error.
  std::function<void(const ComparedOutput&)> draw;
  // indices
  PerName<std::int64_t> index_tolerance = std::int64_t{0};
  // single metrics
  PerName<double> l2_tolerance = 1e-5;
  PerName<double> cosine_similarity_threshold = 0.997;
  PerName<double> psnr_tolerance = 30.0;
  PerName<double> snr_tolerance = 20.0;
};

/// The names that compare_function takes.
const std::vector<std::string>& compare_function_names();

/// "simple", "indices", "l2", "cosine_similarity", "psnr", "snr"; "distance_metrics" is l2 and cosine_similarity,
/// "quality_metrics" psnr and snr (an output passes if both pass). Throws Error(kInvalidArgument) for another name.
CompareFunction compare_function(std::string_view name, const CompareOptions& options);

/// Throws Error(kInvalidArgument) "Invalid choice for check_error_stat: ..." for an unknown statistic.
void check_error_stats(const PerName<std::string>& error_stat);

/// The verdicts of one pair of neighbors.
struct PairVerdict {
  std::string first, second;  ///< Runner names.
  std::vector<IterationVerdict> iterations;
  /// Only with AccuracyOptions::check_average: per function and output, the average of each number over the iterations
  /// against the same thresholds. These are what counts then.
  std::optional<IterationVerdict> averages;
  std::int64_t passed_iterations() const;
  bool passed() const;
};

struct AccuracyResult {
  std::vector<PairVerdict> pairs;
  std::size_t functions = 1;  ///< How many judged.
  bool averaged = false;
  /// True as well when there was nothing to compare.
  bool passed() const;
};

struct AccuracyOptions {
  /// Return after the first iteration that fails, without a summary.
  bool fail_fast = false;
  /// Judge the averages of all iterations instead of each iteration. Not with fail_fast, `indices` or elemwise errors.
  bool check_average = false;
};

/// Compares each runner with the next one, iteration by iteration, with every function; logs comparison and summary
/// lines. Throws Error(kInvalidArgument) when two results have no output in common, and when averages are wanted of
/// what gave no number: outputs of different shapes, `indices`, a user's script, errors of single elements.
AccuracyResult compare_accuracy(const RunResults& results, const std::vector<CompareFunction>& functions,
                                const AccuracyOptions& options = {});

/// The name in `second` that output number `index` of `first` is compared with, or nothing (a warning was logged).
std::optional<std::string> pair_output(const IterationResult& first, std::size_t index, const IterationResult& second);

}  // namespace ulpscope
