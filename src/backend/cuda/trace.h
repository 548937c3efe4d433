// Which element of its input every element of a movement layer's result is.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "graph/network.h"
#include "ulpscope/tensor.h"

namespace ulpscope::cuda {

/// first, first + 1, ... in row-major order; `type`: float32 or int32.
Tensor numbered(DataType type, const Shape& shape, std::int64_t first);

/// Of one output: places in the memory of input 0.
struct Trace {
  std::int64_t offset = 0;  ///< Of the first element, in elements; without strides, the lowest place.
  std::optional<std::vector<std::int64_t>> strides;  ///< Over the output's shape, where such strides exist.
  Tensor places;                                     ///< Else int64, the output's shape: the places from `offset` on,
  std::int64_t extent = 0;                           ///< all below this.
};

/// Per output (absent ones and those without elements are left empty): which element of input 0 each of its elements
/// is. The operator's reference kernel says so, run on the indices themselves. `parameters`: the other inputs, at their
/// places; entry 0 is not looked at. `as_floats`: the operator takes floats only, exact up to 2^24. `strides`: of the
/// input. None at all: too many elements, or the operator refuses.
std::vector<Trace> trace_places(const Layer& layer, const Shape& input, std::vector<Tensor> parameters, bool as_floats,
                                std::span<const std::int64_t> strides);

/// Of a layer whose result is elements of one input or two (ops::merged_inputs): per element the row-major number of
/// that of the first, or of the second behind all of the first; -1: zero. int64, the output's shape. `shapes`: of these
/// inputs; `parameters`: the others, at their places. Nothing: too many elements, or the operator refuses.
std::optional<Tensor> trace_merged(const Layer& layer, std::span<const std::size_t> merged,
                                   std::span<const Shape> shapes, std::vector<Tensor> parameters);

}  // namespace ulpscope::cuda
