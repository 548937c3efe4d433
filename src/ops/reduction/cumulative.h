// Running sums and products.
#pragma once

#include <optional>
#include <span>

#include "graph/network.h"

namespace ulpscope::ops {

struct CumulativeForm {
  std::int64_t axis = 0;   ///< In [0, rank).
  bool product = false;    ///< Of products; else sums. From the first element on, one after the other.
  bool exclusive = false;  ///< Without the element itself.
  bool reverse = false;    ///< From the last element on.
};

/// CumSum and CumProd of an input of this rank. `values`: per input, null where it is not known. Nothing for other
/// layers, and where the axis is not known or does not fit.
std::optional<CumulativeForm> cumulative_form(const Layer& layer, std::int64_t rank,
                                              std::span<const Tensor* const> values);

}  // namespace ulpscope::ops
