#include "ops/multiply_adds.h"

#include <algorithm>

namespace ulpscope::ops {
namespace {

double elements(const Shape& shape) { return static_cast<double>(num_elements(shape)); }

/// The elements of one filter of weights (filters, ...), or of what one input channel of a transposed convolution
/// meets.
double filter_size(const Shape& weights) {
  return weights.empty() ? 1 : elements(weights) / std::max<double>(1, static_cast<double>(weights[0]));
}

}  // namespace

double multiply_adds_of_matmul(const Layer&, std::span<const Shape* const> inputs, const Shape& output) {
  return inputs[0]->empty() ? elements(output) : elements(output) * static_cast<double>(inputs[0]->back());
}

double multiply_adds_of_gemm(const Layer& layer, std::span<const Shape* const> inputs, const Shape& output) {
  const Shape& a = *inputs[0];
  if (layer.attributes.integer("transA", 0) == 0 || a.empty()) return multiply_adds_of_matmul(layer, inputs, output);
  return elements(output) * static_cast<double>(a[0]);
}

double multiply_adds_of_fused_matmul(const Layer& layer, std::span<const Shape* const> inputs, const Shape& output) {
  const Shape& a = *inputs[0];
  if (layer.attributes.integer("transA", 0) == 0 || a.size() < 2) return multiply_adds_of_matmul(layer, inputs, output);
  const std::size_t inner = layer.attributes.integer("transBatchA", 0) != 0 ? 0 : a.size() - 2;
  return elements(output) * static_cast<double>(a[inner]);
}

double multiply_adds_of_conv(const Layer&, std::span<const Shape* const> inputs, const Shape& output) {
  return elements(output) * filter_size(*inputs[1]);
}

double multiply_adds_of_qlinear_conv(const Layer&, std::span<const Shape* const> inputs, const Shape& output) {
  return inputs[3] == nullptr ? elements(output) : elements(output) * filter_size(*inputs[3]);
}

double multiply_adds_of_conv_transpose(const Layer&, std::span<const Shape* const> inputs, const Shape&) {
  return elements(*inputs[0]) * filter_size(*inputs[1]);
}

double multiply_adds_of_recurrent(const Layer&, std::span<const Shape* const> inputs, const Shape&) {
  const Shape& x = *inputs[0];
  const double weights = elements(*inputs[1]) + (inputs[2] == nullptr ? 0 : elements(*inputs[2]));
  return x.size() < 2 ? weights : weights * static_cast<double>(x[0]) * static_cast<double>(x[1]);
}

}  // namespace ulpscope::ops
