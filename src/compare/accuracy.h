// What comparisons found, beyond the verdicts: averages over iterations, and Polygraphy's file of accuracy results.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "compare/comparison.h"

namespace ulpscope {

/// Per function and output, in the order of first appearance: each number averaged over the iterations that have the
/// output, and judged against the thresholds of the first of them. NaN makes the average NaN, which fails.
/// Throws Error(kInvalidArgument) for an output that an iteration has no numbers for.
IterationVerdict average_verdicts(const std::vector<IterationVerdict>& iterations);

/// The JSON that `polygraphy check accuracy` reads: per function, pair, iteration and output the metrics and what they
/// were held against; a verdict without metrics (shapes that differ, `indices`, a user's script) is true or false.
/// `distance_metrics` and `quality_metrics` count as the two functions that they stand for.
std::string accuracy_to_json(const AccuracyResult& accuracy);

/// Throws Error(kIo).
void save_accuracy(const std::filesystem::path& path, const AccuracyResult& accuracy);

/// One output in a file of accuracy results.
struct SavedVerdict {
  std::string output;
  bool passed = false;
  /// Under the file's names ("max_absdiff", "l2_norm"); those that were not computed are left out.
  std::vector<std::pair<std::string, double>> metrics;
};

struct SavedPair {
  std::string first, second;  ///< Runner names.
  std::vector<std::vector<SavedVerdict>> iterations;
};

/// What one comparison function found.
struct SavedComparison {
  std::string aggregation;  ///< "per_sample", "average"
  std::vector<SavedPair> pairs;
};

/// Reads what save_accuracy and Polygraphy write; verdicts are those of the thresholds in the file. Throws
/// Error(kNotFound), Error(kInvalidFile) naming the file and what is wrong in it, Error(kUnsupported) for results of
/// classes that only a script knows.
std::vector<SavedComparison> load_accuracy(const std::filesystem::path& path);
std::vector<SavedComparison> accuracy_from_json(std::string_view text, const std::string& where);

}  // namespace ulpscope
