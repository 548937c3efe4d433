// Convolutions as products of matrices whose rows are windows, in a copy of these.
#include <algorithm>

#include "backend/cuda/products.h"
#include "engine/constant_inputs.h"
#include "ops/window.h"

namespace ulpscope::cuda {
namespace {

/// A channel's window of so many taps makes cuDNN slow where there are groups: the 128 of wav2vec 2.0's positions, 48
/// channels in each of 16 groups, 200 positions, take it 256 us in float16 and 944 in float32 on an H200.
constexpr std::int64_t kManyTaps = 32;
/// A copy of windows is no larger.
constexpr std::int64_t kMostWindowBytes = std::int64_t{1} << 28;

/// How elements of a view are walked through, dimension by dimension.
struct Walk {
  const View& from;
  Shape dims;
  std::vector<std::int64_t> strides;

  void add(std::int64_t size, std::int64_t stride) {
    dims.push_back(size);
    strides.push_back(stride);
  }
  /// Along the spatial dimensions, `steps` elements at a time.
  void add_spatial(const std::vector<std::int64_t>& sizes, const std::vector<std::int64_t>& steps) {
    for (std::size_t d = 0; d < sizes.size(); ++d) add(sizes[d], from.strides[d + 2] * steps[d]);
  }
  View view() const { return {from.buffer, from.type, from.offset, strides}; }
};

}  // namespace

/// A convolution by constant parameters, of numbers that are computed.
bool Convolutions::slides_over_floats(const ProductKernel& kernel) const {
  const Layer& l = layer(kernel.layer);
  return ops::is_convolution(l) && !ops::is_transposed_convolution(l) && !kernel.elements &&
         !spec_.is_constant(l.inputs[0]) && has_constant_parameters(spec_, l);
}

/// Windows that are rows of a matrix, in a copy that is smaller than what a convolution would read again and again.
/// cuDNN is slow at such strides.
bool Convolutions::lower_patches(const ProductKernel& kernel) {
  const Layer& l = layer(kernel.layer);
  const ProgramKernel& epilogue = kernel.epilogue;
  if (!slides_over_floats(kernel)) return false;
  const Shape &input = shape(l.inputs[0]), &window = shape(l.inputs[1]);
  const ops::WindowGeometry g = ops::conv_geometry(l, input, window);
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
  Walk walk{from, {}, {}};
  walk.add(input[0], from.strides[0]);
  walk.add_spatial(g.output, g.strides);
  walk.add(input[1], from.strides[1]);
  walk.add_spatial(g.kernel, g.dilations);
  const View windows =
      memory_.copied(walk.view(), walk.dims, spec.operands, kernel.operands[0].rounding, ops::strides_of(walk.dims));
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
  if (!slides_over_floats(kernel)) return false;
  const Shape &input = shape(l.inputs[0]), &weights = shape(l.inputs[1]);
  const ops::WindowGeometry g = ops::conv_geometry(l, input, weights);
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
  Walk walk{from, {}, {}};
  walk.add(g.groups, channels * from.strides[1]);
  walk.add(input[0], from.strides[0]);
  walk.add_spatial(g.output, g.strides);
  walk.add_spatial(g.kernel, g.dilations);
  walk.add(channels, from.strides[1]);
  const View windows = steps_.new_view(spec.operands, walk.dims, ops::strides_of(walk.dims));
  steps_.add_copy(walk.view(), windows, walk.dims);

  const Filters filters = filters_of(kernel);
  ProductStep step;
  step.a = pointer(windows);
  step.b = pointer(
      steps_.constant_memory(filters.key + "|rows, channels innermost", spec.operands,
                             [values = filters.weights, channels] { return channels_innermost(values(), channels); }));
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
