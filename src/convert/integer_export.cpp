#include "convert/integer_export.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "convert/casts.h"
#include "convert/lowerable.h"
#include "engine/element_forms.h"
#include "engine/int8.h"
#include "engine/scale_shift.h"
#include "formats/rounding.h"
#include "graph/dequantized_constant.h"
#include "ulpscope/log.h"

namespace ulpscope {
namespace {

bool is_product(const Layer& layer) { return layer.op->kind == OpKind::kContraction; }

/// What the engine runs on integers when a DequantizeLinear says it.
bool usable(float scale) { return scale >= kSmallestScale && scale <= kLargestScale; }

/// How the layer reads an operand in a precision, or in int8 where the file says so.
Encoding encoding_for(const Specialization& spec, const Layer& layer, Precision precision, std::size_t input,
                      DataType number, const ScaleChoice& choice) {
  return encoding_of(spec, layer, is_float(precision) ? Precision::kINT8 : precision, input, number, choice);
}

/// The axis with a scale for each index, or of blocks; -1: one scale for all.
std::int64_t axis_of(const Specialization& spec, const Layer& layer, const Encoding& encoding) {
  switch (encoding.granularity) {
    case Granularity::kBlock:
      return encoding.axis;
    case Granularity::kChannel:
      return static_cast<std::int64_t>(weight_channel_axis(spec, layer));
    default:
      return -1;
  }
}

ScaleLayout layout_of(const Specialization& spec, const Layer& layer, std::size_t input, const Encoding& encoding) {
  return is_product(layer) ? scale_layout(spec, layer, input, encoding) : ScaleLayout();
}

bool all_finite(const Tensor& values) {
  return std::ranges::all_of(values.values<float>(), [](float x) { return std::isfinite(x); });
}

/// Of these scales of blocks, those that would be 0 if the smallest did not take their place.
std::int64_t count_smallest(Encoding encoding, const ScaleLayout& layout, const Tensor& values, const Tensor& scales) {
  constexpr float kSmallest = 0x1p-9f;  // Of E4M3, which scales under a second one are.
  if (std::ranges::none_of(scales.values<float>(), [](float scale) { return scale == kSmallest; })) return 0;
  encoding.rule = BlockScale::kLargest;
  const Quantized rounded = quantize(encoding, layout, values, {.keep_small = false});
  return std::ranges::count(rounded.scales.values<float>(), 0.0f);
}

bool is_integer_constant(const Specialization& spec, const Layer& layer, std::size_t input) {
  const TensorId id = layer.inputs[input];
  if (!is_product(layer)) return static_cast<bool>(dequantized_weights(spec, id, 0, 1));
  return static_cast<bool>(
      dequantized_weights(spec, id, weight_channel_axis(spec, layer), output_channels(spec, layer)));
}

std::string activation_obstacle(const Specialization& spec, const Assignment& assignment, TensorId input,
                                const Encoding& encoding) {
  if (encoding.granularity == Granularity::kBlock) {
    const bool has_operator = encoding.second_scale || encoding.format == Format::kFloat8E4M3;
    return has_operator
               ? std::string()
               : fmt::format(
                     "neither ONNX nor TensorRT has a form for activations in {}, only for weights (--weights-only)",
                     to_string(encoding));
  }
  if (dequantized(spec, input) || (format_of(encoding.format).is_float && is_made_by_softmax(spec, input))) return {};
  if (assignment.scale.empty() || !usable(assignment.scale[input]))
    return "the scale of an input is too small or too large";
  return {};
}

/// `multiplied`: the BatchNormalization in it, or null.
std::string constant_obstacle(const Specialization& spec, const Layer& layer, std::size_t i, const Encoding& encoding,
                              const Layer* multiplied) {
  const Tensor values = multiplied == nullptr
                            ? spec.value(layer.inputs[i]).in_memory()
                            : scaled_weights(spec, layer, scale_shift(spec, *multiplied, Rounding::kNone).scale);
  if (encoding.granularity == Granularity::kBlock)
    return all_finite(values) ? std::string() : "its weights hold infinities or NaN";
  const Tensor scales = own_scales(format_of(encoding.format), layout_of(spec, layer, i, encoding), values);
  // Of larger ones, the DequantizeLinear would make infinities.
  if (std::ranges::all_of(scales.values<float>(), [](float s) { return usable(s) && s <= 0x1p120f; })) return {};
  return multiplied == nullptr
             ? "the scale of a channel of its weights is too large"
             : fmt::format("the scale of a channel of its weights, with '{}' multiplied in, is too large",
                           multiplied->name);
}

}  // namespace

std::string integer_obstacle(const Specialization& spec, const Assignment& assignment, LayerId id, bool fixed_shapes,
                             LayerId normalization) {
  const Layer& layer = spec.network->layer(id);
  const Precision precision = assignment.precision[id];
  if (std::string reason = form_obstacle(spec, id, precision); !reason.empty()) return reason;
  if (spec.type(layer.outputs[0]) != DataType::kFloat32) return "its types in the file are not float32";
  for (std::size_t i = is_of_weights(precision) ? 1 : 0; i < std::min<std::size_t>(layer.inputs.size(), 2); ++i) {
    const TensorId input = layer.inputs[i];
    if (input == kNone) continue;
    if (spec.type(input) != DataType::kFloat32) return "its types in the file are not float32";
    const Encoding encoding = encoding_for(spec, layer, precision, i, assignment.int8_output, assignment.scale_choice);
    std::string reason;
    if (!spec.is_constant(input)) {
      reason = activation_obstacle(spec, assignment, input, encoding);
    } else if (!is_integer_constant(spec, layer, i)) {
      if (spec.shape_dependent[input] && !fixed_shapes) return "an operand depends on the shapes of the inputs";
      if (layer.op->function == Function::kConvTranspose && layer.attributes.integer("group", 1) > 1)
        return "DequantizeLinear has no scales for the output channels of a ConvTranspose with groups";
      reason = constant_obstacle(spec, layer, i, encoding,
                                 normalization == kNone ? nullptr : &spec.network->layer(normalization));
    }
    if (!reason.empty()) return reason;
  }
  return {};
}

TypedChanges::Quantized IntegerExport::quantize(const Assignment& assignment, LayerId id, std::size_t input,
                                                Precision precision, DataType number) {
  const Layer& layer = spec_.network->layer(id);
  const auto own = weights_.find(id);
  const bool has_own = input == 1 && own != weights_.end();
  const Encoding encoding = encoding_for(spec_, layer, precision, input, number, assignment.scale_choice);
  const std::int64_t axis = axis_of(spec_, layer, encoding);
  const std::tuple key{layer.inputs[input], precision, axis, number};
  if (!has_own)
    if (const auto found = shared_.find(key); found != shared_.end()) return found->second;
  const Tensor values = (has_own ? own->second : spec_.value(layer.inputs[input])).in_memory();
  TypedChanges::Quantized result;
  ScaleRules rules;
  const SharedChannelWeights weighted = channel_weights_of(spec_, layer, input, encoding, assignment);
  if (weighted != nullptr) rules.weights = weighted->mean_squares;
  Quantized made = ulpscope::quantize(encoding, layout_of(spec_, layer, input, encoding), values, rules);
  if (encoding.second_scale) {
    block_scales_ += made.scales.size();
    smallest_scales_ += count_smallest(encoding, layout_of(spec_, layer, input, encoding), values, made.scales);
  }
  result.axis = std::max<std::int64_t>(axis, 0);
  result.type = format_of(encoding.format).type;
  result.elements = made.elements.cast(result.type);  // A byte each, for as long as the model is written and proven.
  result.scales = std::move(made.scales);
  result.scale_type = format_of(encoding.scale).type;
  if (encoding.second_scale) result.second = made.second;
  if (encoding.granularity == Granularity::kBlock) result.block = encoding.block;
  result.turns = result.block != 0 && is_storage_only(result.scale_type) && axis + 1 < result.elements.rank();
  ++constants_;
  per_channel_ += encoding.granularity == Granularity::kChannel ? 1 : 0;
  if (!has_own) shared_[key] = result;
  return result;
}

void IntegerExport::add_weights(const Assignment& assignment, Precision precision, DataType number, LayerId id,
                                TypedChanges& changes) {
  // What the file has as elements stays so.
  if (is_dequantized_constant(*spec_.network, spec_.network->layer(id).inputs[1])) return;
  TypedChanges::Quantized entry = quantize(assignment, id, 1, precision, number);
  entry.layer = id;
  entry.input = 1;
  entry.number = number;
  changes.quantized.push_back(std::move(entry));
}

bool IntegerExport::read_narrow_alone(const Typing& typing, TensorId id) const {
  for (std::size_t o = 0; o < spec_.network->outputs.size(); ++o)
    if (spec_.network->outputs[o] == id && typing.outputs[o] == DataType::kFloat32) return false;
  const auto is_narrow = [](DataType type) { return type == DataType::kFloat16 || type == DataType::kBFloat16; };
  return std::ranges::all_of(spec_.consumers[id], [&](LayerId reader) {
    const Layer& layer = spec_.network->layer(reader);
    if (layer.op->function == Function::kCast && is_narrow(spec_.type(layer.outputs[0]))) return true;
    for (std::size_t i = 0; i < layer.inputs.size(); ++i)
      if (layer.inputs[i] == id && !is_narrow(typing.reads[reader][i].type)) return false;
    return true;
  });
}

void IntegerExport::add(const Assignment& assignment, const Readings& readings, LayerId id, TypedChanges& changes) {
  const Layer& layer = spec_.network->layer(id);
  const LayerId bias = spec_.bias[id];
  const bool leaves_to_bias = bias != kNone && readings[bias] == Reading::kBias;
  if (const DataType type = assignment.stored_by(id); !leaves_to_bias && type != DataType::kFloat32)
    changes.stored.emplace_back(id, type);
  if (is_product(layer)) {
    const LayerId last = leaves_to_bias ? bias : id;
    const TensorId result = spec_.network->layer(last).outputs[0];
    if (assignment.stored_by(last) == DataType::kFloat32 && read_narrow_alone(changes.typing, result))
      changes.copied.push_back(last);
  }
  if (readings[id] == Reading::kBias) return;
  for (std::size_t i = 0; i < std::min<std::size_t>(layer.inputs.size(), 2); ++i) {
    const TensorId input = layer.inputs[i];
    if (input == kNone) continue;
    TypedChanges::Quantized entry;
    if (spec_.is_constant(input)) {
      if (is_integer_constant(spec_, layer, i)) continue;
      entry = quantize(assignment, id, i, assignment.precision[id], DataType::kFloat32);
      // TensorRT's parser refuses E8M0 as the type of a constant, and reads the codes.
      if (entry.type == DataType::kFloat8E4M3 && entry.scale_type == DataType::kFloat8E8M0)
        entry.scale_type = DataType::kUInt8;
    } else {
      const Encoding encoding =
          encoding_for(spec_, layer, assignment.precision[id], i, DataType::kFloat32, assignment.scale_choice);
      if (encoding.granularity == Granularity::kTensor && dequantized(spec_, input)) continue;
      const float scale = activation_scale(spec_, input, encoding, assignment.scale);
      entry.type = format_of(encoding.format).type;
      if (encoding.rule == BlockScale::kLargestRoundedDown)
        log_once(
            LogLevel::kWarning,
            "[convert] --mx-scale-rule ocp: the weights have such scales; activations are quantized by TensorRT's "
            "TRT_MXFP8DynamicQuantize, whose rounding of scales is not documented: what is proven here holds if it "
            "rounds down");
      if (encoding.second_scale) entry.second = scale;
      if (encoding.granularity == Granularity::kBlock) {
        entry.axis = encoding.axis;
        entry.block = encoding.block;
        entry.turns = encoding.axis + 1 < static_cast<std::int64_t>(spec_.shape(input)->size());
      } else {
        entry.scales = Tensor::of<float>({}, {scale});
      }
    }
    entry.layer = id;
    entry.input = i;
    changes.quantized.push_back(std::move(entry));
  }
}

}  // namespace ulpscope
