// The steps that compute a specialised network under one assignment, and where their tensors lie.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "backend/cpu/op_kernel.h"
#include "backend/kernel.h"
#include "engine/activation_store.h"
#include "engine/fusion.h"
#include "engine/specialization.h"
#include "engine/weights.h"
#include "graph/assignment.h"

namespace ulpscope {

/// A place for one tensor: part of the arena, a prepared constant, or (shape known at run time only) allocated per run.
struct Slot {
  DataType type = DataType::kUndefined;  ///< Physical.
  Shape shape;
  bool dynamic = false;
  Tensor constant;
  std::size_t offset = 0;     ///< In the arena.
  int first = -1, last = -1;  ///< Steps between which the bytes are in use.
  int alias = -1;             ///< Shares the bytes of this slot instead (an in-place step).
};

struct Step {
  std::shared_ptr<const Kernel> kernel;
  std::vector<int> inputs;  ///< Slots; -1: absent.
  std::vector<int> outputs;
  LayerId layer = kNone;  ///< For messages.
};

/// A tensor that a group of layers leaves behind.
struct StoredValue {
  int slot = -1;
  int step = -1;      ///< The last one that writes it.
  ActivationKey key;  ///< Names its elements, for one input of the network.
  bool kept = false;  ///< Goes into a store.
};

/// Immutable once built; holds one arena, so one run at a time (guarded).
class Plan {
 public:
  /// Makes the steps. Touches no weight that `weights` has prepared before. `spec`, `weights` and `subgraphs` outlive
  /// the plan.
  Plan(std::shared_ptr<const Specialization> spec, const Assignment& assignment, Grouping grouping,
       WeightCache& weights, std::span<const cpu::GraphFunction> subgraphs);

  /// `inputs` in the order of the network's inputs, physical types, the shapes of the specialization. The outputs are
  /// fresh tensors, physical types, rounded to their storage type.
  /// With a store, which belongs to these inputs: what it has is not computed again; with `keep`, what other plans can
  /// start from is added to it.
  std::vector<Tensor> run(std::span<const Tensor> inputs, ActivationStore* store = nullptr, bool keep = true) const;

  const Grouping& grouping() const noexcept { return grouping_; }
  /// Bytes of all activations at once.
  std::size_t arena_bytes() const noexcept { return arena_bytes_; }
  std::size_t num_steps() const noexcept { return steps_.size(); }

 private:
  friend class PlanBuilder;
  void place_slots();
  void choose_kept_values();
  /// True for an output that a step writes to its very end: every run binds a new tensor to it, and hands that out.
  bool is_fresh_output(int slot) const;
  void bind() const;
  /// Binds the slots whose values the store has, and tells for each step whether it has to run.
  std::vector<char> reuse(ActivationStore& store) const;

  std::shared_ptr<const Specialization> spec_;
  Grouping grouping_;
  std::vector<Slot> slots_;
  std::vector<Step> steps_;
  std::vector<int> input_slots_;  ///< -1: nobody reads that input.
  std::vector<int> output_slots_;
  std::vector<char> fresh_;          ///< Per slot: see is_fresh_output.
  std::vector<StoredValue> values_;  ///< In the order of their steps.
  std::size_t arena_bytes_ = 0;

  mutable std::mutex mutex_;
  mutable std::shared_ptr<std::byte> arena_;
  mutable std::vector<Tensor> bound_;  ///< Per slot.
};

}  // namespace ulpscope
