// Parts of an answer in its file: repairs, the network as columns, the bits of its weights, what chose block scales.
#pragma once

#include "precision/json_values.h"
#include "precision/trial_json.h"

namespace ulpscope::json {

/// Null where the answer has none. Adds no names: REQUIRES: `coder` has those of all layers.
Json from_network(const Answer& answer, TrialCoder& coder);
/// Throws Error(kInvalidFile) naming the key: columns of different lengths, a layer that reads itself or a later one.
void read_network(const Reader& reader, const TrialCoder& coder, Answer& answer);

Json from_repair(const Repair& repair);
/// Throws Error(kInvalidFile) naming the key.
Repair to_repair(const Reader& reader);

/// Null where the answer has none.
Json from_bits(const Answer& answer);
/// Files of earlier releases do not have them. Throws Error(kInvalidFile) naming the key.
void read_bits(const Reader& reader, Answer& answer);

/// Null where no format was allowed that has such scales.
Json from_scale_choice(const AnswerFile& file);
/// The reverse.
void read_scale_choice(const Reader& reader, AnswerFile& file);

}  // namespace ulpscope::json
