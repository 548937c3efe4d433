// When the outputs of a search are good enough.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "args/comparison.h"
#include "args/option_table.h"
#include "precision/criterion.h"
#include "runners/script_host.h"

namespace ulpscope::cli {

struct CriterionArgs {
  std::optional<std::string> metric, metric_script;
  std::vector<std::string> threshold;
  std::optional<int> top_k;
  std::optional<double> iou_level;

  void declare(OptionTable& table);
};

/// Throws UsageError for options that contradict each other or mean nothing together.
void check_criterion_usage(const CriterionArgs& criterion, const ComparisonArgs& comparison);

/// The judge: --metric or --metric-script with --threshold, else the tolerances of `comparison`. `outputs` are those of
/// the network. The host must outlive the criterion of a script.
/// Throws UsageError as check_criterion_usage, Error for values that do not fit and for names that are no outputs.
std::unique_ptr<Criterion> make_criterion(const CriterionArgs& criterion, const ComparisonArgs& comparison,
                                          ScriptHost& host, std::span<const std::string> outputs);

/// The options of a criterion as words of a command line, without defaults.
std::vector<std::string> criterion_words(const CriterionArgs& criterion, const ComparisonArgs& comparison);

/// The reverse. False for words that it does not know.
bool read_criterion_words(const std::vector<std::string>& words, CriterionArgs& criterion, ComparisonArgs& comparison);

}  // namespace ulpscope::cli
