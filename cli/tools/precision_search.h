// `ulpscope precision search`: which layers need more precision, and why.
#pragma once

#include "tools/tool.h"

namespace ulpscope::cli {

std::unique_ptr<Tool> make_precision_search_tool();

}  // namespace ulpscope::cli
