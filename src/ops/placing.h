// Where the elements of a result come from, for layers that put elements of their inputs side by side or around each
// other: what backends need to do the same in one pass.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "graph/network.h"

namespace ulpscope::ops {

/// Where elements along one axis of a result come from: per position, that of input 0; -1: from nowhere.
struct PlacedAxis {
  std::int64_t axis = 0;
  Tensor index;  ///< int32 [output].
};
struct Placed {
  std::vector<PlacedAxis> axes;  ///< Without those that stay as they are.
  Tensor fill;                   ///< One element, of the type of input 0: what comes from nowhere.
};
/// Pad in all modes and CenterCropPad, of an input of this shape and type. `values`: per input, null where it is not
/// known. Nothing for other layers, for parameters that are not known, and for axes of 2^31 elements.
std::optional<Placed> placed_axes(const Layer& layer, const Shape& input, DataType type,
                                  std::span<const Tensor* const> values);

/// Elements above or below a diagonal, and zeros: Trilu.
bool is_triangle(const Layer& layer);

/// Inputs of which every element of the result is one, or zero; the other inputs and the shapes alone say which:
/// Trilu, and Scatter, ScatterElements, ScatterND without a reduction, and TensorScatter. None for other layers.
std::vector<std::size_t> merged_inputs(const Layer& layer);

/// Of how many leading dimensions of the data each index chooses a place, the others being taken whole: GatherElements
/// and GatherND. Nothing for other layers.
std::optional<std::size_t> gathered_dimensions(const Layer& layer, const Shape& data, const Shape& indices);

}  // namespace ulpscope::ops
