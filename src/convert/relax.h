// Neighbors of kept layers raised where that saves casts, if the outputs stay within the tolerance.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "compare/tensor_map.h"
#include "engine/options.h"
#include "engine/specialization.h"
#include "precision/criterion.h"
#include "ulpscope/answer.h"

namespace ulpscope {

/// The layers to raise, in network order; empty, with the reason in the log, where no casts are saved or the completed
/// assignment does not meet the tolerance. `requested`: what the assignment was made from; layers with an entry stay as
/// they are. `golden`: one per sample; empty: of the network in float32. Throws Error(kInvalidArgument) for golden
/// results that do not fit.
std::vector<LayerId> find_layers_to_raise(const std::shared_ptr<const Network>& network, const BuildOptions& build,
                                          const std::vector<TensorMap>& samples, const Specialization& spec,
                                          const LayerTypes& requested, const Criterion& criterion,
                                          std::vector<TensorMap> golden, bool infinities_equal);

/// The answer with these layers among those that are kept.
void add_raised_layers(const Network& network, const std::vector<LayerId>& raised, AnswerFile& file);

}  // namespace ulpscope
