// What words that are no options may have meant.
#pragma once

#include <string>

#include "args/option_table.h"
#include "args/parser.h"

namespace ulpscope::cli {

/// Web pages and word processors make one dash of two hyphens: "–fp16" is "--fp16". Other words stay as they are.
std::string with_plain_dashes(const std::string& word);

/// For the end of a message about the words of `parsed` that are no options; empty where nothing is near.
std::string meant_options(const OptionTable& table, const Arguments& parsed);

}  // namespace ulpscope::cli
