// Decides every layer's precision: constraints first, then costs (or the lowest enabled type).
#pragma once

#include "engine/options.h"
#include "engine/specialization.h"
#include "graph/assignment.h"

namespace ulpscope {

/// Logs warnings for constraints that have no effect; throws Error(kBuild), naming the layer, for one that cannot be
/// obeyed. Deterministic.
Assignment assign_precisions(const Specialization& spec, const BuildOptions& options);

}  // namespace ulpscope
