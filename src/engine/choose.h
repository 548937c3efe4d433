// The cheapest assignment of precisions for the network as a whole.
#pragma once

#include <vector>

#include "engine/options.h"
#include "engine/specialization.h"
#include "graph/assignment.h"

namespace ulpscope {

/// Fills `assignment.precision` and `reason` for the layers whose `choices` (from low to high) leave one: the minimum
/// of the sum of tactic times, launches and reformats on the target. With two precisions in play the minimum is exact
/// (one minimum cut); with more, alpha expansion.
void choose_by_cost(const Specialization& spec, const BuildOptions& options,
                    const IdMap<LayerId, std::vector<Precision>>& choices, Assignment& assignment);

}  // namespace ulpscope
