// The answer of a search as people read it on a terminal.
#pragma once

#include <string>

#include "precision/answer_json.h"

namespace ulpscope {

/// Several lines without a newline at the end. Lists longer than a screen are cut, unless `everything`.
std::string answer_text(const AnswerFile& file, bool everything = false);

/// "name:float32" per kept layer, one per line: words for `--layer-precisions`.
std::string layer_precisions_text(const Answer& answer);

/// `word` as a shell takes it: in single quotes where it has to be.
std::string shell_word(const std::string& word);

}  // namespace ulpscope
