// From the words of a command line to an exit status.
#pragma once

#include <string>
#include <vector>

namespace ulpscope::cli {

/// 0: success. 1: a comparison, validation or request that failed. 2: a command line that does not fit. 3: a defect of
/// ulpscope. 130: interrupted. `words` is argv, the program first.
int run_program(const std::vector<std::string>& words);

}  // namespace ulpscope::cli
