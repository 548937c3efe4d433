// Decides every layer's precision: constraints first, then costs (or the lowest enabled type).
#pragma once

#include <optional>
#include <vector>

#include "engine/options.h"
#include "engine/specialization.h"
#include "graph/assignment.h"

namespace ulpscope {

/// Logs warnings for constraints that have no effect; throws Error(kBuild), naming the layer, for one that cannot be
/// obeyed. Deterministic. `requested`, per layer: instead of `Layer::precision`; nothing: the engine's choice.
Assignment assign_precisions(const Specialization& spec, const BuildOptions& options,
                             const LayerTypes* requested = nullptr);

}  // namespace ulpscope
