// The steps that compute a specialized network under one assignment, and where their tensors lie.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "backend/arena.h"
#include "backend/backend.h"
#include "backend/kernel.h"
#include "core/placed_team.h"

namespace ulpscope::cpu {

/// A place for one tensor: part of the arena, a prepared constant, or (shape known at run time only) allocated per run.
struct Slot {
  DataType type = DataType::kUndefined;  ///< Physical.
  Shape shape;
  bool dynamic = false;
  /// If not undefined: what the slot has is rounded to this type by the one step that writes it, which writes elements
  /// of it, too, where the slot has such a tensor.
  DataType narrow = DataType::kUndefined;
  Tensor constant;
  ArenaEntry place;  ///< In the arena.
  int alias = -1;    ///< Shares the bytes of this slot instead (an in-place step).
};

/// The slot that has the memory of this one: itself, or what it is an alias of.
inline int root_of(const std::vector<Slot>& slots, int slot) {
  while (slots[slot].alias >= 0) slot = slots[slot].alias;
  return slot;
}

struct Step {
  std::shared_ptr<const Kernel> kernel;
  std::vector<int> inputs;  ///< Slots; -1: absent.
  std::vector<int> outputs;
  LayerId layer = kNone;  ///< For messages.
};

/// A tensor that a group of layers leaves behind.
struct StoredValue {
  int slot = -1;
  int step = -1;            ///< The last one that writes it.
  ActivationKey key;        ///< Names its elements, for one input of the network.
  int first = 1, last = 0;  ///< Of the chosen steps, from 1 on, those at which it is alive; none if last < first.

  /// Goes into a store that gets what is alive at every k-th chosen step.
  bool is_kept(int k) const noexcept { return last / k * k >= first; }
};

/// What lowering makes of a schedule.
struct Steps {
  std::vector<Slot> slots;
  std::vector<Step> steps;
  std::vector<int> inputs;  ///< Slots of the network's inputs.
  std::vector<int> outputs;
  std::vector<StoredValue> values;      ///< In the order of their steps.
  std::vector<PreparedSource> weights;  ///< What kernels ask for when they run.
};

class CpuPlan final : public Plan {
 public:
  CpuPlan(std::shared_ptr<const Specialization> spec, Schedule schedule, WeightCache& weights,
          const IdMap<LayerId, GraphFunction>& subgraphs);

  std::vector<Tensor> run(std::span<const Tensor> inputs, ActivationStore* store, bool keep) const override {
    return execute(inputs, store, keep, false, {});
  }
  std::vector<Tensor> run_narrow(std::span<const Tensor> inputs) const override {
    return execute(inputs, nullptr, false, true, {});
  }
  void prepare() const override;
  std::vector<StepTime> profile(std::span<const Tensor> inputs) const override;
  std::size_t arena_bytes() const noexcept override { return arena_bytes_; }

 private:
  /// `narrow`: as run_narrow() does.
  std::vector<Tensor> execute(std::span<const Tensor> inputs, ActivationStore* store, bool keep, bool narrow,
                              std::span<StepTime> times) const;
  void place_slots();
  void place_results();
  void choose_kept_values();
  /// The least k so that a store of this size holds, of two runs, what is alive at every k-th chosen step; 0: none.
  int stretches_apart(std::size_t byte_limit) const noexcept;
  /// Whether a step computes it, and exactly one output of the network is it or a view of it: then every run computes
  /// into a new tensor.
  bool is_fresh_output(int root) const;
  /// The type that an output's slot has in run_narrow(): Slot::narrow where the network declares that and no step reads
  /// it, else its own.
  DataType narrow_type(TensorId output, int root) const;
  /// Binds new tensors to such slots; says, per slot, whether it is one.
  std::vector<char> bind_fresh_outputs(std::vector<Tensor>& bound, bool narrow) const;
  /// What one run works on.
  struct Workspace {
    const std::byte* arena = nullptr;  ///< Where the tensors lie.
    std::vector<Tensor> bound;         ///< Per slot.
  };
  Workspace take_workspace(std::byte* arena) const;
  /// Binds the slots whose values the store has, and tells for each step whether it has to run.
  std::vector<char> reuse(ActivationStore& store, std::vector<Tensor>& bound) const;
  /// `times`: empty, or one per step, of which each keeps the least of its runs.
  void run_steps(std::vector<Tensor>& bound, std::span<const char> runs, ActivationStore* kept,
                 std::span<StepTime> times) const;

  /// How long the last run took.
  mutable std::atomic<PlacedTeam::Duration> last_run_ = PlacedTeam::Duration::zero();
  Steps made_;
  std::vector<char> fresh_;             ///< Per slot that is no view: see is_fresh_output.
  std::vector<DataType> narrow_types_;  ///< Per output of the network: see narrow_type.
  /// Of all fresh outputs, where they are many and share a block; 0: each has memory of its own.
  std::size_t bytes_of_results_ = 0;
  std::vector<std::size_t> offsets_of_results_;
  std::vector<std::size_t> kept_bytes_;  ///< By k - 1: of what a store gets, where that is asked of every k-th stretch.
  std::size_t arena_bytes_ = 0;
  mutable WeightCache weights_;

  mutable std::mutex mutex_;
  mutable std::vector<Workspace> free_;  ///< Of runs that have ended.
};

}  // namespace ulpscope::cpu
