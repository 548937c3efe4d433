// Large constants that follow from others by a copy: made when they are needed, instead of kept beside them.
#pragma once

#include <span>

#include "graph/network.h"

namespace ulpscope {

/// What the layer gives for these constants, as a deferred tensor; no tensor where it is to be computed now. `inputs`:
/// null where one is absent.
Tensor deferred_fold(const Network& network, const Layer& layer, std::span<const Tensor* const> inputs);

/// The matrix that this constant is the transpose of, where it is one that was deferred; else no tensor.
Tensor transposed_matrix(const Tensor& value);

}  // namespace ulpscope
