// The comparisons that a command line asks for.
#pragma once

#include <vector>

#include "args/comparison.h"
#include "compare/comparison.h"
#include "runners/script_host.h"

namespace ulpscope::cli {

/// --compare with its tolerances, or --compare-func-script. `host` outlives them. `draw`: see CompareOptions. Throws
/// Error for what does not parse.
std::vector<CompareFunction> compare_functions(const ComparisonArgs& args, ScriptHost& host,
                                               std::function<void(const ComparedOutput&)> draw = {});

}  // namespace ulpscope::cli
