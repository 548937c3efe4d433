// A schedule on the GPU: recorded launches, with what the CPU does between them.
#pragma once

#include <functional>
#include <list>
#include <memory>
#include <vector>

#include "backend/backend.h"
#include "backend/cuda/checkpoints.h"
#include "backend/cuda/lowering.h"
#include "backend/cuda/replay.h"
#include "backend/cuda/runtime.h"
#include "backend/cuda/steps.h"
#include "backend/device_plan.h"

namespace ulpscope::cuda {

class CudaPlan final : public Plan, public DevicePlan {
 public:
  /// Lowers, compiles and chooses algorithms. Launches are recorded for runs that will not be the only one: the second,
  /// or those of a sample, of which there are more. Throws as Backend::plan.
  CudaPlan(std::shared_ptr<const Specialization> spec, Schedule schedule, WeightCache& weights,
           const IdMap<LayerId, GraphFunction>& subgraphs, const TacticReplay* replay, Ends ends = Ends::kHost);
  ~CudaPlan() override;

  /// With Ends::kDevice, in place of the other one. Launches are recorded for the addresses that come a second time.
  void run(std::span<void* const> inputs, std::span<void* const> outputs, CallerStream stream) const override;
  std::vector<DeviceTensor> outputs() const override;

  /// Where the CPU computes nothing in between, a run begins at the last checkpoint whose values the store has.
  std::vector<Tensor> run(std::span<const Tensor> inputs, ActivationStore* store, bool keep) const override;
  std::size_t arena_bytes() const noexcept override { return arena_bytes_; }
  std::optional<double> microseconds() const override;
  /// Of what runs on the GPU; inputs are those of the last run.
  std::vector<StepTime> profile(std::span<const Tensor> inputs) const override;
  PlanTactics tactics() const override;

 private:
  void place();
  /// `chooses`: what the choice of algorithms may run is compiled, too.
  void compile_kernels(bool chooses);
  /// What it may run: what is known to be fastest, or all that will be timed.
  static std::vector<SharedSource> candidates_of(const ProductProgramStep& step);
  void choose_algorithms(Replay& replay);
  MatrixProductOperands operands_of(const ProductStep& step) const;
  ConvolutionOperands operands_of(const ConvolveStep& step) const;
  /// Where the time is not known yet, it is measured.
  void choose(ProductStep& step);
  void choose(ProductProgramStep& step);
  void choose(ConvolveStep& step);
  void find_ranges();
  /// Where networks with many outputs have them.
  void place_results();
  /// Takes the tile of that name, or computes them apart; false: there is none.
  bool take(ProductProgramStep& step, const std::string& algorithm);
  void enqueue(const Step& step) const;
  void enqueue(const KernelStep& step) const;
  void enqueue(const ProductStep& step) const;
  void enqueue(const ProductProgramStep& step) const;
  Address address(const Pointer& pointer) const;

  WeightCache weights_;
  Steps made_;
  std::string identity_;  ///< PlanTactics::device
  std::size_t arena_bytes_ = 0;
  std::shared_ptr<const DeviceMemory> arena_, workspace_;
  /// Consecutive steps [first, last) that run on the device: one graph, captured when it is launched.
  struct Range {
    std::size_t first, last;
    std::unique_ptr<LaunchGraph> graph;
  };
  void launch(Range& range) const;
  /// Constants of the host, behind them what the steps put there; `work` runs the range of that number.
  void run_steps(std::vector<Tensor>& host, const std::shared_ptr<std::byte>& block,
                 const std::function<void(std::size_t)>& work) const;
  std::size_t bytes_of_callers(std::size_t number) const;
  std::shared_ptr<const DeviceMemory> stand_in() const;
  void run_between() const;  ///< The addresses are there.
  void enqueue(const Range& range) const;
  void launch_sharing(ActivationStore& store, bool keep) const;
  void keep_values(const Checkpoint& checkpoint, ActivationStore& store) const;
  Address address_of(int buffer) const { return address(Pointer{buffer, 0}); }
  // Guarded by Device::mutex().
  mutable std::vector<Range> ranges_;
  mutable bool has_run_ = false;
  /// Of the caller's tensors in this run, by Buffer::callers; and the graphs of the ranges for the last such lists.
  mutable std::vector<Address> callers_;
  struct Recording {
    std::vector<Address> callers;
    std::vector<std::unique_ptr<LaunchGraph>> graphs;  ///< None: these came once so far.
  };
  mutable std::list<Recording> recordings_;
  /// Of the one range that there is, when a store was given: between checkpoints.
  mutable std::vector<Checkpoint> checkpoints_;
  mutable std::vector<Range> stretches_;
  std::size_t bytes_of_results_ = 0;  ///< Of all, in one block; 0: each has memory of its own.
  static constexpr std::size_t kNoPlace = static_cast<std::size_t>(-1);
  std::vector<std::size_t> offsets_of_results_;  ///< Per value of the host; kNoPlace: not in the block.
};

}  // namespace ulpscope::cuda
