// Large constants that follow from others by a copy: made when they are needed, instead of kept beside them.
#pragma once

#include <memory>
#include <optional>
#include <span>

#include "formats/coded_elements.h"
#include "graph/network.h"

namespace ulpscope {

/// What the layer gives for these constants, as a deferred tensor; no tensor where it is to be computed now. `inputs`:
/// null where one is absent.
Tensor deferred_fold(const Network& network, const Layer& layer, std::span<const Tensor* const> inputs);

/// The matrix that this constant is the transpose of, where it is one that was deferred; else no tensor.
Tensor transposed_matrix(const Tensor& value);

/// What a DequantizeLinear makes of codes, as a matrix [n, k] that they lie as or, unless `transposed`, as [k, n].
struct DequantizedMatrix {
  std::shared_ptr<const DequantizedElements> elements;  ///< Of the file.
  bool transposed;
  CodedMatrix codes;
};
/// What this constant matrix is, [n, k] or, unless `transposed`, [k, n]: it may be the transpose of what the file has.
/// Nothing where it is something else, or its codes are not such a matrix by themselves.
std::optional<DequantizedMatrix> dequantized_matrix(const Tensor& value, bool transposed);

}  // namespace ulpscope
