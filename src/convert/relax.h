// Layers raised beside those of a given set where that saves time, if the outputs stay within the tolerance.
#pragma once

#include <memory>
#include <vector>

#include "compare/tensor_map.h"
#include "engine/options.h"
#include "precision/criterion.h"
#include "ulpscope/answer.h"

namespace ulpscope {

struct Relaxation {
  std::vector<LayerId> raised;                                            ///< In network order.
  Judgement judgement;                                                    ///< With them.
  int samples = 0;                                                        ///< That were judged.
  double time_us = 0, time_low_us = 0, time_high_us = 0, cost_share = 0;  ///< As in Answer.
};

/// The layers whose raising to float32 makes the network the fastest on the target of `build`, by minimum cut and
/// single moves (precision/trade_off.h): casts and broken fusions cost more than some layers gain. Nothing is raised,
/// with the reason in the log, where no time is saved, where everything in float32 would be faster still, or where the
/// outputs then miss the tolerance. `requested`: what the assignment was made from; layers with an entry stay as they
/// are. `golden`: one per sample; empty: of the network in float32. Throws Error(kInvalidArgument) for golden results
/// that do not fit.
Relaxation relax_precisions(const std::shared_ptr<const Network>& network, const BuildOptions& build,
                            const std::vector<TensorMap>& samples, const Requests& requested,
                            const Criterion& criterion, std::vector<TensorMap> golden, bool infinities_equal);

/// The answer with these layers among those that are kept, and the figures of the samples that were judged.
void add_raised_layers(const Network& network, const Relaxation& relaxation, AnswerFile& file);

}  // namespace ulpscope
