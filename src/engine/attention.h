// Attention in a schedule: two products with a softmax between them, which a backend may compute as one kernel, whether
// they are one group (nothing is rounded between them) or several (what would be stored is rounded all the same).
#pragma once

#include <optional>
#include <vector>

#include "engine/kernels.h"
#include "graph/assignment.h"

namespace ulpscope {

/// Kernels of a schedule, which says what each of them computes: who does not compute all at once carries them out one
/// by one. Nobody else reads what lies between them.
struct AttentionKernel {
  Operand q, k, v;  ///< As numbers, or as elements of fp8 e4m3 with a scale each.
  /// What elements of q and k are multiplied by, and rounded to the type that they are read in, before anything else.
  std::optional<float> q_factor, k_factor;
  const ProductKernel* scores = nullptr;        ///< q k, with its epilogue.
  Rounding rounding = Rounding::kNone;          ///< Of the scores, before
  const ProgramKernel* softmax = nullptr;       ///< adds a mask, say, and takes the softmax: ProgramKernel::softmax_of.
  bool nan_is_zero = false;                     ///< Probabilities that are not a number count as 0.
  Rounding probabilities = Rounding::kNone;     ///< Of these, before they become elements if `values` reads such.
  const ProductKernel* values = nullptr;        ///< Probabilities times v, with its stores.
  bool flash = false;                           ///< Exponentials times v, over the sum of their row.
  std::vector<const KernelDescription*> parts;  ///< All but `values`, in their order.
};

/// By AttentionRule::kFlash: this product of an attention in one group multiplies exponentials, and its results are
/// divided by their sums.
bool multiplies_exponentials(const Specialization& spec, const Assignment& assignment, LayerId product);

/// All of them. They point into the schedule. `uses`: uses_of() it.
std::vector<AttentionKernel> attentions_of(const Specialization& spec, const Schedule& schedule,
                                           const IdMap<TensorId, KernelUses>& uses);

}  // namespace ulpscope
