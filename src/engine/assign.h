// Decides every layer's precision: constraints first, then costs (or the lowest enabled type).
#pragma once

#include "engine/options.h"
#include "engine/specialization.h"
#include "graph/assignment.h"

namespace ulpscope {

class QuantizedChoices;

/// Logs warnings for constraints that have no effect; throws Error(kBuild), naming the layer, for one that cannot be
/// obeyed. Deterministic. Layers in bodies have precisions like others; those that nothing is requested for take what
/// is requested for the layer that runs them. `requested`, per layer: instead of `Layer::precision`; nothing: the
/// engine's choice. `choices`: those of this specialization and these options, where somebody has them already.
Assignment assign_precisions(const Specialization& spec, const BuildOptions& options,
                             const Requests* requested = nullptr, const QuantizedChoices* choices = nullptr);

/// The narrow type in which the file has what a layer computes, and in which it is stored whatever the layer's
/// precision is; kUndefined: the file has float32, or no floats.
DataType narrow_type_in_file(const Specialization& spec, LayerId id);

}  // namespace ulpscope
