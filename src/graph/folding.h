// Inference for many shapes of one network: what does not depend on them is folded once.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "graph/inference.h"

namespace ulpscope {

/// Elements per output of a layer up to which floats are folded.
struct FoldingLimits {
  std::int64_t constants = std::int64_t{1} << 62;  ///< What follows from constants of the network alone.
  std::int64_t shapes = constants;                 ///< What is made of shapes, so that other shapes give other values.
};

/// Like infer() of graph/inference.h; inputs may be without a shape. `known` (or empty): values that an inference for
/// other shapes found, where they do not depend on these; they are shared.
InferredNetwork infer(const Network& network, const std::vector<std::optional<Shape>>& input_shapes,
                      const FoldingLimits& limits, const IdMap<TensorId, Tensor>& known);

}  // namespace ulpscope
