// What low precision does to each layer by itself: its output from exact inputs, against the exact output.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "graph/assignment.h"
#include "graph/network.h"
#include "runtime/executable.h"

namespace ulpscope {

/// A float output of a candidate.
struct CandidateOutput {
  std::size_t candidate = 0;  ///< Which of the candidates.
  TensorId tensor = kNone;
};
/// In the order of the candidates and of their outputs; none of candidates inside of bodies, which only run there.
std::vector<CandidateOutput> candidate_outputs(const Network& network, std::span<const LayerId> candidates);

/// One output of a candidate layer.
struct LocalError {
  LayerId layer = kNone;
  TensorId tensor = kNone;  ///< Of the original network.
  /// low - exact, of the tensor's shape, float32. May hold infinities and NaN. A scalar where squares were asked for.
  Tensor error;
};

/// A network in fp32 with a low-precision twin beside every candidate, which reads the same exact inputs, and their
/// differences low - exact. What is in the network already keeps its ids.
struct TwinNetwork {
  Network network;  ///< Its outputs: the differences, per candidate_outputs().
  Assignment assignment;

  /// Fits `assignment` to the layers (new ones in fp32) and storage types to it; to be called last.
  void finish(const InferredNetwork& inferred);
};
/// Each twin has the precision and the scales of `low`. Candidates inside of bodies have none. `precisions`: per
/// candidate, instead of those of `low`; a layer may be a candidate several times then, in different ones.
TwinNetwork with_twins(const Network& network, const Assignment& low, std::span<const LayerId> candidates,
                       std::span<const Precision> precisions = {});

/// Which values of a network are images, whose channels lie side by side where the CPU computes them: per tensor, 1 for
/// an image. Between two networks that hand such values on as [n, h, w, c], a Transpose on each side costs nothing,
/// where handing them on as [n, c, h, w] takes two copies. True of tensors of rank 4 that a convolution or a pool reads
/// or makes, and of what layers make of them in the same shape. A guess: either way the values are the same.
using Images = IdMap<TensorId, char>;
Images images_of(const Specialization& spec);

/// Runs the network with its twins: one pass for all layers, whatever their number.
class LocalErrors {
 public:
  /// What a run yields of every error: its elements, or the sum of their squares, a number that is finite only if all
  /// of them are.
  enum class Yield : std::uint8_t { kElements, kSquares };
  /// `network` outlives this. `weights`: prepared constants to share. `precisions`: as in with_twins().
  LocalErrors(const Network& network, const Assignment& low, std::span<const LayerId> candidates,
              const BuildOptions& options, const WeightCache& weights = {}, Yield yield = Yield::kElements,
              std::span<const Precision> precisions = {});
  ~LocalErrors();

  /// Per candidate_outputs(), and the exact values of `tensors` (physical types), for one sample (in the order of the
  /// network's inputs, physical types). Several threads may run samples at once.
  struct Result {
    std::vector<LocalError> errors;
    std::vector<Tensor> values;
  };
  /// Errors and values of `images` (none where it is empty) have the shape [n, h, w, c].
  Result run(std::span<const Tensor> inputs, std::span<const TensorId> tensors, const Images& images = {});
  /// That a run holds beside its result.
  std::size_t activation_bytes(const std::vector<Shape>& shapes, std::span<const TensorId> tensors,
                               const Images& images = {});

 private:
  struct Twin;
  /// The network with twins whose outputs are the errors and `tensors`; kept while these and `images` stay the same.
  std::shared_ptr<Twin> twin(std::span<const TensorId> tensors, const Images& images, const std::vector<Shape>& shapes);

  const Network& network_;
  const Assignment low_;
  const std::vector<LayerId> candidates_;
  const std::vector<Precision> precisions_;
  const BuildOptions options_;
  const WeightCache weights_;
  const Yield yield_;
  std::mutex mutex_;  ///< Of `twin_`.
  std::shared_ptr<Twin> twin_;
};

}  // namespace ulpscope
