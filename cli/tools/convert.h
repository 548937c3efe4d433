// `ulpscope convert`: writes the strongly typed model of a choice of precisions, or an engine.
#pragma once

#include "tools/tool.h"

namespace ulpscope::cli {

std::unique_ptr<Tool> make_convert_tool();

}  // namespace ulpscope::cli
