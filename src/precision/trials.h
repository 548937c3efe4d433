// Runs a network under many assignments. A trial rebuilds nothing: a plan takes under a millisecond, weights are
// prepared once, and activations that an assignment does not change are shared with earlier trials.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "compare/tensor_map.h"
#include "core/parallel.h"
#include "engine/options.h"
#include "graph/network.h"
#include "runtime/executable.h"
#include "ulpscope/answer.h"
#include "ulpscope/calibrate.h"

namespace ulpscope {

class QuantizedChoices;
class RemoteSamples;
class WorkQueue;
/// What was done to the network of a search, one step after the other.
using RepairSteps = std::vector<std::vector<Repair>>;

/// One network, fixed samples, any assignment. Not thread-safe; a run works on several samples at a time, each of them
/// with some of the threads, and its results do not depend on how many. Samples may differ in shape.
class Trials {
 public:
  /// `samples`: inputs by name; types are cast, others than the network's are errors. Throws Error naming the sample
  /// and input that do not fit.
  /// `weights`: prepared constants to share with a network that has constants in common.
  Trials(std::shared_ptr<const Network> network, const BuildOptions& options, std::span<const TensorMap> samples,
         const WeightCache& weights = {});
  ~Trials();

  const Network& network() const noexcept { return *network_; }
  const std::shared_ptr<const Network>& shared_network() const noexcept { return network_; }
  const BuildOptions& options() const noexcept { return options_; }
  const WeightCache& weights() const noexcept { return executable_->weights(); }
  std::size_t num_samples() const noexcept { return inputs_.size(); }
  /// Of a sample, in the order of the network's inputs, physical types.
  std::span<const Tensor> inputs(std::size_t sample) const noexcept { return inputs_[sample]; }
  /// Sample `from` becomes sample `to`; those between move up. REQUIRES: to <= from.
  void move_sample(std::size_t from, std::size_t to);
  /// For the shapes of a sample.
  std::shared_ptr<const Specialization> specialization(std::size_t sample = 0);

  /// As Executable::idle_bodies; nothing where other processes ran.
  std::vector<std::string> idle_bodies(const Assignment& assignment) const {
    return executable_->idle_bodies(assignment);
  }

  /// Every layer in fp32.
  Assignment full_precision();
  /// What `Engine::build` gives to a network whose layers ask for `requested` (per layer; nothing: the engine's
  /// choice), with the options of these trials (assume_lowest, obey). Logs nothing.
  Assignment assign(const Requests& requested);
  /// Gives an assignment that comes from elsewhere what `assign` knows of scales of weights.
  void add_scale_choice(Assignment& assignment);

  /// The outputs of the network, in the types that the file declares, per sample. With `keep`, later runs share the
  /// activations that they have in common with this one.
  std::vector<TensorMap> run(const Assignment& assignment, bool keep = true);
  /// The same for the samples `first`, ..., `first + count - 1`. This thread calls `before_sample` before each sample
  /// that it runs itself; it may throw to end all early. What a sample throws, the first of those that do, is thrown.
  std::vector<TensorMap> run(const Assignment& assignment, std::size_t first, std::size_t count, bool keep,
                             const std::function<void()>& before_sample = {});
  /// Bytes of tensors that the process may hold, as far as the inputs and outputs of the samples, what the network
  /// itself holds and one step of one run allow: weights are prepared again in every run if need be, activations are
  /// not kept, fewer samples run at a time. 0: no limit but that of each of these, which grow with what one run takes.
  /// Results do not depend on it.
  void set_memory_limit(std::size_t bytes);
  std::size_t memory_limit() const noexcept { return memory_limit_; }
  /// What one run in float32 holds: constants, and the activations of the largest sample; and the latter alone.
  std::size_t run_bytes();
  std::size_t activation_bytes();
  /// Inputs and outputs of all samples.
  std::size_t sample_bytes();
  /// From now on other processes run the samples: those from `first` on of what they were started with, on its network
  /// after these repairs, which is the network here. Null: this process again.
  void set_workers(const std::shared_ptr<WorkQueue>& queue, const RepairSteps& repairs = {}, std::size_t first = 0);
  /// Null where this process runs them.
  RemoteSamples* remote() noexcept { return remote_.get(); }
  /// Bytes for all that the samples need that are worked on at a time.
  std::size_t working_memory();
  /// For the values of tensors whose ranges are taken.
  CalibrationOptions range_options();

 private:
  ThreadShare share_of_samples(const Assignment& assignment, std::size_t first, std::size_t count);
  /// They do not depend on what is requested.
  const QuantizedChoices& quantized_choices();

  std::shared_ptr<const Network> network_;
  BuildOptions options_;
  std::vector<std::vector<Tensor>> inputs_;  ///< Per sample, in the network's order, physical types.
  std::vector<ActivationStore> stores_;      ///< Per sample.
  std::unique_ptr<Executable> executable_;
  std::unique_ptr<const QuantizedChoices> choices_;
  std::shared_ptr<const Specialization> choices_of_;
  std::map<std::vector<Shape>, std::size_t> arena_bytes_;  ///< Of one run, about.
  std::unique_ptr<RemoteSamples> remote_;
  bool prepares_weights_ = false;  ///< Ahead of samples that run side by side.
  std::size_t memory_limit_ = 0;
  std::optional<std::size_t> activation_bytes_;
};

}  // namespace ulpscope
