// Everything in the lowest precisions, as an answer says it.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "precision/json_values.h"
#include "ulpscope/answer.h"

namespace ulpscope {

/// Options and their values.
using ChangedOptions = std::vector<std::pair<std::string, std::string>>;

/// The search of an answer again, with other options: "ulpscope precision search m.onnx --fp16 --margin 1", as it was
/// typed but for these. Of an answer from a file or a function nothing was typed: the command is made of what the file
/// has then; empty where that has no inputs.
std::string search_command(const AnswerFile& file, const ChangedOptions& changed);

/// By the estimate, launches of casts included.
bool is_slower_than_highest(const Answer& answer) noexcept;

/// What to say of an answer that is estimated slower than everything in the highest precision, or in the lowest where
/// only the margin speaks against that, with the commands of what is faster; empty for others.
std::string slower_text(const AnswerFile& file);

namespace json {
Json from_lowest(const AnswerFile& file);
/// Files of earlier releases do not have it.
void read_lowest(const Reader& reader, Answer& answer);
}  // namespace json

}  // namespace ulpscope
