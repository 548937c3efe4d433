// `run --gen-script`: a Python script against Polygraphy's API that does the same.
#pragma once

#include <string>

#include "tools/run_options.h"

namespace ulpscope::cli {

/// For Polygraphy 0.53 and later; `--trt` means TensorRT there. Options that ulpscope has alone or ignores are left
/// out, the former with a warning. Throws Error for values that do not parse.
std::string polygraphy_script(const RunOptions& options, const std::string& command);

/// A script for `--trt-config-script` that makes the builder configuration of `options`, to be gone on with.
std::string trt_config_script(const RunOptions& options);

}  // namespace ulpscope::cli
