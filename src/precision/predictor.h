// How much each layer's low precision moves the outputs, without trying: the classical a-posteriori analysis of
// rounding errors, adjoint times local error (Wilkinson; for networks docs/search_algorithm.md).
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "graph/assignment.h"
#include "precision/criterion.h"
#include "precision/trials.h"

namespace ulpscope {

/// What is predicted for one candidate layer.
struct LayerEffect {
  LayerId layer = kNone;
  /// The error that this layer alone causes, as a share of the tolerance: an amplitude, so that independent errors add
  /// as the root of the sum of squares. Infinite where the layer's own values overflow and that reaches an output.
  double effect = 0;
  /// How far apart the samples are about this layer, beyond what all layers and the noise of projections have in
  /// common: a standard deviation of logarithms. 0 where they agree, or are too few to tell.
  double spread = 0;
  bool far_apart = false;  ///< So far that other samples may use all of the tolerance by it: a search says so.
  /// No derivative tells the whole effect (Round, LSTM, If, a layer inside of a body, integers on the way): to be
  /// measured.
  bool incomplete = false;
  /// Some of its own values become infinite or NaN. With a finite effect: no gradient says that it matters, which a
  /// NaN, or an infinity that becomes one further on, may belie.
  bool overflows = false;
};

struct PredictorOptions {
  int projections = 5;  ///< Random vectors per sample.
  std::uint64_t seed = 1;
};

/// A layer in a precision.
struct LayerIn {
  LayerId layer = kNone;
  Precision precision = Precision::kFP32;
};

/// [sample][layer]: the share of the tolerance that the error of a layer uses by itself, as the root of its expected
/// square. A layer may be listed in several precisions. Takes one pass per sample for all local errors, and one adjoint
/// pass per projection; errors of output channels count as independent, as those of weights are, so fewer projections
/// are needed. Everything else is as `low` has it: scales, and how much their weights count. Deterministic.
std::vector<std::vector<double>> predict_squares(Trials& trials, const Assignment& low, std::span<const LayerIn> layers,
                                                 const Criterion& criterion, std::span<const TensorMap> golden,
                                                 const PredictorOptions& options, std::size_t first,
                                                 const std::function<void(int done, int all)>& progress);

/// Predicts from the samples of `trials` from `first` on, whose exact outputs are `golden`. Local errors come from one
/// pass per sample; then one adjoint pass per sample and projection: score = rms over projections of
/// <adjoint, local error>, the largest over samples after these have been drawn towards each other. The effects in the
/// order of `candidates`. Deterministic.
std::vector<LayerEffect> predict_effects(Trials& trials, const Assignment& low, std::span<const LayerId> candidates,
                                         const Criterion& criterion, std::span<const TensorMap> golden,
                                         const PredictorOptions& options = {}, std::size_t first = 0,
                                         const std::function<void(int done, int all)>& progress = {});

/// What one sample says of the candidates, in their order.
struct SampleEffects {
  std::vector<double> mean_squares;  ///< Over the projections.
  std::vector<char> overflows, incomplete;
};

/// predict_effects() in pieces: each sample by itself, wherever that is done, and what all of them say together.
class SamplePredictor {
 public:
  /// `trials` and `criterion` outlive it.
  SamplePredictor(Trials& trials, const Assignment& low, std::span<const LayerId> candidates,
                  const Criterion& criterion, const PredictorOptions& options = {});
  /// What a sample of the trials says; it is the `number`-th of those that the prediction uses.
  SampleEffects run(std::size_t sample, const TensorMap& golden, std::size_t number) {
    return run_(sample, golden, number);
  }

 private:
  std::function<SampleEffects(std::size_t sample, const TensorMap& golden, std::size_t number)> run_;
};
/// Of layers, each perhaps in several precisions, what predict_effects() finds of each sample: one pass for all local
/// errors, and gradients once for all precisions. `low` as in predict_squares(). Deterministic.
std::vector<SampleEffects> effects_of_samples(Trials& trials, const Assignment& low, std::span<const LayerIn> layers,
                                              const Criterion& criterion, std::span<const TensorMap> golden,
                                              const PredictorOptions& options);
/// The prediction of samples that had so many projections each.
std::vector<LayerEffect> combine_effects(std::span<const LayerId> candidates, std::vector<SampleEffects> samples,
                                         int projections);

/// What a sample may use that lies so many standard deviations beyond the worst, but no more than ten times as much:
/// few samples tell a spread badly, and its logarithms reach further down than up (docs/search_algorithm.md).
double effect_beyond(const LayerEffect& effect, double deviations) noexcept;

/// The share of the tolerance that a root-sum-square of effects stands for, in the units of Judgement::used.
double predicted_use(double amplitude, Sensitivity sensitivity) noexcept;
/// Its inverse.
double amplitude_of(double used, Sensitivity sensitivity) noexcept;

}  // namespace ulpscope
