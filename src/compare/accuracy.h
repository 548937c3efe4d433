// What comparisons found, beyond the verdicts: averages over iterations, and Polygraphy's file of accuracy results.
#pragma once

#include <filesystem>
#include <string>
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

}  // namespace ulpscope
