#include "engine/int8.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>

#include "graph/dequantized_constant.h"
#include "ops/forms.h"

namespace ulpscope {
namespace {

const Layer* producer_of(const Specialization& spec, TensorId id) {
  if (id == kNone || spec.is_constant(id)) return nullptr;
  const LayerId producer = spec.network->tensor(id).producer;
  return producer == kNone ? nullptr : &spec.network->layer(producer);
}

std::size_t dimensions_of(const Specialization& spec, TensorId id) {
  return spec.shape(id) ? spec.shape(id)->size() : 0;
}

bool is_constant_input(const Specialization& spec, const Layer& layer, std::size_t i) {
  return layer.input(i) != kNone && spec.is_constant(layer.inputs[i]);
}

bool is_mean(const Layer& layer) {
  return layer.op->function == Function::kReduceMean || layer.op->function == Function::kReduceSum;
}

/// Pointwise steps between the mean of the squares and its root: + epsilon, / n, max.
bool is_scalar_step(const Specialization& spec, const Layer& layer) {
  const Function op = layer.op->function;
  return (op == Function::kAdd || op == Function::kMul || op == Function::kMax || op == Function::kDiv ||
          op == Function::kClip) &&
         layer.inputs.size() > 1 && (is_constant_input(spec, layer, 0) || is_constant_input(spec, layer, 1));
}

/// The operand of a layer with one constant operand that is not the constant.
TensorId computed_operand(const Specialization& spec, const Layer& layer) {
  return is_constant_input(spec, layer, 0) && layer.inputs.size() > 1 ? layer.inputs[1] : layer.inputs[0];
}

/// The values are a mean over rows, but for scalar steps.
bool comes_from_mean(const Specialization& spec, TensorId id) {
  for (int step = 0; step < 4; ++step) {
    const Layer* layer = producer_of(spec, id);
    if (layer == nullptr) return false;
    if (is_mean(*layer)) return true;
    if (!is_scalar_step(spec, *layer)) return false;
    id = computed_operand(spec, *layer);
  }
  return false;
}

/// The values are a standard deviation: the root of a mean.
bool is_deviation(const Specialization& spec, TensorId id) {
  for (int step = 0; step < 3; ++step) {
    const Layer* layer = producer_of(spec, id);
    if (layer == nullptr) return false;
    if (layer->op->function == Function::kSqrt) return comes_from_mean(spec, layer->inputs[0]);
    if (layer->op->function == Function::kPow) {
      if (!is_constant_input(spec, *layer, 1)) return false;
      const Tensor& exponent = spec.value(layer->inputs[1]);
      return exponent.type() == DataType::kFloat32 && exponent.size() == 1 &&
             std::fabs(exponent.data<float>()[0]) == 0.5f && comes_from_mean(spec, layer->inputs[0]);
    }
    if (!is_scalar_step(spec, *layer)) return false;
    id = computed_operand(spec, *layer);
  }
  return false;
}

/// One over a standard deviation: Reciprocal(s), 1 / s, variance ^ -0.5.
bool is_inverse_deviation(const Specialization& spec, TensorId id) {
  const Layer* layer = producer_of(spec, id);
  if (layer == nullptr) return false;
  if (layer->op->function == Function::kReciprocal) return is_deviation(spec, layer->inputs[0]);
  if (layer->op->function == Function::kDiv)
    return is_constant_input(spec, *layer, 0) && is_deviation(spec, layer->inputs[1]);
  return layer->op->function == Function::kPow && is_deviation(spec, id);
}

/// The values are x / deviation: what a normalization scales and shifts next.
bool is_normalized(const Specialization& spec, TensorId id) {
  const Layer* layer = producer_of(spec, id);
  if (layer == nullptr || layer->inputs.size() < 2) return false;
  if (layer->op->function == Function::kDiv) return is_deviation(spec, layer->inputs[1]);
  if (layer->op->function != Function::kMul) return false;
  return is_inverse_deviation(spec, layer->inputs[0]) || is_inverse_deviation(spec, layer->inputs[1]);
}

/// Somebody reads the tensor as what a normalization takes the root of.
bool feeds_root(const Specialization& spec, TensorId id, int steps) {
  for (LayerId consumer : spec.consumers[id]) {
    const Layer& layer = spec.network->layer(consumer);
    if (layer.op->function == Function::kSqrt) return true;
    if (steps > 0 && is_scalar_step(spec, layer) && feeds_root(spec, layer.outputs[0], steps - 1)) return true;
  }
  return false;
}

/// An Add or Mul that is part of a normalization in pointwise layers (of LayerNorm, RMSNorm and the like).
bool is_inside_normalization(const Specialization& spec, const Layer& layer) {
  const TensorId output = layer.outputs[0];
  const bool mul = layer.op->function == Function::kMul;
  // The square, before its mean.
  if (mul && layer.inputs[0] == layer.inputs[1])
    for (LayerId consumer : spec.consumers[output])
      if (is_mean(spec.network->layer(consumer))) return true;
  // Epsilon or 1 / n, before or after the root.
  if (comes_from_mean(spec, output) && feeds_root(spec, output, 3)) return true;
  if (is_deviation(spec, output)) return true;
  if (mul && is_normalized(spec, output)) return true;
  // Scale and shift.
  const bool constant = is_constant_input(spec, layer, 0) || is_constant_input(spec, layer, 1);
  if (!constant) return false;
  const TensorId x = computed_operand(spec, layer);
  if (is_normalized(spec, x)) return true;
  const Layer* before = producer_of(spec, x);
  return !mul && before != nullptr && before->op->function == Function::kMul &&
         (is_constant_input(spec, *before, 0) || is_constant_input(spec, *before, 1)) &&
         is_normalized(spec, computed_operand(spec, *before));
}

bool is_product(const Layer& layer) { return is_product(layer.op->function); }

bool product_has_form(const Specialization& spec, const Layer& layer) {
  const TensorId a = layer.inputs[0], b = layer.inputs[1];
  if (b == kNone || spec.is_constant(a) || !spec.is_held_as_float(b) || !spec.shape(a) || !spec.shape(b)) return false;
  const bool convolution = ops::is_convolution(layer);
  if (convolution) {
    return (dimensions_of(spec, a) == 3 || dimensions_of(spec, a) == 4) && spec.is_constant(b) &&
           (layer.input(2) == kNone || spec.is_constant(layer.inputs[2]));
  }
  return dimensions_of(spec, a) >= 2 && dimensions_of(spec, b) >= 2 && dimensions_of(spec, a) <= 6 &&
         dimensions_of(spec, b) <= 6;
}

/// The layer's scale input holds ordinary numbers, whose products with 8-bit integers are exact to one rounding.
bool usable_scales(const Tensor& scales) {
  if (scales.type() != DataType::kFloat32 || scales.size() == 0) return false;
  return std::all_of(scales.values<float>().begin(), scales.values<float>().end(),
                     [](float s) { return s >= kSmallestScale && s <= kLargestScale; });
}

/// The DequantizeLinear that makes this tensor, with constant float scales, of the tensor or per channel, and no zero
/// point.
const Layer* plain_dequantize(const Specialization& spec, TensorId id) {
  if (id == kNone || !spec.is_held_as_float(id)) return nullptr;
  const LayerId producer = spec.network->tensor(id).producer;
  if (producer == kNone) return nullptr;
  const Layer& layer = spec.network->layer(producer);
  if (!ops::is_dequantize(layer) || !is_constant_input(spec, layer, 1) || !usable_scales(spec.value(layer.inputs[1])) ||
      layer.attributes.integer("block_size", 0) != 0)
    return nullptr;
  const DataType source = spec.type(layer.inputs[0]);
  if (source != DataType::kInt8 && source != DataType::kUInt8 && source != DataType::kFloat8E4M3) return nullptr;
  return is_symmetric(spec, layer) ? &layer : nullptr;
}

/// A DequantizeLinear whose numbers a tensor has.
struct Behind {
  const Layer* layer = nullptr;  ///< A plain_dequantize(), or null.
  /// Per dimension of the tensor, that of the DequantizeLinear; empty where they do not correspond.
  std::vector<std::int64_t> axes;
};

/// Looks through layers that move the numbers: exporters write the weights of a Linear with a Transpose behind.
Behind behind(const Specialization& spec, TensorId id) {
  Behind result;
  result.axes.resize(id == kNone ? 0 : dimensions_of(spec, id));
  std::iota(result.axes.begin(), result.axes.end(), 0);
  while (id != kNone) {
    result.layer = plain_dequantize(spec, id);
    const LayerId producer = spec.network->tensor(id).producer;
    if (result.layer != nullptr || producer == kNone || !spec.network->layer(producer).op->moves_values) break;
    const Layer& layer = spec.network->layer(producer);
    if (const auto order = ops::permutation(layer, static_cast<std::int64_t>(result.axes.size())))
      for (std::int64_t& axis : result.axes) axis = (*order)[static_cast<std::size_t>(axis)];
    else
      result.axes.clear();
    id = layer.input(0);
  }
  return result;
}

/// The DequantizeLinear that makes this tensor, or what it is the transpose of, has a scale per block.
bool comes_from_blocks(const Specialization& spec, TensorId id) {
  const LayerId producer = spec.network->tensor(id).producer;
  if (producer == kNone) return false;
  const Layer& layer = spec.network->layer(producer);
  if (layer.op->function == Function::kTranspose) return comes_from_blocks(spec, layer.inputs[0]);
  return ops::is_dequantize(layer) && layer.attributes.integer("block_size", 0) != 0;
}

/// A product of elements in blocks, as the file has it: what it reads comes out of a DequantizeLinear with a scale per
/// block, but for constant weights, of any scales. It computes with the numbers that these are. Of one that
/// has_int8_form().
bool is_block_product(const Specialization& spec, const Layer& layer) {
  return std::ranges::all_of(std::span(layer.inputs).first(2), [&](TensorId input) {
    return spec.is_constant(input) ? is_dequantized_constant(*spec.network, input) : comes_from_blocks(spec, input);
  });
}

/// All elements are one number times powers of two.
bool differ_by_powers_of_two(const Tensor& value) {
  if (value.type() != DataType::kFloat32 || value.size() == 0) return false;
  int exponent = 0;
  const float first = std::frexp(value.data<float>()[0], &exponent);
  return std::ranges::all_of(value.values<float>(), [&](float v) { return std::frexp(v, &exponent) == first; });
}

}  // namespace

bool is_symmetric(const Specialization& spec, const Layer& layer) {
  if (layer.input(2) == kNone) return true;
  const Tensor& zero = spec.value(layer.inputs[2]);
  const auto* bytes = static_cast<const unsigned char*>(zero.raw());
  return zero && std::all_of(bytes, bytes + zero.bytes(), [](unsigned char b) { return b == 0; });
}

bool has_int8_form(const Specialization& spec, LayerId id) {
  const Layer& layer = spec.network->layer(id);
  if (!spec.numeric[id] || spec.folded[id] || layer.op->precision != PrecisionRule::kCompute ||
      layer.input(0) == kNone || !layer.has_one_output())
    return false;
  if (!spec.is_held_as_float(layer.outputs[0]) || !spec.is_held_as_float(layer.inputs[0])) return false;
  const Function op = layer.op->function;
  if (op == Function::kAveragePool || op == Function::kGlobalAveragePool) return !spec.is_constant(layer.inputs[0]);
  if (is_product(layer)) return layer.inputs.size() > 1 && product_has_form(spec, layer);
  if ((op != Function::kAdd && op != Function::kMul) || layer.inputs.size() != 2 || layer.inputs[1] == kNone)
    return false;
  // A factor or summand of one element is a step of its neighbor's epilogue, with nothing to gain from integers; so
  // are factors that differ by powers of two.
  for (TensorId input : layer.inputs)
    if (spec.is_constant(input) &&
        (spec.value(input).size() == 1 || (op == Function::kMul && differ_by_powers_of_two(spec.value(input)))))
      return false;
  return spec.is_held_as_float(layer.inputs[1]) && spec.biased[id] == kNone && !is_inside_normalization(spec, layer);
}

std::vector<TensorId> quantized_inputs(const Specialization& spec, LayerId id) {
  std::vector<TensorId> result;
  if (!has_int8_form(spec, id)) return result;
  const Layer& layer = spec.network->layer(id);
  for (std::size_t i = 0; i < std::min<std::size_t>(layer.inputs.size(), 2); ++i) {
    const TensorId input = layer.inputs[i];
    if (input != kNone && !spec.is_constant(input) && std::ranges::find(result, input) == result.end())
      result.push_back(input);
  }
  return result;
}

std::vector<TensorId> int8_tensors(const Specialization& spec) {
  std::vector<TensorId> result;
  for (LayerId l : spec.network->layers.ids()) {
    const std::vector<TensorId> inputs = quantized_inputs(spec, l);
    result.insert(result.end(), inputs.begin(), inputs.end());
  }
  std::ranges::sort(result);
  result.erase(std::unique(result.begin(), result.end()), result.end());
  return result;
}

std::optional<Quantization> dequantized(const Specialization& spec, TensorId id) {
  if (id == kNone || spec.is_constant(id)) return std::nullopt;
  const Layer* layer = behind(spec, id).layer;
  if (layer == nullptr) return std::nullopt;
  const Tensor& scales = spec.value(layer->inputs[1]);
  if (scales.size() != 1) return std::nullopt;
  return Quantization{scales.data<float>()[0], format_of(spec.type(layer->inputs[0]))->id};
}

Tensor dequantized_weights(const Specialization& spec, TensorId id, std::size_t axis, std::int64_t channels) {
  const auto& [layer, axes] = behind(spec, id);
  if (layer == nullptr || !spec.is_constant(id) || spec.type(layer->inputs[0]) == DataType::kUInt8) return {};
  const Tensor& scales = spec.value(layer->inputs[1]);
  if (scales.size() == 1) {
    Tensor result(DataType::kFloat32, {channels});
    std::fill_n(result.data<float>(), channels, scales.data<float>()[0]);
    return result;
  }
  std::int64_t own = layer->attributes.integer("axis", 1);
  if (own < 0) own += static_cast<std::int64_t>(dimensions_of(spec, layer->outputs[0]));
  if (axis >= axes.size() || own != axes[axis] || scales.size() != channels) return {};
  return scales.reshaped({channels});
}

Format format_in_file(const Specialization& spec, TensorId id) {
  const Layer* layer = behind(spec, id).layer;
  return layer == nullptr ? Format::kInt8 : format_of(spec.type(layer->inputs[0]))->id;
}

bool is_integer_product(const Specialization& spec, LayerId id) {
  const Layer& layer = spec.network->layer(id);
  if (!is_product(layer) || !has_int8_form(spec, id) || !dequantized(spec, layer.inputs[0])) return false;
  const TensorId b = layer.inputs[1];
  const bool floats = format_of(format_in_file(spec, layer.inputs[0])).is_float;
  if (format_of(format_in_file(spec, b)).is_float != floats) return false;
  if (!spec.is_constant(b)) return dequantized(spec, b).has_value();
  return static_cast<bool>(
      dequantized_weights(spec, b, weight_channel_axis(spec, layer), output_channels(spec, layer)));
}

bool reads_integers(const Specialization& spec, LayerId id) {
  const Layer& layer = spec.network->layer(id);
  bool any = false;
  for (std::size_t i = 0; i < std::min<std::size_t>(layer.inputs.size(), 2); ++i)
    any = any || dequantized(spec, layer.inputs[i]).has_value();
  if (!any || !has_int8_form(spec, id)) return false;
  if (is_product(layer)) return is_integer_product(spec, id);
  // Others read numbers of float formats, and of narrower floats.
  if (format_of(format_in_file(spec, layer.inputs[0])).is_float || spec.type(layer.outputs[0]) != DataType::kFloat32)
    return false;
  for (std::size_t i = 0; i < std::min<std::size_t>(layer.inputs.size(), 2); ++i) {
    const TensorId input = layer.inputs[i];
    if (plain_dequantize(spec, input) == nullptr ||
        (spec.is_constant(input) ? !dequantized_weights(spec, input, 0, 1) : !dequantized(spec, input)))
      return false;
  }
  return true;
}

LayerId storing_cast(const Specialization& spec, LayerId product) {
  if (!is_product(spec.network->layer(product)) ||
      spec.type(spec.network->layer(product).outputs[0]) != DataType::kFloat32)
    return kNone;
  const LayerId bias = spec.bias[product];
  const TensorId result = spec.network->layer(bias == kNone ? product : bias).outputs[0];
  const auto& readers = spec.consumers[result];
  if (spec.output[result] || readers.size() != 1) return kNone;
  const Layer& cast = spec.network->layer(readers[0]);
  if (cast.op->function != Function::kCast || !cast.op->domain.empty()) return kNone;
  const DataType type = spec.type(cast.outputs[0]);
  if (type != DataType::kFloat16 && type != DataType::kBFloat16) return kNone;
  const bool is_of_elements = is_integer_product(spec, product) ||
                              (has_int8_form(spec, product) && is_block_product(spec, spec.network->layer(product)));
  return is_of_elements ? readers[0] : kNone;
}

LayerId product_of_cast(const Specialization& spec, LayerId cast) {
  const Layer& layer = spec.network->layer(cast);
  if (layer.op->function != Function::kCast || !layer.op->domain.empty() || layer.inputs[0] == kNone) return kNone;
  const LayerId producer = spec.network->tensor(layer.inputs[0]).producer;
  if (producer == kNone || spec.network->layer(producer).outputs.empty()) return kNone;
  for (const LayerId product : {producer, spec.product_of_bias(producer)})
    if (product != kNone && storing_cast(spec, product) == cast) return product;
  return kNone;
}

std::size_t weight_channel_axis(const Specialization& spec, const Layer& layer) {
  const Function op = layer.op->function;
  if (op == Function::kConv) return 0;
  if (op == Function::kConvTranspose) return 1;
  const std::size_t rank = dimensions_of(spec, layer.inputs[1]);
  const bool transposed = op == Function::kGemm && layer.attributes.integer("transB", 0) != 0;
  return rank - (transposed ? 2 : 1);
}

std::int64_t output_channels(const Specialization& spec, const Layer& layer) {
  const Shape& weights = *spec.shape(layer.inputs[1]);
  const std::int64_t channels = weights[weight_channel_axis(spec, layer)];
  return ops::is_transposed_convolution(layer) ? channels * layer.attributes.integer("group", 1) : channels;
}

ScaleLayout weight_scales(const Specialization& spec, const Layer& layer) {
  const Shape& weights = *spec.shape(layer.inputs[1]);
  ScaleLayout result({.granularity = Granularity::kChannel, .axis = static_cast<int>(weight_channel_axis(spec, layer))},
                     weights);
  // The groups of a transposed convolution lie behind each other, each with channels of its own.
  if (ops::is_transposed_convolution(layer)) result.rows = weights[0] / layer.attributes.integer("group", 1);
  result.scales = {output_channels(spec, layer)};
  return result;
}

}  // namespace ulpscope
