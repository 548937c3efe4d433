// Where `precision search` writes its answer: never over a found one that it is no better than.
#pragma once

#include <filesystem>

#include "ulpscope/answer.h"

namespace ulpscope::cli {

/// `file.path`, or another name beside it where there is a found answer that stays, which the log says then: one that
/// was not found replaces none, nor does the answer for another model. Where the user did not name the path, the same
/// holds for the answer to another question (other inputs, another tolerance or objective).
std::filesystem::path place_for(const AnswerFile& file, bool named_by_user);

}  // namespace ulpscope::cli
