// Orders of elements in memory, for every backend. Strides are in elements, one per dimension of the shape; row-major
// ones are ops::strides_of.
#pragma once

#include <cstdint>
#include <vector>

#include "ulpscope/shape.h"

namespace ulpscope {

/// Dimension 1 innermost, the others in their order; rank 2 or more.
std::vector<std::int64_t> channels_last_strides(const Shape& shape);

}  // namespace ulpscope
