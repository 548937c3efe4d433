// What a product by Einstein's summation convention adds up.
#pragma once

#include <optional>
#include <vector>

#include "graph/network.h"

namespace ulpscope::ops {

/// result[o...] = the sum over the other indices of the product of the inputs.
struct EinsumForm {
  std::vector<std::int64_t> sizes;  ///< Of each index: those of the result in its order, then those summed over.
  std::size_t results = 0;          ///< How many indices the result has.
  /// Per input and axis: its index. An axis of size 1 may have an index of a larger size: it repeats its element.
  std::vector<std::vector<std::size_t>> axes;
};

/// Nothing for other layers. Throws Error(kInvalidFile), naming the layer, where shapes do not fit the equation.
std::optional<EinsumForm> einsum_form(const Layer& layer, const std::vector<Shape>& shapes);

/// The indices of a product of matrices.
struct EinsumRoles {
  std::vector<std::size_t> batch,  ///< That both operands and the result have,
      rows,                        ///< the first and the result,
      columns,                     ///< the second and the result,
      sums;                        ///< both operands alone.
};

/// Nothing where an index is summed over in one operand alone, or occurs twice in one, and for other than two operands.
std::optional<EinsumRoles> roles_of(const EinsumForm& form, const std::vector<Shape>& shapes);

}  // namespace ulpscope::ops
