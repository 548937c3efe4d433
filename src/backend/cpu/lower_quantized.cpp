// Products of 8-bit integers with zero points by constants: MatMulInteger, QLinearMatMul, ConvInteger, QLinearConv
// and QGemm.
#include <algorithm>

#include "backend/cpu/integer_product.h"
#include "backend/cpu/lowering.h"
#include "backend/cpu/product.h"
#include "backend/cpu/quantized_layers.h"

namespace ulpscope::cpu {
namespace {

/// Bytes less their zero points: one, or one per index of what has `inner` elements behind it.
Tensor centered(const Tensor& bytes, const Tensor& zeros, std::int64_t inner) {
  Tensor result(DataType::kInt16, bytes.shape());
  const auto center = [&]<typename T>(T) {
    const T *from = bytes.data<T>(), *zero = zeros ? zeros.data<T>() : nullptr;
    const std::int64_t count = zeros ? zeros.size() : 1;
    for (std::int64_t i = 0; i < bytes.size(); ++i)
      result.data<std::int16_t>()[i] =
          static_cast<std::int16_t>(from[i] - (zero != nullptr ? zero[i / inner % count] : T{0}));
  };
  bytes.type() == DataType::kUInt8 ? center(std::uint8_t{}) : center(std::int8_t{});
  return result;
}

}  // namespace

std::optional<std::int64_t> Lowering::known_count(TensorId id) const {
  if (id == kNone || !spec_.shape(id)) return std::nullopt;
  return num_elements(shape(id));
}

ConstantSource Lowering::centered_weights(const ops::IntegerProductForm& form, const Layer& l, std::int64_t inner,
                                          std::string& key) const {
  const TensorId weights = l.inputs[form.weights], zeros = l.input(form.weights_zero);
  key = constants_.key(weights) + "|less ";
  if (zeros != kNone) key += constants_.key(zeros);
  return [w = spec_.value(weights), z = zeros == kNone ? Tensor() : spec_.value(zeros), inner] {
    return centered(w.in_memory(), z, inner);
  };
}

std::optional<Requantization> Lowering::requantization(const ops::IntegerProductForm& form, const Layer& l,
                                                       std::int64_t channels) const {
  const bool as_bytes = l.input(form.out_scale) != kNone;
  for (int i : {form.scale, form.weights_scale, form.out_scale, form.out_zero, form.bias}) {
    const TensorId id = l.input(i);
    if (id == kNone && (i == form.scale || i == form.weights_scale)) return std::nullopt;
    if (id != kNone && !spec_.is_constant(id)) return std::nullopt;
    const std::int64_t count = id == kNone ? 1 : spec_.value(id).size();
    if (i == form.bias ? id != kNone && count != channels
                       : count != 1 && (i != form.weights_scale || count != channels))
      return std::nullopt;
  }
  const auto number = [&](int i) { return spec_.value(l.inputs[i]).data<float>()[0]; };
  const Tensor& weights = spec_.value(l.inputs[form.weights_scale]);
  Requantization result;
  result.type = spec_.type(l.outputs[0]);
  for (std::int64_t c = 0; c < channels; ++c) {
    const float scale = form.factor * number(form.scale) * weights.data<float>()[weights.size() == 1 ? 0 : c];
    result.scales.push_back(as_bytes ? scale / number(form.out_scale) : scale);
  }
  result.bias.resize(static_cast<std::size_t>(channels));
  if (const TensorId bias = l.input(form.bias); bias != kNone) {
    const auto values = spec_.value(bias).in_memory();
    std::copy_n(values.data<std::int32_t>(), channels, result.bias.data());
  }
  if (const TensorId id = l.input(form.out_zero); id != kNone) {
    const Tensor zero = spec_.value(id).cast(DataType::kInt32);
    result.zero = zero.data<std::int32_t>()[0];
  }
  return result;
}

bool Lowering::has_symmetric_weights(const ops::IntegerProductForm& form, const Layer& l) const {
  const TensorId zeros = l.input(form.weights_zero);
  const bool is_unsigned = spec_.type(l.inputs[form.weights]) == DataType::kUInt8;
  if (zeros == kNone) return !is_unsigned;
  const Tensor values = spec_.value(zeros).in_memory();
  const auto* bytes = static_cast<const std::uint8_t*>(values.raw());
  return std::all_of(bytes, bytes + values.size(), [&](std::uint8_t zero) { return zero == (is_unsigned ? 128 : 0); });
}

bool Lowering::lower_integer_product(const LayerKernel& kernel) {
  const Layer& l = layer(kernel.layer);
  const auto form = ops::integer_product_form(l);
  if (!form || spec_.is_constant(l.inputs[0]) || !spec_.is_constant(l.inputs[form->weights])) return false;
  const TensorId zero = l.input(form->zero), zeros = l.input(form->weights_zero);
  if (zero != kNone && known_count(zero) != 1) return false;
  if (zeros != kNone && !spec_.is_constant(zeros)) return false;
  if (known_count(l.outputs[0]).value_or(0) == 0 || form->transpose) return false;
  return form->convolution ? lower_integer_convolution(kernel, *form) : lower_integer_matrices(kernel, *form);
}

bool Lowering::lower_integer_matrices(const LayerKernel& kernel, const ops::IntegerProductForm& form) {
  const Layer& l = layer(kernel.layer);
  const auto matrices = matrix_shape({.transpose_b = form.transpose_weights, .plain = !form.transpose_weights},
                                     shape(l.inputs[0]), shape(l.inputs[form.weights]), shape(l.outputs[0]));
  if (!matrices || matrices->k == 0 || !multiplies_centered_integers(matrices->k)) return false;
  if (const auto zeros = known_count(l.input(form.weights_zero)); zeros && *zeros != 1 && *zeros != matrices->n)
    return false;
  auto requantized = form.quantized ? requantization(form, l, matrices->n) : std::nullopt;
  if (form.quantized && !requantized) return false;
  MatMulSpec spec;
  static_cast<MatrixShape&>(spec) = *matrices;
  spec.type_a = spec_.type(l.inputs[0]);
  spec.constant_b = centered_weights(form, l, form.transpose_weights ? matrices->k : 1, spec.key_b);
  if (form.transpose_weights) spec.key_b += "|transposed";
  if (has_symmetric_weights(form, l)) spec.type_b = DataType::kInt8;
  const std::vector<int> inputs{input_slot(kernel, 0), input_slot(kernel, form.zero)};
  const int out = define(l.outputs[0], Layout::kDense);
  const int sums = requantized ? new_slot(DataType::kInt32, shape(l.outputs[0])) : out;
  add_step(make_matmul_integer_kernel(spec, object_cache()), inputs, {sums}, kernel.layer);
  const std::int64_t rows = *known_count(l.outputs[0]) / matrices->n;
  if (requantized && l.input(form.out_scale) == kNone)
    add_step(make_scaling_kernel(rows, *std::move(requantized)), {sums}, {out}, kernel.layer);
  else if (requantized)
    add_step(make_requantizing_kernel(rows, *std::move(requantized)), {sums}, {out}, kernel.layer);
  settle(kernel.outputs[0], kernel.layer);
  return true;
}

Layout Lowering::image_layout(TensorId id) const {
  const Shape& s = shape(id);
  const bool is_turned = (s.size() == 3 || s.size() == 4) && num_elements(s) != s[0] * s[1];
  return is_turned ? Layout::kChannelsLast : Layout::kDense;
}

bool Lowering::lower_integer_convolution(const LayerKernel& kernel, const ops::IntegerProductForm& form) {
  const Layer& l = layer(kernel.layer);
  const Shape &in = shape(l.inputs[0]), &weights = shape(l.inputs[form.weights]), &out = shape(l.outputs[0]);
  if (in.size() < 3 || in.size() > 4 || num_elements(in) == 0 || num_elements(weights) == 0) return false;
  const std::int64_t channels = out[1], window = num_elements(weights) / channels;
  if (const auto zeros = known_count(l.input(form.weights_zero)); zeros && *zeros != 1 && *zeros != channels)
    return false;
  const ops::WindowGeometry g = ops::conv_geometry(l, in, weights);
  auto requantized = form.quantized ? requantization(form, l, channels) : std::nullopt;
  if ((form.quantized && !requantized) || !multiplies_centered_integers(window)) return false;
  ConvolutionSpec spec{.input = in,
                       .output = out,
                       .strides = g.strides,
                       .dilations = g.dilations,
                       .pads_begin = g.pads_begin,
                       .pads_end = g.pads_end,
                       .groups = g.groups,
                       .kernel = weights,
                       .type = DataType::kInt16};
  spec.weights = centered_weights(form, l, window, spec.key);
  const bool depthwise = g.groups == in[1] && channels == in[1];
  const bool is_signed = spec_.type(l.inputs[0]) == DataType::kInt8;
  if (depthwise && requantized)
    if (auto step = make_depthwise_bytes_kernel(spec, *requantized, is_signed)) {
      const std::vector<int> inputs{read(kernel.operands[0], Layout::kChannelsLast, kernel.layer),
                                    input_slot(kernel, form.zero)};
      add_step(std::move(step), inputs, {define(l.outputs[0], image_layout(l.outputs[0]))}, kernel.layer);
      settle(kernel.outputs[0], kernel.layer);
      return true;
    }
  const bool has_bytes = !depthwise && has_symmetric_weights(form, l);
  auto by_bytes = has_bytes ? make_byte_convolution_kernel(spec, object_cache(), requantized) : nullptr;
  auto convolution = by_bytes    ? nullptr
                     : depthwise ? make_depthwise_integer_kernel(spec)
                                 : make_integer_convolution_kernel(spec, object_cache(), requantized);
  if (by_bytes == nullptr && convolution == nullptr) return false;
  std::vector<int> inputs = read_image(kernel, form.zero, by_bytes != nullptr);
  if (requantized) {
    add_step(std::move(by_bytes ? by_bytes : convolution), std::move(inputs),
             {define(l.outputs[0], image_layout(l.outputs[0]))}, kernel.layer);
  } else {
    const std::int64_t positions = num_elements(out) / out[0] / channels;
    const int sums = new_slot(DataType::kInt32, Shape{out[0], positions, channels});
    add_step(std::move(by_bytes ? by_bytes : convolution), std::move(inputs), {sums}, kernel.layer);
    add_step(make_channels_first_kernel(out[0], positions, channels), {sums}, {define(l.outputs[0], Layout::kDense)},
             kernel.layer);
  }
  settle(kernel.outputs[0], kernel.layer);
  return true;
}

std::vector<int> Lowering::read_image(const LayerKernel& kernel, int zero_input, bool as_bytes) {
  const Layer& l = layer(kernel.layer);
  const Shape& in = shape(l.inputs[0]);
  const Layout from = location(l.inputs[0]).layout;
  const std::vector<int> inputs{read(kernel.operands[0], from, kernel.layer), input_slot(kernel, zero_input)};
  if (as_bytes && from == Layout::kChannelsLast && spec_.type(l.inputs[0]) == DataType::kUInt8) return inputs;
  const Shape turned{in[0], num_elements(in) / in[0] / in[1], in[1]};
  const int image = new_slot(as_bytes ? DataType::kUInt8 : DataType::kInt16, turned);
  if (!as_bytes) {
    add_step(make_centering_kernel(in, from), inputs, {image}, kernel.layer);
    return {image};
  }
  const int zero = new_slot(DataType::kUInt8, Shape{1});
  add_step(make_unsigned_kernel(in, from), inputs, {image, zero}, kernel.layer);
  return {image, zero};
}

int Lowering::input_slot(const LayerKernel& kernel, int input) {
  if (layer(kernel.layer).input(input) == kNone) return -1;
  return read_operand(kernel.layer, kernel.operands[static_cast<std::size_t>(input)], Layout::kDense);
}

}  // namespace ulpscope::cpu
