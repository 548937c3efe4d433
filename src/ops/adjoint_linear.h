// Adjoints of linear maps that several operators share: convolutions, and weighted sums along one axis.
#pragma once

#include "ops/adjoint_values.h"
#include "ops/window.h"

namespace ulpscope::ops {

/// The gradient of the input of a convolution (N, C, input...) -> (N, M, output...) of this geometry, with weights
/// (M, C/groups, kernel...), from the gradient of its output. Windows that reach beyond the pads (ceil_mode) are cut.
Value convolution_input_gradient(Value gradient, Value weights, const WindowGeometry& g);

/// The gradient of its weights; `g` is the geometry of the convolution, `input` its input. With the roles of `input`
/// and `gradient` exchanged, that of a transposed convolution.
Value convolution_weight_gradient(Value input, Value gradient, const WindowGeometry& g);

/// The gradient of the input of sums over the windows of every channel, times `factor`. `g`: the geometry of a pooling.
Value window_sums_adjoint(Value gradient, const WindowGeometry& g, double factor = 1);

/// A weighted sum along one axis: every term adds `weight` times the element at `from` to the sum at `to`.
struct SumTerm {
  std::int64_t from = 0, to = 0;
  double weight = 1;
};
/// The adjoint of such a sum over `inputs` elements: out[.., i, ..] = sum over terms with from = i of weight * x[..,
/// to,
/// ..]. What it makes is of the size of the terms.
Value transposed_along_axis(Value x, std::vector<SumTerm> terms, std::int64_t inputs, std::int64_t axis);

/// Adds up `gradient` at the places that `indices` (integers, of the same number of elements) name in a tensor of this
/// shape, seen flat.
Value scatter_flat(Value gradient, Value indices, const Shape& shape);

}  // namespace ulpscope::ops
