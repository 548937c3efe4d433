// What the large elements of a constant are for: whether they mask something, and what they reach.
#pragma once

#include <vector>

#include "graph/network.h"

namespace ulpscope {

struct MaskReach {
  /// Every way from the constant leads through movement, sums, factors and selections to functions that are flat far
  /// out (Softmax, Exp, Sigmoid, ...), or to a comparison with what was computed from data: how large the elements are
  /// makes no difference, as long as it is large. False for bounds (of Clip, Max, a comparison), divisors, weights,
  /// what a body of control flow reads, and what an output shows.
  bool only_masks = true;
  std::vector<TensorId> tensors;  ///< That hold such elements, the constant first.
};

MaskReach mask_reach(const Network& network, TensorId constant);

}  // namespace ulpscope
