// The search for the layers that need more precision (docs/precision_search.md).
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "ulpscope/answer.h"
#include "ulpscope/criterion.h"
#include "ulpscope/export.h"
#include "ulpscope/model.h"

namespace ulpscope {

/// Throw it from a SearchObserver: the search ends with the best answer so far.
struct SearchInterrupted : std::runtime_error {
  using std::runtime_error::runtime_error;
};
struct SearchProgress {
  std::string stage;      ///< "predicting", "searching", "checking held-out samples", ...
  int done = 0, all = 0;  ///< Of the stage; all = 0: unknown.
  std::int64_t trials = 0;
  std::int64_t best = -1;  ///< Layers of the best passing set so far; -1: none.
};
/// Called often.
using SearchObserver = std::function<void(const SearchProgress&)>;

/// How a search goes about it.
struct SearchStrategy {
  /// What layers may be raised to, from the lowest to the highest.
  std::vector<Precision> ladder{Precision::kFP32};
  Objective objective = Objective::kFastest;
  /// With formats for weights alone: the least error with at most so many bits per weight, of the constant weights of
  /// all candidates, codes, scales and zero points together. The objective is kError then. 0: no budget.
  double bits = 0;
  /// The share of the tolerance that is searched at, so that the answer holds on other data. 0: chosen from the data
  /// (0.03 to 0.5), smaller when errors vary more between samples.
  double margin = 0;
  bool shrink = false;          ///< Take single layers out of the set that was found, as far as it still passes.
  bool repair = true;           ///< Constants and regions beyond fp16, and channels that one int8 scale does not suit.
  std::int64_t max_trials = 0;  ///< Evaluations of the search samples; 0: no limit.
  double time_limit = 0;        ///< Seconds; 0: none.
  double time_spent = 0;        ///< Of these, what was spent before: by reading the model, by a calibration.
  /// Bytes of tensors that the process may hold, as far as the search can choose (docs/precision_search.md); 0: that
  /// of the model. Results do not depend on it.
  std::size_t memory_limit = 0;
};

struct SearchOptions : SearchStrategy {
  /// With `bits`, a metric needs no threshold. Without metric and tolerance: rel-l2 with the threshold that is usual
  /// for the lowest precision of the model (fp16 and tf32 5e-3, bf16 3e-2, int8 and fp8 5e-2), and a warning.
  CriterionOptions criterion;
  /// Layers that stay in the highest or the lowest precision: names of layers or ONNX nodes, operators ("Softmax"), or
  /// patterns of these.
  std::vector<std::string> keep, lower;
  /// Samples that the answer is checked with, but not searched on. Empty: every fourth of the samples is kept back, if
  /// there are four or more and `hold_out` says so. Half of them validate what is found, and those that fail join the
  /// search; the others stay untouched until the end (docs/precision_search.md).
  std::vector<TensorsByName> held_out;
  bool hold_out = true;
  /// Exact outputs, one per sample (or those of `held_out` behind them). Empty: from the model in fp32.
  std::vector<TensorsByName> golden;
  /// Where finished trials are kept (docs/formats.md); empty: nowhere. `resume`: goes on with what is there.
  std::filesystem::path journal;
  bool resume = false;
  /// Where the answer and its scales will be: for the command that reproduces it. The search writes neither.
  std::filesystem::path answer_path, calibration_cache;
  SearchObserver progress;
  /// The words behind `ulpscope` of a command line that searches so: for commands in messages. Empty: there is none.
  std::vector<std::string> command;
  /// Samples and trials run on the processes of a Ray cluster (docs/scale.md): "auto", "HOST:PORT", or "local"; empty:
  /// in this process. `ray_workers`: at most so many; 0: what the cluster has cores for. The answer is the same.
  std::string ray;
  int ray_workers = 0;
};

/// The answer for this model, with what it is about. Samples are inputs by name, cast and reshaped to fit where that is
/// possible. The same input and options give the same answer at any number of threads, and after resuming.
/// Throws Error(kInvalidArgument) for what makes no sense (no samples, names that do not exist, NaN in golden, nothing
/// to search), kIo and kInvalidFile for the journal, kScript for a metric script; everything else is an answer.
ULPSCOPE_API AnswerFile search(const Model& model, std::span<const TensorsByName> samples,
                               const SearchOptions& options = {});

/// What a search would do.
struct SearchPlan {
  struct Candidate {
    std::string name, op;
    Precision low = Precision::kFP32;  ///< Without the search.
  };
  std::vector<Candidate> candidates;  ///< In network order.
  std::size_t layers = 0;             ///< Of the network.
  std::size_t samples = 0, held_out = 0;
  std::string criterion;
  double forward_seconds = 0;  ///< One fp32 forward over the samples.
  double search_seconds = 0;   ///< What a search will take, by what its beginning on two samples took.
};
/// Looks at everything that `search` looks at first, and begins one on two samples at most. Throws as `search`, but for
/// no candidates.
ULPSCOPE_API SearchPlan plan_search(const Model& model, std::span<const TensorsByName> samples,
                                    const SearchOptions& options = {});

}  // namespace ulpscope
