// Runs a network under many assignments. A trial rebuilds nothing: a plan takes under a millisecond, weights are
// prepared once, and activations that an assignment does not change are shared with earlier trials.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "compare/tensor_map.h"
#include "engine/options.h"
#include "graph/network.h"
#include "runtime/executable.h"

namespace ulpscope {

/// One network, fixed samples, any assignment. Not thread-safe; runs itself are parallel. Samples may differ in shape.
class Trials {
 public:
  /// `samples`: inputs by name; types are cast, others than the network's are errors. Throws Error naming the sample
  /// and input that do not fit.
  /// `weights`: prepared constants to share with a network that has constants in common.
  Trials(std::shared_ptr<const Network> network, const BuildOptions& options, std::span<const TensorMap> samples,
         const WeightCache& weights = {});
  ~Trials();

  const Network& network() const noexcept { return *network_; }
  const BuildOptions& options() const noexcept { return options_; }
  const WeightCache& weights() const noexcept { return executable_->weights(); }
  std::size_t num_samples() const noexcept { return inputs_.size(); }
  /// Of a sample, in the order of the network's inputs, physical types.
  std::span<const Tensor> inputs(std::size_t sample) const noexcept { return inputs_[sample]; }
  /// Sample `from` becomes sample `to`; those between move up. REQUIRES: to <= from.
  void move_sample(std::size_t from, std::size_t to);
  /// For the shapes of a sample.
  std::shared_ptr<const Specialization> specialization(std::size_t sample = 0);

  /// Every layer in fp32.
  Assignment full_precision();
  /// What `Engine::build` gives to a network whose layers ask for `requested` (per layer; nothing: the engine's
  /// choice), with the options of these trials (assume_lowest, obey). Logs nothing.
  Assignment assign(const LayerTypes& requested);

  /// The outputs of the network, in the types that the file declares, per sample. Counts one evaluation unless
  /// `assignment` is all fp32. With `keep`, later runs share the activations that they have in common with this one.
  std::vector<TensorMap> run(const Assignment& assignment, bool keep = true);
  /// The same for the samples `first`, ..., `first + count - 1`. `before_sample` may throw to end it early.
  std::vector<TensorMap> run(const Assignment& assignment, std::size_t first, std::size_t count, bool keep,
                             const std::function<void()>& before_sample = {});
  /// Bytes of activations that are kept for later runs, over all samples.
  void set_memory_limit(std::size_t bytes);
  std::int64_t evaluations() const noexcept { return evaluations_; }

 private:
  std::shared_ptr<const Network> network_;
  BuildOptions options_;
  std::vector<std::vector<Tensor>> inputs_;  ///< Per sample, in the network's order, physical types.
  std::vector<ActivationStore> stores_;      ///< Per sample.
  std::unique_ptr<Executable> executable_;
  std::int64_t evaluations_ = 0;
};

}  // namespace ulpscope
