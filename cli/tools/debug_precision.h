// `ulpscope debug precision`: layers to keep in higher precision, judged by a command.
#pragma once

#include "tools/tool.h"

namespace ulpscope::cli {

std::unique_ptr<Tool> make_debug_precision_tool();

}  // namespace ulpscope::cli
