#include "engine/element_forms.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/messages.h"
#include "engine/int8.h"
#include "graph/dequantized_constant.h"
#include "ops/forms.h"
#include "ops/window.h"

namespace ulpscope {
namespace {

/// m, n and k of a matrix product, all batches of one operand apart.
struct Sizes {
  std::int64_t m = 1, n = 1, k = 1;
};

Sizes sizes_of(const Specialization& spec, const Layer& layer) {
  const Shape &a = *spec.shape(layer.inputs[0]), &b = *spec.shape(layer.inputs[1]);
  const auto ka = static_cast<std::size_t>(summed_axis(spec, layer, 0)),
             kb = static_cast<std::size_t>(summed_axis(spec, layer, 1));
  Sizes sizes{a[ka + 1 == a.size() ? a.size() - 2 : a.size() - 1], b[kb + 1 == b.size() ? b.size() - 2 : b.size() - 1],
              a[ka]};
  // Rows of all batches go by one matrix of constants.
  if (spec.is_constant(layer.inputs[1]))
    for (std::size_t d = 0; d + 2 < a.size(); ++d) sizes.m *= a[d];
  return sizes;
}

/// What TensorRT has fp8 kernels for; NVIDIA's Model Optimizer 0.47 leaves the others out, too.
std::string fp8_obstacle(const Specialization& spec, const Layer& layer) {
  constexpr std::int64_t kLeast = 16, kLargestWindow = 32;
  if (ops::is_transposed_convolution(layer)) return "transposed convolutions have no fp8 form";
  if (!ops::is_convolution(layer)) {
    const Sizes sizes = sizes_of(spec, layer);
    if (sizes.m == 1 || sizes.n == 1) return "products with a single row or column have no fp8 form";
    if (sizes.k < kLeast || sizes.n < kLeast)
      return fmt::format("fp8 needs {} columns and products per sum, it has {} and {}", kLeast, sizes.n, sizes.k);
    return {};
  }
  const Shape& weights = *spec.shape(layer.inputs[1]);
  if (layer.attributes.integer("group", 1) != 1) return "convolutions in groups have no fp8 form";
  if (weights[0] <= kLeast || weights[1] <= kLeast)
    return fmt::format("fp8 needs more than {} channels, it has {} and {}", kLeast, weights[1], weights[0]);
  if (num_elements(weights) / (weights[0] * weights[1]) > kLargestWindow)
    return fmt::format("fp8 convolutions have windows of at most {} elements", kLargestWindow);
  return {};
}

/// Weights with a scale per channel, so few in each that float32 scales would take more than 0.6 bits of a weight
/// (kernels of few channels, depthwise ones): floats of 8 bits keep their digits under one scale for all, down to
/// channels 2^11 times smaller than the largest.
bool shares_one_scale(const Specialization& spec, const Layer& layer) {
  constexpr std::int64_t kFew = 54, kMost = 1 << 18;
  constexpr float kSpread = 1024;
  const Tensor& weights = spec.value(layer.inputs[1]);
  const std::int64_t channels = output_channels(spec, layer);
  if (channels == 0 || weights.size() == 0 || weights.size() / channels >= kFew || weights.size() > kMost ||
      weights.type() != DataType::kFloat32 ||
      dequantized_weights(spec, layer.inputs[1], weight_channel_axis(spec, layer), channels))
    return false;
  const ScaleLayout layout = weight_scales(spec, layer);
  std::vector<float> largest(static_cast<std::size_t>(num_elements(layout.scales)), 0.0f);
  const Tensor values = weights.in_memory();
  for (std::int64_t i = 0; i < values.size(); ++i) {
    float& channel = largest[static_cast<std::size_t>(layout.index(i))];
    channel = std::max(channel, std::fabs(values.data<float>()[i]));
  }
  const float most = std::ranges::max(largest);
  return std::ranges::all_of(largest, [&](float each) { return each == 0 || each * kSpread >= most; });
}

/// int4 blocks divide a sum that neither the default ones nor those that come with them do.
bool fits_smaller_blocks(const Encoding& weights, std::int64_t sum) {
  return weights.format == Format::kInt4 && weights.block > 32 && sum > 0 && sum % 32 == 0 && sum % 64 != 0;
}

/// The weights that the file has behind a DequantizeLinear are what the form would make of them.
bool is_form_of_file(const Specialization& spec, const Layer& layer, const LayerForm& form) {
  const Encoding& weights = *form.weight.encoding;
  const TensorId id = layer.inputs[1];
  if (form.is_of_weights() || weights.granularity == Granularity::kBlock || format_in_file(spec, id) != weights.format)
    return false;
  return static_cast<bool>(ops::matrix_form(layer) ? dequantized_weights(spec, id, 0, 1)
                                                   : dequantized_weights(spec, id, weight_channel_axis(spec, layer),
                                                                         output_channels(spec, layer)));
}

}  // namespace

std::string form_obstacle(const Specialization& spec, LayerId id, Precision precision) {
  const LayerForm& form = form_of(precision);
  if (form.is_float()) return {};
  const Layer& layer = spec.network->layer(id);
  const auto none = [&] { return fmt::format("it has no {} form", form.name); };
  const bool product = is_product(layer.op->function);
  const auto is_unknown = [&](TensorId input) { return input != kNone && !spec.shape(input); };
  if (product && (is_unknown(layer.input(0)) || is_unknown(layer.input(1)))) return std::string(kUnknownShapes);
  if (!has_int8_form(spec, id)) return none();
  if (!form.products_only) {
    for (std::size_t i = 0; product && i < 2; ++i)
      if (const NumericFormat& in_file = format_of(format_in_file(spec, layer.inputs[i])); in_file.is_float)
        return fmt::format("the file has input {} as {} already", i, in_file.name);
    return {};
  }
  if (!product) return none();
  const bool constant = spec.is_constant(layer.inputs[1]);
  if (form.is_of_weights() && !constant) return fmt::format("{} is for constant weights", form.name);
  if (constant && is_dequantized_constant(*spec.network, layer.inputs[1]) && !is_form_of_file(spec, layer, form))
    return "the file has its weights as elements already";
  const Encoding& weights = *form.weight.encoding;
  if (weights.granularity == Granularity::kBlock) {
    if (ops::is_convolution(layer)) return fmt::format("convolutions have no {} form", form.name);
    const Sizes sizes = sizes_of(spec, layer);
    if (sizes.k == 0 || sizes.k % weights.block != 0)
      return fmt::format("its sums of {} products are no multiple of blocks of {}{}", sizes.k, weights.block,
                         fits_smaller_blocks(weights, sizes.k) ? " (--block-size 32 fits)" : "");
    return {};
  }
  for (std::size_t i = 0; i < 2; ++i)
    // Such weights beside elements of their own format would be a product of elements.
    if (const auto in_file = dequantized(spec, layer.inputs[i]);
        in_file && (in_file->elements != weights.format) == form.is_quantized())
      return fmt::format("the file has input {} as {} already", i, format_of(in_file->elements).name);
  return form.is_quantized() ? fp8_obstacle(spec, layer) : std::string();
}

std::vector<TensorId> calibrated_inputs(const Specialization& spec, LayerId id, Precision precision) {
  if (!form_of(precision).needs_calibration() || !has_form(spec, id, precision)) return {};
  std::vector<TensorId> result = quantized_inputs(spec, id);
  if (form_of(precision).products_only)
    std::erase_if(result, [&](TensorId input) { return is_made_by_softmax(spec, input); });
  return result;
}

int summed_axis(const Specialization& spec, const Layer& layer, std::size_t operand) {
  const auto form = ops::matrix_form(layer).value_or(ops::MatrixForm{});
  const auto rank = static_cast<int>(spec.shape(layer.inputs[operand])->size());
  const bool last = operand == 0 ? !form.transpose_a : form.transpose_b;
  return rank - (last ? 1 : 2);
}

Encoding encoding_of(const Specialization& spec, const Layer& layer, Precision precision, std::size_t operand,
                     DataType number, const ScaleChoice& choice) {
  const LayerForm& form = form_of(precision);
  const bool constant = spec.is_constant(layer.inputs[operand]);
  Encoding result = *(constant ? form.weight : form.activation).encoding;
  const bool matrices = ops::matrix_form(layer).has_value();
  if (result.granularity == Granularity::kBlock) {
    result.axis = summed_axis(spec, layer, operand);
    // Only int4 has float scales: of two bytes, those of the numbers beside it if these are as short.
    if (result.scale == Format::kFloat16 && number == DataType::kBFloat16) result.scale = Format::kBFloat16;
    if (has_mx_scales(result) && choice.mx == MxScaleRule::kOcp) result.rule = BlockScale::kLargestRoundedDown;
    if (constant && has_chosen_scales(result) && choice.weights != WeightScales::kAmax)
      result.rule = BlockScale::kLeastError;
  } else if (constant && (!is_product(layer.op->function) || (matrices && form.is_quantized() && form.products_only))) {
    // cuBLASLt takes scales per column for both operands or none, at a third of the speed.
    result = {.format = result.format, .granularity = Granularity::kTensor};
  } else if (constant && result.granularity == Granularity::kChannel && format_of(result.format).is_float &&
             shares_one_scale(spec, layer)) {
    result = {.format = result.format, .granularity = Granularity::kTensor};
  }
  return result;
}

std::vector<LayerId> products_with_chosen_scales(const Specialization& spec, PrecisionSet precisions) {
  std::vector<LayerId> result;
  for (const auto& [id, layer] : spec.network->layers.items()) {
    if (!is_product(layer.op->function) || layer.inputs.size() < 2 || !spec.is_constant(layer.inputs[1])) continue;
    const bool chosen = std::ranges::any_of(precisions.members(), [&, &l = id](Precision p) {
      return !is_float(p) && has_chosen_scales(*form_of(p).weight.encoding) && has_form(spec, l, p);
    });
    if (chosen) result.push_back(id);
  }
  return result;
}

IdMap<TensorId, SharedChannelWeights> find_channel_weights(const Specialization& spec, const BuildOptions& options) {
  IdMap<TensorId, SharedChannelWeights> result;
  if (options.scale_choice.weights != WeightScales::kActivations) return result;
  result.resize(spec.network->tensors.size());
  PrecisionSet precisions = options.enabled;
  precisions |= options.on_request;
  for (const LayerId id : products_with_chosen_scales(spec, precisions)) {
    const Layer& layer = spec.network->layer(id);
    SharedChannelWeights& weights = result[layer.inputs[1]];
    const auto found = options.mean_squares.find(layer.name);
    if (weights != nullptr || found == options.mean_squares.end()) continue;
    const int axis = summed_axis(spec, layer, 1);
    const Tensor& squares = found->second;
    if (squares.size() != (*spec.shape(layer.inputs[1]))[static_cast<std::size_t>(axis)])
      throw invalid_argument(
          "[build] mean squares of layer '{}': expected one for each of the {} channels that it sums over, got {}; try "
          "a search on this model",
          layer.name, (*spec.shape(layer.inputs[1]))[static_cast<std::size_t>(axis)], squares.size());
    const auto values = squares.values<float>();
    weights = std::make_shared<const ChannelWeights>(ChannelWeights{axis, {values.begin(), values.end()}});
  }
  return result;
}

SharedChannelWeights channel_weights_of(const Specialization& spec, const Layer& layer, std::size_t operand,
                                        const Encoding& encoding, const Assignment& assignment) {
  if (encoding.rule != BlockScale::kLeastError || assignment.scale_choice.weights != WeightScales::kActivations ||
      assignment.channel_weights.empty())
    return nullptr;
  const SharedChannelWeights& found = assignment.channel_weights[layer.inputs[operand]];
  // Another layer may read the constant the other way round.
  const bool fits =
      found != nullptr && found->axis == encoding.axis &&
      std::ssize(found->mean_squares) == (*spec.shape(layer.inputs[operand]))[static_cast<std::size_t>(encoding.axis)];
  return fits ? found : nullptr;
}

ScaleLayout scale_layout(const Specialization& spec, const Layer& layer, std::size_t operand,
                         const Encoding& encoding) {
  if (encoding.granularity == Granularity::kTensor) return {};
  if (encoding.granularity == Granularity::kChannel) return weight_scales(spec, layer);
  return {encoding, *spec.shape(layer.inputs[operand])};
}

bool is_made_by_softmax(const Specialization& spec, TensorId id) {
  const LayerId producer = spec.network->tensor(id).producer;
  return producer != kNone && spec.network->layer(producer).op->function == Function::kSoftmax;
}

float activation_scale(const Specialization& spec, TensorId id, const Encoding& encoding,
                       const IdMap<TensorId, float>& int8_scales) {
  // Fixed, as NVIDIA's Model Optimizer has it.
  if (format_of(encoding.format).is_float && is_made_by_softmax(spec, id)) return scale_from_int8(encoding, 1.0f / 127);
  return int8_scales.empty() ? 0.0f : scale_from_int8(encoding, int8_scales[id]);
}

}  // namespace ulpscope
