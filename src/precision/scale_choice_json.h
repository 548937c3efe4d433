// How an answer keeps what chose the scales of blocks.
#pragma once

#include "precision/json_values.h"
#include "ulpscope/answer.h"

namespace ulpscope::json {

/// Null where no format was allowed that has such scales.
Json from_scale_choice(const AnswerFile& file);
/// The reverse.
void read_scale_choice(const Reader& reader, AnswerFile& file);

}  // namespace ulpscope::json
