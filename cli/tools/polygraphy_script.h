// Scripts that Polygraphy itself writes for what was typed: `run --gen-script`, `template trt-config`.
#pragma once

#include <string>

#include "args/option_table.h"
#include "tools/run_options.h"

namespace ulpscope::cli {

/// What `polygraphy TOOL` writes to the file of its option `output` for these options; `--trt` means TensorRT there.
/// Options that ulpscope has alone are left out with a warning, those that it ignores without. `declare` declares the
/// options of the tool, of `options`. Throws Error: values that Polygraphy has no words for, no Polygraphy.
std::string polygraphy_script(const std::string& tool, const std::string& output, RunOptions options,
                              void (*declare)(RunOptions& options, OptionTable& table));

}  // namespace ulpscope::cli
