// When the outputs of a search are good enough.
#pragma once

#include <string>
#include <vector>

#include "args/comparison.h"
#include "args/option_table.h"
#include "ulpscope/criterion.h"

namespace ulpscope::cli {

struct CriterionArgs {
  std::optional<std::string> metric, metric_script;
  std::vector<std::string> threshold;
  std::optional<int> top_k;
  std::optional<double> iou_level;

  void declare(OptionTable& table);
};

/// Whether they say what is good enough, in any way.
bool tolerance_given(const CriterionArgs& criterion, const ComparisonArgs& comparison);

/// Throws UsageError for options that contradict each other or mean nothing together.
void check_criterion_usage(const CriterionArgs& criterion, const ComparisonArgs& comparison,
                           bool needs_threshold = true);

/// What they ask for; nothing is looked up in a network. Throws UsageError as check_criterion_usage, Error for values
/// that do not parse.
CriterionOptions criterion_options(const CriterionArgs& criterion, const ComparisonArgs& comparison,
                                   bool needs_threshold = true);

}  // namespace ulpscope::cli
