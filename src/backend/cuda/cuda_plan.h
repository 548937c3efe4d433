// A schedule on the GPU: recorded launches, with what the CPU does between them.
#pragma once

#include <memory>
#include <vector>

#include "backend/backend.h"
#include "backend/cuda/replay.h"
#include "backend/cuda/result_blocks.h"
#include "backend/cuda/runtime.h"
#include "backend/cuda/steps.h"

namespace ulpscope::cuda {

class CudaPlan final : public Plan {
 public:
  /// Lowers, compiles, chooses algorithms and records. Throws as Backend::plan.
  CudaPlan(std::shared_ptr<const Specialization> spec, Schedule schedule, WeightCache& weights,
           const IdMap<LayerId, GraphFunction>& subgraphs, const TacticReplay* replay);
  ~CudaPlan() override;

  /// Every run computes everything: a store would cost more than it saves.
  std::vector<Tensor> run(std::span<const Tensor> inputs, ActivationStore* store, bool keep) const override;
  std::size_t arena_bytes() const noexcept override { return arena_bytes_; }
  std::optional<double> microseconds() const override;
  /// Of what runs on the GPU; inputs are those of the last run.
  std::vector<StepTime> profile(std::span<const Tensor> inputs) const override;
  PlanTactics tactics() const override;

 private:
  void place();
  void compile_kernels();
  void choose_algorithms(Replay& replay);
  MatrixProductOperands operands_of(const ProductStep& step) const;
  ConvolutionOperands operands_of(const ConvolveStep& step) const;
  /// Where the time is not known yet, it is measured.
  void choose(ProductStep& step);
  void choose(ProductProgramStep& step);
  void choose(ConvolveStep& step);
  void record();
  /// Where networks that hand out many tensors have them.
  void place_results();
  /// Takes the tile of that name, or computes them apart; false: there is none.
  bool take(ProductProgramStep& step, const std::string& algorithm);
  void enqueue(const Step& step) const;
  void enqueue(const KernelStep& step) const;
  void enqueue(const ProductStep& step) const;
  void enqueue(const ProductProgramStep& step) const;
  Address address(const Pointer& pointer) const;
  static bool is_recorded(const Step& step);

  WeightCache weights_;
  Steps made_;
  std::string identity_;  ///< PlanTactics::device
  std::size_t arena_bytes_ = 0;
  std::shared_ptr<const DeviceMemory> arena_, workspace_;
  /// Consecutive steps that run on the device are one graph, which runs in place of the first of them.
  struct Recorded {
    std::size_t first, last;
    std::unique_ptr<LaunchGraph> graph;
  };
  std::vector<Recorded> recorded_;
  std::shared_ptr<ResultBlocks> results_;        ///< Null: each result has memory of its own.
  std::vector<std::size_t> offsets_of_results_;  ///< Per value of the host; kNoPlace: not in the block.
};

}  // namespace ulpscope::cuda
