// `run --gen-script`: a Python script against Polygraphy's API that does the same.
#pragma once

#include <string>
#include <vector>

#include "tools/python_script.h"
#include "tools/run_options.h"

namespace ulpscope::cli {

/// For Polygraphy 0.53 and later; `--trt` means TensorRT there. Options that ulpscope has alone or ignores are left
/// out, the former with a warning. Throws Error for values that do not parse.
std::string polygraphy_script(const RunOptions& options, const std::string& command);

/// A script for `--trt-config-script` that makes the builder configuration of `options`, to be gone on with.
std::string trt_config_script(const RunOptions& options);

// Its pieces.

/// The runners. Adds loaders to `script` and returns the expression of the runner. Throws Error for options that
/// Polygraphy has no words for.
std::string onnxruntime_runner_code(const RunOptions& options, PythonScript& script);
std::string reference_runner_code(const RunOptions& options, PythonScript& script);
std::string tensorrt_runner_code(const RunOptions& options, PythonScript& script);
/// The same for the builder configuration alone.
std::string tensorrt_config_code(const RunOptions& options, PythonScript& script);

/// Adds the comparison functions to `script` and returns their names (or expressions).
std::vector<std::string> comparison_code(const RunOptions& options, PythonScript& script);

/// The lines that run `runners`, if there are any, and compare by `comparisons`.
std::string execution_code(const RunOptions& options, PythonScript& script,
                           const std::vector<std::string>& comparisons);

}  // namespace ulpscope::cli
