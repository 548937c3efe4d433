// Convolutions as products of matrices whose rows are windows, in a copy of these.
#include <algorithm>

#include "backend/cuda/products.h"
#include "engine/constant_inputs.h"
#include "ops/movement.h"
#include "ops/window.h"

namespace ulpscope::cuda {
namespace {

/// A channel's window of so many taps makes cuDNN slow where there are groups: the 128 of wav2vec 2.0's positions, 48
/// channels in each of 16 groups, 200 positions, take it 256 us in float16 and 944 in float32 on an H200.
constexpr std::int64_t kManyTaps = 32;
/// A copy of windows is no larger.
constexpr std::int64_t kMostWindowBytes = std::int64_t{1} << 28;

}  // namespace

/// Windows that are rows of a matrix, in a copy that is smaller than what a convolution would read again and again.
/// cuDNN is slow at such strides.
bool Convolutions::lower_patches(const ProductKernel& kernel) {
  const Layer& l = layer(kernel.layer);
  const ProgramKernel& epilogue = kernel.epilogue;
  if (!ops::is_convolution(l) || ops::is_transposed_convolution(l) || kernel.elements) return false;
  if (spec_.is_constant(l.inputs[0]) || !has_constant_parameters(spec_, l)) return false;
  const Shape &input = shape(l.inputs[0]), &window = shape(l.inputs[1]);
  const ops::WindowGeometry g = ops::conv_geometry(l, input, window);
  const std::size_t rank = g.rank();
  if (g.groups != 1 || !g.are_patches()) return false;
  MatrixProductSpec spec{.m = input[0] * num_elements(g.output), .n = window[0], .k = num_elements(window) / window[0]};
  spec.operands = type_of(kernel.operands[0].rounding);
  spec.tf32 = kernel.operands[0].rounding == Rounding::kTF32;
  spec.a = {spec.k, 1, 0};
  spec.b = {1, spec.k, 0};
  spec.d = {spec.n, 1, 0};
  const auto& outputs = epilogue.outputs;
  const Filters filters = filters_of(kernel);
  ProductResults results;
  results.channel = 1;
  results.bias = filters.bias;
  spec.bias = static_cast<bool>(results.bias);
  spec.result = spec.operands;
  const bool whole = outputs.size() == 1 && outputs[0].source == 0 && !outputs[0].store.exact &&
                     type_of(outputs[0].store.rounding) == spec.operands && adds_bias_before_rounding(spec);
  spec.bias &= whole;
  if (!whole) spec.result = DataType::kFloat32;
  if (!target_.has_product(spec)) return false;
  // Rows of the matrix: the elements of one window, channel by channel, as the weights have them.
  const View from = memory_.device_view(kernel.operands[0]);
  Shape dims{input[0]};
  std::vector<std::int64_t> read{from.strides[0]};
  for (std::size_t d = 0; d < rank; ++d) {
    dims.push_back(g.output[d]);
    read.push_back(from.strides[d + 2] * g.kernel[d]);
  }
  dims.push_back(input[1]);
  read.push_back(from.strides[1]);
  for (std::size_t d = 0; d < rank; ++d) {
    dims.push_back(g.kernel[d]);
    read.push_back(from.strides[d + 2]);
  }
  const View windows = memory_.copied({from.buffer, from.type, from.offset, read}, dims, spec.operands,
                                      kernel.operands[0].rounding, ops::strides_of(dims));
  ProductStep step;
  step.a = pointer(windows);
  step.b = pointer(steps_.constant_memory(filters.key + "|rows", spec.operands, filters.weights));
  if (spec.bias) step.bias = pointer(memory_.constant_view(results.bias, filters.bias_key + "|bias", spec.result));
  results.view = whole ? memory_.define(outputs[0].store, channels_last_strides(epilogue.domain))
                       : steps_.new_view(spec.result, epilogue.domain, channels_last_strides(epilogue.domain));
  step.d = pointer(results.view);
  step.spec = spec;
  steps_.add(std::move(step));
  if (spec.bias) results.bias = {};
  epilogues_.lower(kernel, results);
  return true;
}

/// The input in that type with channels innermost, and zeros around it.
View Convolutions::padded_input(const ProductKernel& kernel, const ops::WindowGeometry& g, DataType type) {
  const Shape& input = shape(kernel.operands[0].tensor);
  Shape padded = input;
  for (std::size_t d = 0; d < g.rank(); ++d) padded[d + 2] += g.pads_begin[d] + g.pads_end[d];
  const View own = memory_.read_as(kernel.operands[0], type, channels_last_strides(input));
  if (padded == input) return own;
  View result = steps_.new_view(type, padded, channels_last_strides(padded));
  steps_.add_clear(result);
  View places = result;
  for (std::size_t d = 0; d < g.rank(); ++d) places.offset += g.pads_begin[d] * places.strides[d + 2];
  steps_.add_copy(own, places, input);
  return result;
}

/// Groups whose windows have many taps: a product for each, over rows of windows that overlap.
bool Convolutions::lower_group_windows(const ProductKernel& kernel) {
  const Layer& l = layer(kernel.layer);
  if (!ops::is_convolution(l) || ops::is_transposed_convolution(l) || kernel.elements) return false;
  if (spec_.is_constant(l.inputs[0]) || !has_constant_parameters(spec_, l)) return false;
  const Shape &input = shape(l.inputs[0]), &weights = shape(l.inputs[1]);
  const ops::WindowGeometry g = ops::conv_geometry(l, input, weights);
  const std::size_t rank = g.rank();
  const std::int64_t taps = num_elements(g.kernel), channels = weights[1], outputs = weights[0] / g.groups;
  MatrixProductSpec spec{.m = input[0] * num_elements(g.output), .n = outputs, .k = taps * channels, .batch = g.groups};
  spec.operands = type_of(kernel.operands[0].rounding);
  spec.result = DataType::kFloat32;
  spec.tf32 = kernel.operands[0].rounding == Rounding::kTF32;
  spec.a = {spec.k, 1, spec.m * spec.k};
  spec.b = {1, spec.k, outputs * spec.k};
  spec.d = {weights[0], 1, outputs};
  const std::int64_t size = size_of(spec.operands);
  const auto negative = [](std::int64_t pad) { return pad < 0; };
  if (std::ranges::any_of(g.pads_begin, negative) || std::ranges::any_of(g.pads_end, negative)) return false;
  // Every group begins at whole words of 16 bytes.
  if (g.groups == 1 || taps < kManyTaps || channels * size % 16 != 0 || outputs % 4 != 0 ||
      spec.batch * spec.m * spec.k * size > kMostWindowBytes || !target_.has_product(spec))
    return false;

  const View from = padded_input(kernel, g, spec.operands);
  Shape dims{g.groups, input[0]};
  std::vector<std::int64_t> read{channels * from.strides[1], from.strides[0]};
  for (std::size_t d = 0; d < rank; ++d) {
    dims.push_back(g.output[d]);
    read.push_back(from.strides[d + 2] * g.strides[d]);
  }
  for (std::size_t d = 0; d < rank; ++d) {
    dims.push_back(g.kernel[d]);
    read.push_back(from.strides[d + 2] * g.dilations[d]);
  }
  dims.push_back(channels);
  read.push_back(from.strides[1]);
  const View windows = steps_.new_view(spec.operands, dims, ops::strides_of(dims));
  steps_.add_copy({from.buffer, from.type, from.offset, read}, windows, dims);

  const Filters filters = filters_of(kernel);
  ProductStep step;
  step.a = pointer(windows);
  step.b = pointer(steps_.constant_memory(filters.key + "|rows, channels innermost", spec.operands,
                                          [values = filters.weights, channels, taps] {
                                            const Tensor own = values();
                                            const std::int64_t k = own.shape()[0];
                                            Tensor turned(DataType::kFloat32, {k, taps, channels});
                                            const std::vector<std::int64_t> order{0, 2, 1};
                                            ops::copy_permuted(own, {k, channels, taps}, order, turned);
                                            return turned;
                                          }));
  ProductResults results;
  results.channel = 1;
  results.bias = filters.bias;
  results.view = steps_.new_view(spec.result, kernel.epilogue.domain, channels_last_strides(kernel.epilogue.domain));
  step.d = pointer(results.view);
  step.spec = spec;
  steps_.add(std::move(step));
  epilogues_.lower(kernel, results);
  return true;
}

}  // namespace ulpscope::cuda
