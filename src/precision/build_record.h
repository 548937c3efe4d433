// What the network of an answer is built with, as words and in files.
#pragma once

#include <string>
#include <vector>

#include "precision/json_values.h"
#include "ulpscope/answer.h"

namespace ulpscope {

/// From the words of `run` in a file of an earlier release. `file`: what else it has.
BuildRecord build_of_words(const AnswerFile& file, const std::vector<std::string>& words);

namespace json {
Json from_build(const BuildRecord& build);
BuildRecord to_build(const Reader& reader);
}  // namespace json

}  // namespace ulpscope
