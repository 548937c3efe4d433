// Verdicts on outputs by comparing them with golden results.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "args/comparison.h"
#include "compare/comparison.h"
#include "tools/precision_setup.h"

namespace ulpscope::cli {

/// What one output would have needed to pass, over all iterations.
struct RequiredTolerances {
  std::string output;
  bool passed = true;
  double atol = 0, rtol = 0;  ///< Of the statistic that is checked; NaN where something is not comparable.
  bool known = false;         ///< False for comparisons that have no tolerances.
};

/// Compares every golden output with that of `outputs` (per iteration) by all functions. The log of the comparison is
/// shown if `show`.
std::vector<RequiredTolerances> compare_with_golden(std::span<const CompareFunction> functions,
                                                    const ComparisonArgs& args, const GoldenResults& golden,
                                                    const std::vector<TensorMap>& outputs, bool show);

/// "PASSED | Output: y | Required Tolerances: (atol=1e-05, rtol=0.1)".
std::string describe(const RequiredTolerances& required);

bool all_passed(std::span<const RequiredTolerances> required);

}  // namespace ulpscope::cli
