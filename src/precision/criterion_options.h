// Criteria from options, and options as words of a command line.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/options.h"
#include "precision/criterion.h"

namespace ulpscope {

/// The judge. `outputs` are those of the network. `host` outlives the criterion of a script.
/// Throws Error(kInvalidArgument) for values that do not fit, and for names that are no outputs.
std::unique_ptr<Criterion> make_criterion(const CriterionOptions& options, ScriptHost& host,
                                          std::span<const std::string> outputs);

/// `options`, or, where they name no metric and no tolerance, rel-l2 with the threshold that is usual for the lowest
/// precision of `build`, which is logged as a warning: 1e-5, which tolerances are by default, is beyond every narrow
/// type. Throws Error(kInvalidArgument) for options that only make sense beside a tolerance.
CriterionOptions with_usual_tolerance(CriterionOptions options, const BuildOptions& build);

/// The options as words of a command line, without defaults. None for a metric_function.
std::vector<std::string> criterion_words(const CriterionOptions& options);

/// The reverse. Nothing for words that it does not know.
std::optional<CriterionOptions> read_criterion_words(const std::vector<std::string>& words);

}  // namespace ulpscope
