// The search for the layers that need more precision (docs/precision_search.md).
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "engine/options.h"
#include "backend/weights.h"
#include "graph/network.h"
#include "precision/answer.h"
#include "precision/criterion.h"
#include "precision/journal.h"
#include "precision/predictor.h"

namespace ulpscope {

enum class Objective : std::uint8_t {
  kSmallest,  ///< Few layers.
  kCheapest,  ///< Few multiply-adds.
};

struct SearchOptions {
  /// Enabled precisions, scales, fusion, target, threads. `assume_lowest` and obey unless costs decide.
  BuildOptions build;
  /// What layers may be raised to, from the lowest to the highest.
  std::vector<Precision> ladder{Precision::kFP32};
  Objective objective = Objective::kSmallest;
  double margin = 0.5;
  bool shrink = false;
  bool repair = true;
  std::vector<LayerId> keep;                        ///< Stay in the highest precision; no candidates.
  std::vector<LayerId> lower;                       ///< Stay in the lowest; no candidates.
  std::int64_t max_trials = 0;                      ///< Evaluations of the search samples; 0: no limit.
  double time_limit = 0;                            ///< Seconds; 0: none.
  std::size_t memory_limit = std::size_t{1} << 30;  ///< For shared activations and what the predictor keeps.
  PredictorOptions predictor;
  bool infinities_equal = false;  ///< Golden infinities are allowed.
};

/// What a search works on.
struct SearchData {
  std::shared_ptr<const Network> network;
  std::vector<TensorMap> samples, held_out;
  /// Exact outputs per sample; empty: from the fp32 engine.
  std::vector<TensorMap> golden, held_out_golden;
  WeightCache weights;  ///< Of whoever ran the network before: a calibration.
};

/// Called often; may throw to interrupt: `SearchInterrupted` ends the search with the best answer so far.
struct SearchInterrupted : std::runtime_error {
  using std::runtime_error::runtime_error;
};
struct SearchProgress {
  std::string stage;      ///< "predicting", "searching", "checking held-out samples", ...
  int done = 0, all = 0;  ///< Of the stage; all = 0: unknown.
  std::int64_t trials = 0;
  std::int64_t best = -1;  ///< Layers of the best passing set so far; -1: none.
};
using SearchObserver = std::function<void(const SearchProgress&)>;

/// Whether a layer can have a precision: it has float arithmetic, in itself or in its bodies (If, Loop, Scan).
bool has_precision(const Layer& layer) noexcept;

/// The layers that a search may raise, in network order: float arithmetic that reaches an output, whose precision in
/// `low` is not the highest of the ladder.
std::vector<LayerId> search_candidates(const Specialization& spec, const Assignment& low, const SearchOptions& options);

/// Throws Error for input that makes no sense (NaN in golden, nothing to search); everything else is an Answer.
/// The same input and options give the same answer at any number of threads, and after resuming from the journal.
Answer search_precisions(const SearchData& data, const Criterion& criterion, const SearchOptions& options,
                         Journal& journal, const SearchObserver& observer = {});

}  // namespace ulpscope
