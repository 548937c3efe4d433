// Shapes of tensors.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ulpscope/export.h"

namespace ulpscope {

/// Dimensions, outermost first; empty for a scalar. -1 is a dimension that is not known yet (in a network only; the
/// dimensions of a Tensor are never negative).
using Shape = std::vector<std::int64_t>;

/// The product of the dimensions (1 for a scalar). REQUIRES: no negative dimension. Throws Error on overflow of int64.
ULPSCOPE_API std::int64_t num_elements(const Shape& shape);

/// "(1, 3, 224, 224)", "(5,)" and "()" as NumPy prints shapes.
ULPSCOPE_API std::string to_string(const Shape& shape);

/// "[1,3,224,224]", the form that options take.
ULPSCOPE_API std::string to_option_string(const Shape& shape);

}  // namespace ulpscope
