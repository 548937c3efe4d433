// Command lines that people copy.
#pragma once

#include <string>

namespace ulpscope {

/// `word` as a shell takes it: in single quotes where it has to be.
std::string shell_word(const std::string& word);

}  // namespace ulpscope
