// `ulpscope run`: inference with several runners, and comparing what they give.
#pragma once

#include "tools/tool.h"

namespace ulpscope::cli {

std::unique_ptr<Tool> make_run_tool();

}  // namespace ulpscope::cli
