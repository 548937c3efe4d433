// Products of 8-bit integers with zero points by constants: convolutions of dequantized bytes, MatMulInteger,
// QLinearMatMul, ConvInteger, QLinearConv and QGemm.
#include <algorithm>
#include <cmath>

#include "backend/cpu/choices.h"
#include "backend/cpu/integer_product.h"
#include "backend/cpu/lowering.h"
#include "backend/cpu/product.h"
#include "backend/cpu/quantized_layers.h"
#include "engine/constant_inputs.h"
#include "engine/int8.h"

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

/// Convolutions of dequantized bytes. AMD EPYC (Zen 5): from so many channels on, with dot products of bytes, their
/// sums take 0.66 to 0.71 of the time of floats by one place; by 3 x 3 of three channels (27 products) 1.6.
bool is_faster_on_integers(const ConvolutionSpec& spec) {
  constexpr std::int64_t kChannels = 16, kProducts = 64;
  const std::int64_t products = num_elements(spec.kernel) / spec.kernel[0];
  if (is_depthwise(spec)) return is_faster_on_bytes(spec) && multiplies_centered_integers(products);
  if (spec.groups != 1 || (spec.input[1] < kChannels && products < kProducts) || spec.kernel[0] < kChannels)
    return false;
  return multiplies_bytes_with_zeros(products) || (multiplies_centered_integers(products) && is_faster_in_pairs(spec));
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
    const auto has_channels = [&](const Shape& s) { return count == channels && (s.empty() || s.back() == channels); };
    if (i == form.bias ? id != kNone && !has_channels(spec_.value(id).shape())
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
  if (requantized && l.input(form.out_scale) == kNone) {
    const int sums = new_slot(DataType::kInt32, shape(l.outputs[0]));
    add_step(make_matmul_integer_kernel(spec, object_cache()), inputs, {sums}, kernel.layer);
    const std::int64_t rows = *known_count(l.outputs[0]) / matrices->n;
    add_step(make_scaling_kernel(rows, *std::move(requantized)), {sums}, {out}, kernel.layer);
  } else {
    add_step(make_matmul_integer_kernel(spec, object_cache(), requantized), inputs, {out}, kernel.layer);
  }
  settle(kernel.outputs[0], kernel.layer);
  return true;
}

Layout Lowering::image_layout(TensorId id) const {
  const Shape& s = shape(id);
  const bool is_turned = (s.size() == 3 || s.size() == 4) && num_elements(s) != s[0] * s[1];
  return is_turned ? Layout::kChannelsLast : Layout::kDense;
}

/// Three ways, the fastest first: depthwise on bytes, products of bytes (weights without zero points), products of 16
/// bits on centered values, which take everything. Results of quantized layers stay channels-last, so that a chain of
/// them turns its data at the ends alone; ConvInteger stores its sums channels first, as the file has them.
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
  const bool depthwise = is_depthwise(spec);
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
  const TensorId image = layer(kernel.layer).inputs[0];
  return image_inputs(image,
                      {read(kernel.operands[0], location(image).layout, kernel.layer), input_slot(kernel, zero_input)},
                      as_bytes, kernel.layer);
}

std::vector<int> Lowering::image_inputs(TensorId image, std::vector<int> slots, bool as_bytes, LayerId reader) {
  const Shape& in = shape(image);
  const Layout from = location(image).layout;
  if (as_bytes && from == Layout::kChannelsLast && spec_.type(image) == DataType::kUInt8) return slots;
  const Shape turned{in[0], positions_of(in), in[1]};
  const int made = new_slot(as_bytes ? DataType::kUInt8 : DataType::kInt16, turned);
  if (!as_bytes) {
    add_step(make_centering_kernel(in, from), std::move(slots), {made}, reader);
    return {made};
  }
  const int zero = new_slot(DataType::kUInt8, Shape{1});
  add_step(make_unsigned_kernel(in, from), std::move(slots), {made, zero}, reader);
  return {made, zero};
}

