// What an answer says of the bits of weights, in its file.
#pragma once

#include "precision/json_values.h"
#include "ulpscope/answer.h"

namespace ulpscope::json {

/// Null where the answer has none.
Json from_bits(const Answer& answer);
/// Files of earlier releases do not have them. Throws Error(kInvalidFile) naming the key.
void read_bits(const Reader& reader, Answer& answer);

}  // namespace ulpscope::json
