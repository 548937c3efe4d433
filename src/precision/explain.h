// Why a layer needs more precision.
#pragma once

#include <span>
#include <vector>

#include "graph/assignment.h"
#include "precision/trials.h"
#include "ulpscope/answer.h"

namespace ulpscope {

/// The reason for each of `layers`, found by running it on its exact inputs in its precision of `low`, over the first
/// `samples` samples of `trials`; for a layer inside of a body, that a trial measured it. `share` is left at 0: the
/// caller knows the others' effects. `harmless_overflow`, per layer (empty: none): overflows there are known not to
/// matter, and are no reason.
std::vector<Reason> explain_layers(Trials& trials, const Assignment& low, std::span<const LayerId> layers,
                                   std::size_t samples, std::span<const char> harmless_overflow = {});

}  // namespace ulpscope
