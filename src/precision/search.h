// The search for the layers that need more precision (docs/search_algorithm.md).
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "backend/weights.h"
#include "engine/options.h"
#include "graph/layer_choice.h"
#include "graph/network.h"
#include "precision/criterion.h"
#include "precision/journal.h"
#include "precision/predictor.h"
#include "precision/weight_bits.h"
#include "runners/work_queue.h"
#include "ulpscope/search.h"

namespace ulpscope {

/// What is searched for, in terms of a network.
struct SearchTask : SearchStrategy {
  /// Enabled precisions, scales, fusion, target, threads. `assume_lowest` and obey unless costs decide.
  BuildOptions build;
  std::vector<LayerId> keep;   ///< Stay in the highest precision; no candidates.
  std::vector<LayerId> lower;  ///< Stay in the lowest; no candidates.
  PredictorOptions predictor;
  bool infinities_equal = false;  ///< Golden infinities are allowed.
  /// Where bits count (ObjectiveRule::of_formats): what each candidate may have, from the fewest bits to the most, as
  /// of weight_formats(). The layers of the network ask for the first. Other layers are no candidates.
  std::map<LayerId, std::vector<Precision>> formats;
  bool has_tolerance = true;  ///< False: the threshold of the criterion is any; every set of numbers passes.
};

/// What a search works on.
struct SearchData {
  std::shared_ptr<const Network> network;
  std::vector<TensorMap> samples, held_out;
  /// Exact outputs per sample; empty: from the fp32 engine.
  std::vector<TensorMap> golden, held_out_golden;
  WeightCache weights;  ///< Of whoever ran the network before: a calibration.
  /// Other processes that run the samples, started with this (sample_server.h); null: this one does. `judged_there`:
  /// they judge them as well.
  std::shared_ptr<WorkQueue> workers;
  bool judged_there = false;
};

/// The layers that a search may raise, in network order: float arithmetic that reaches an output, whose precision in
/// `low` is not the highest of the ladder.
std::vector<LayerId> search_candidates(const Specialization& spec, const Assignment& low, const SearchTask& options);

/// The row of an answer for this layer.
KeptLayer kept_layer(const Layer& layer, Precision precision, ReasonKind kind, std::string reason);

/// Throws Error for input that makes no sense (NaN in golden, nothing to search); everything else is an Answer.
/// The same input and options give the same answer at any number of threads, and after resuming from the journal.
Answer search_precisions(const SearchData& data, const Criterion& criterion, const SearchTask& options,
                         Journal& journal, const SearchObserver& observer = {});

}  // namespace ulpscope
