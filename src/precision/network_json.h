// The network in an answer, as columns.
#pragma once

#include "precision/json_values.h"
#include "precision/trial_json.h"

namespace ulpscope::json {

/// Null where the answer has none. Adds no names: REQUIRES: `coder` has those of all layers.
Json from_network(const Answer& answer, TrialCoder& coder);
/// Throws Error(kInvalidFile) naming the key: columns of different lengths, a layer that reads itself or a later one.
void read_network(const Reader& reader, const TrialCoder& coder, Answer& answer);

}  // namespace ulpscope::json