/// A convolution of floats that DequantizeLinear makes may multiply their codes: constant int8 weights without zero
/// points, one scale for the image, one for all weights or for each output channel. Where two scales multiply to 0, to
/// a subnormal number or to infinity, sums of codes would be scaled wrongly; those layers stay on floats, as do shapes
/// on which integers are slower.
std::optional<Lowering::BytesOfConvolution> Lowering::bytes_of_convolution(const ProductKernel& kernel) const {
  const Layer& l = layer(kernel.layer);
  const Operand &x = kernel.operands[0], &w = kernel.operands[1];
  if (!ops::is_convolution(l) || ops::is_transposed_convolution(l) || kernel.elements || kernel.accumulator ||
      kernel.normalization != kNone || x != x.plain() || x.exact || x.first != Rounding::kNone ||
      w.rounding != Rounding::kNone || schedule_.storage[x.tensor] != DataType::kFloat32)
    return std::nullopt;
  const auto dequantize = [&](TensorId id) {
    const LayerId made_by = network_.tensor(id).producer;
    return made_by != kNone && ops::is_dequantize(layer(made_by)) ? made_by : LayerId{kNone};
  };
  BytesOfConvolution result{dequantize(x.tensor), dequantize(w.tensor), {}};
  if (result.x == kNone || result.w == kNone || dequantized(spec_, x.tensor)) return std::nullopt;
  const Layer &of_x = layer(result.x), &of_w = layer(result.w);
  const auto x_scale = byte_scale(of_x, 1);
  const TensorId integers = of_w.inputs[0], scales = of_w.inputs[1];
  const Shape& window = shape(l.inputs[1]);
  const DataType type = spec_.type(of_x.inputs[0]);
  if (!x_scale || spec_.is_constant(of_x.inputs[0]) || (type != DataType::kUInt8 && type != DataType::kInt8) ||
      !spec_.is_constant(integers) || spec_.type(integers) != DataType::kInt8 ||
      spec_.value(integers).shape() != window || !spec_.is_constant(scales) || spec_.type(scales) != DataType::kFloat32)
    return std::nullopt;
  if (const TensorId zeros = of_w.input(2); zeros != kNone) {
    if (!spec_.is_constant(zeros)) return std::nullopt;
    const Tensor values = spec_.value(zeros).in_memory();
    const auto all = values.values<std::int8_t>();
    if (std::ranges::any_of(all, [](std::int8_t zero) { return zero != 0; })) return std::nullopt;
  }
  const std::int64_t count = spec_.value(scales).size();
  const bool by_channel = count == window[0] && spec_.value(scales).rank() == 1 &&
                          of_w.attributes.integer("axis", 1) == 0 && of_w.attributes.integer("block_size", 0) == 0;
  if (count != 1 && !by_channel) return std::nullopt;
  const Tensor values = spec_.value(scales).in_memory();
  for (std::int64_t c = 0; c < window[0]; ++c)
    result.scales.push_back(x_scale->scale * values.data<float>()[count == 1 ? 0 : c]);
  if (std::ranges::any_of(result.scales, [](float scale) { return !std::isnormal(scale); })) return std::nullopt;
  const Shape& in = shape(l.inputs[0]);
  if (in.size() < 3 || in.size() > 4 || num_elements(in) == 0 || num_elements(window) == 0 ||
      !has_constant_parameters(spec_, l))
    return std::nullopt;
  const ConvolutionSpec spec{.input = in, .groups = l.attributes.integer("group", 1), .kernel = window};
  if (!is_faster_on_integers(spec)) return std::nullopt;
  return result;
}

bool Lowering::is_read_as_bytes(TensorId dequantized) const {
  const auto& readers = spec_.consumers[dequantized];
  return !spec_.output[dequantized] && !readers.empty() && std::ranges::all_of(readers, [&](LayerId reader) {
    const auto product = products_.find(reader);
    return product != products_.end() && std::ranges::count(layer(reader).inputs, dequantized) == 1 &&
           product->second->operands[0].tensor == dequantized && bytes_of_convolution(*product->second);
  });
}

bool Lowering::lower_dequantized_convolution(const ProductKernel& kernel, ConvolutionSpec spec) {
  const auto bytes = bytes_of_convolution(kernel);
  if (!bytes) return false;
  const Layer &of_x = layer(bytes->x), &of_w = layer(bytes->w);
  const std::string bias_key = spec.key;
  spec.type = DataType::kInt16;
  spec.key = constants_.key(of_w.inputs[0]) + "|less ";
  spec.weights = [w = spec_.value(of_w.inputs[0])] { return centered(w.in_memory(), Tensor(), 1); };
  const auto slot = [&](int input, Layout layout) {
    const TensorId id = of_x.input(input);
    return id == kNone ? -1 : read({id}, spec_.is_constant(id) ? Layout::kDense : layout, kernel.layer);
  };
  const TensorId image = of_x.inputs[0];
  SumsMaker make;
  std::vector<int> inputs;
  if (is_depthwise(spec)) {
    make = [spec, is_signed = spec_.type(image) == DataType::kInt8](const Requantization& form) {
      return make_depthwise_bytes_kernel(spec, form, is_signed);
    };
    inputs = {slot(0, Layout::kChannelsLast), slot(2, Layout::kDense)};
  } else {
    const bool by_bytes = multiplies_bytes_with_zeros(num_elements(spec.kernel) / spec.kernel[0]);
    make = [spec, by_bytes, cache = object_cache()](const Requantization& form) {
      return by_bytes ? make_byte_convolution_kernel(spec, cache, form)
                      : make_integer_convolution_kernel(spec, cache, form);
    };
    inputs = image_inputs(image, {slot(0, location(image).layout), slot(2, Layout::kDense)}, by_bytes, kernel.layer);
  }
  Results results;
  results.layout = Layout::kChannelsLast;
  results.slot = add_sums(std::move(make), std::move(inputs), kernel.epilogue.domain, kernel.layer);
  const auto channels = static_cast<std::int64_t>(bytes->scales.size());
  results.scaling.scale = Tensor::of<float>({channels}, bytes->scales);
  std::string key = bias_key;
  results.scaling.bias = constants_.convolution_bias(kernel, kernel.operands[1].rounding, key);
  lower_epilogue(kernel, results);
  return true;
}

int Lowering::input_slot(const LayerKernel& kernel, int input) {
  if (layer(kernel.layer).input(input) == kNone) return -1;
  return read_operand(kernel.layer, kernel.operands[static_cast<std::size_t>(input)], Layout::kDense);
}

}  // namespace ulpscope::cpu
