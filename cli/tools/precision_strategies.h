// `ulpscope precision bisect | linear | worst-first`: Polygraphy's old precision tools.
#pragma once

#include "tools/tool.h"

namespace ulpscope::cli {

std::unique_ptr<Tool> make_precision_bisect_tool();
std::unique_ptr<Tool> make_precision_linear_tool();
std::unique_ptr<Tool> make_precision_worst_first_tool();

}  // namespace ulpscope::cli
