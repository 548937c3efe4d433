// What a build is asked for.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "formats/accumulator.h"
#include "graph/attention_rule.h"
#include "graph/layer_form.h"
#include "graph/scale_choice.h"
#include "ulpscope/shape.h"
#include "ulpscope/tensor.h"

namespace ulpscope {

/// `--precision-constraints`: whether requested layer precisions hold.
enum class ConstraintMode : std::uint8_t {
  kNone,    ///< They have no effect; a warning lists them.
  kPrefer,  ///< Kept where possible, else a warning and the engine's choice.
  kObey,    ///< Kept, or the build fails and names the layer.
};

/// Which neighboring layers of one precision become one group, in which nothing is rounded.
enum class Fusion : std::uint8_t {
  kNone,       ///< Every layer stores its output.
  kPointwise,  ///< Contractions with bias and pointwise epilogue; chains of pointwise layers.
  kFull,       ///< Also normalization, softmax and attention patterns.
};

/// Shapes that an engine is built for, per input.
struct Profile {
  std::map<std::string, Shape> min, opt, max;
};

struct TacticReplay;
struct TimingCache;

/// The GPU whose times count where no other is asked for or at hand: a card that many deploy to, of the middle in size.
/// What pays there, where bytes and arithmetic take most of the time, pays on larger ones; what only launches decide
/// does not.
inline constexpr std::string_view kDefaultTarget = "l4";

struct BuildOptions {
  PrecisionSet enabled;     ///< Beside fp32, which is always enabled.
  PrecisionSet on_request;  ///< For layers that ask for them, and nobody's choice otherwise.
  ConstraintMode constraints = ConstraintMode::kNone;
  Fusion fusion = Fusion::kFull;
  Accumulation accumulation = Accumulation::kFP32;
  AttentionRule attention = AttentionRule::kNormalized;
  /// Skip the cost model: every layer without a constraint takes the lowest enabled precision.
  bool assume_lowest = false;
  /// Types are those written in the file; layer precisions and precision flags are errors.
  bool strongly_typed = false;
  /// The GPU whose costs decide what is cheapest: a file of data/targets, without its suffix, or the path of another
  /// one (engine/target.h).
  std::string target{kDefaultTarget};
  std::vector<Profile> profiles;
  /// Input shapes to expect where no profile tells: costs are computed for them. Other shapes run as well.
  std::map<std::string, Shape> typical_shapes;
  /// Who computes: see find_backend() in backend/backend.h.
  std::string backend = "cpu";
  /// Threads for building and running; 0: one per core. The results do not depend on it.
  int threads = 0;
  /// Bytes of tensors and prepared weights that are held at a time, as far as one step allows; 0: no limit. Weights
  /// give way and are prepared again. The results do not depend on it.
  std::size_t memory_limit = 0;
  /// `--load-tactics`: the choices of another build (engine/tactics.h); null: choose anew.
  std::shared_ptr<const TacticReplay> tactic_replay;
  /// `--load-timing-cache`: what a backend measured elsewhere (engine/timing_cache.h); null: nothing.
  std::shared_ptr<const TimingCache> timing_cache;
  /// int8: the scale of each tensor, by name: real value = scale * integer, symmetric. From a calibration cache.
  std::map<std::string, float> scales;
  ScaleChoice scale_choice;
  /// For WeightScales::kActivations, per product, by the layer's name: the mean square of each channel of input 0 that
  /// is summed over, float32.
  std::map<std::string, Tensor> mean_squares;
};

}  // namespace ulpscope
