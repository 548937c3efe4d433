// `ulpscope report`: a page that shows the answer of a search.
#pragma once

#include "tools/tool.h"

namespace ulpscope::cli {

std::unique_ptr<Tool> make_report_tool();

}  // namespace ulpscope::cli
