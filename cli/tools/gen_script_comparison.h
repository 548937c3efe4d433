// The second half of a generated script: running, comparing, judging.
#pragma once

#include <string>
#include <vector>

#include "tools/python_script.h"
#include "tools/run_options.h"

namespace ulpscope::cli {

/// Adds the comparison functions to `script` and returns their names (or expressions).
std::vector<std::string> comparison_code(const RunOptions& options, PythonScript& script);

/// The lines that run `runners`, if there are any, and compare by `comparisons`.
std::string execution_code(const RunOptions& options, PythonScript& script,
                           const std::vector<std::string>& comparisons);

}  // namespace ulpscope::cli
