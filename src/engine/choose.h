// The cheapest assignment of precisions for the network as a whole.
#pragma once

#include <vector>

#include "engine/fusion.h"
#include "engine/options.h"
#include "engine/specialization.h"
#include "graph/assignment.h"

namespace ulpscope {

/// Fills `assignment.precision` and `reason` for the layers whose `choices` (from low to high) leave one: the minimum
/// of the sum of tactic times, launches and reformats on the target. With two precisions in play the minimum is exact
/// (one minimum cut); with more, alpha expansion. Where layers may take int8, reformats count by their bytes alone.
void choose_by_cost(const Specialization& spec, const BuildOptions& options,
                    const IdMap<LayerId, std::vector<Precision>>& choices, Assignment& assignment);

/// What could be fused if all layers agreed: the groups that a boundary between precisions would break.
Grouping fuse_uniformly(const Specialization& spec, const BuildOptions& options, Assignment assignment);

/// What follows an int8 product in its group works on the product's results before they are stored: to the costs it
/// runs in int8, too, which becomes the first of its choices. Afterwards it takes the next higher precision.
void add_int8_followers(const Grouping& grouping, IdMap<LayerId, std::vector<Precision>>& choices);

}  // namespace ulpscope
