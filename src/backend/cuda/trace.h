// Which element of its input every element of a movement layer's result is.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "graph/network.h"
#include "ulpscope/tensor.h"

namespace ulpscope::cuda {

/// Per output (absent ones are empty): for each element the row-major index of the element of input 0 that it is. The
/// operator's reference kernel says so, run on the indices themselves. `parameters`: the other inputs, at their places;
/// entry 0 is not looked at. `as_floats`: the operator takes floats only, exact up to 2^24. Nothing: too many elements,
/// or the operator refuses.
std::optional<std::vector<Tensor>> trace_elements(const Layer& layer, const Shape& input,
                                                  std::vector<Tensor> parameters, bool as_floats);

/// The same as places in memory.
struct Trace {
  std::int64_t offset = 0;  ///< Of the first element, in elements; without strides, the lowest place.
  std::optional<std::vector<std::int64_t>> strides;  ///< Over the output's shape, where such strides exist.
  Tensor places;                                     ///< Else int64, the output's shape: the places from `offset` on,
  std::int64_t extent = 0;                           ///< all below this.
};
/// `elements`: as trace_elements gives them for one output; `strides`: of the input.
Trace places_of(const Tensor& elements, const Shape& input, std::span<const std::int64_t> strides, const Shape& output);

}  // namespace ulpscope::cuda
