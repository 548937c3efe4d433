// The runners of a generated script, and the loaders that they need.
#pragma once

#include <string>

#include "tools/python_script.h"
#include "tools/run_options.h"

namespace ulpscope::cli {

/// Adds loaders to `script` and returns the expression of the runner. Throws Error for options that Polygraphy has no
/// words for.
std::string onnxruntime_runner_code(const RunOptions& options, PythonScript& script);
std::string reference_runner_code(const RunOptions& options, PythonScript& script);
std::string tensorrt_runner_code(const RunOptions& options, PythonScript& script);
/// The same for the builder configuration alone.
std::string tensorrt_config_code(const RunOptions& options, PythonScript& script);

}  // namespace ulpscope::cli
