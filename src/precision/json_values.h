// What the journal and the answer have in common.
#pragma once

#include "engine/target_json.h"
#include "ulpscope/answer.h"

namespace ulpscope::json {

Json from_judgement(const Judgement& judgement);
Judgement to_judgement(const Reader& reader);
/// The number of a sample, or of samples; -1: none.
int to_sample(const Reader& reader);
int to_count(const Reader& reader);

}  // namespace ulpscope::json
