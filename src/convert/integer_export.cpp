#include "convert/integer_export.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "convert/casts.h"
#include "convert/lowerable.h"
#include "engine/int8.h"
#include "engine/scale_shift.h"
#include "formats/rounding.h"

namespace ulpscope {
namespace {

bool is_product(const Layer& layer) { return layer.op->kind == OpKind::kContraction; }

/// What the engine runs on integers when a DequantizeLinear says it.
bool usable(float scale) { return scale >= kSmallestScale && scale <= kLargestScale; }

/// The axis with a scale for each index; -1: one scale for all.
std::int64_t axis_of(const Specialization& spec, const Layer& layer) {
  return is_product(layer) ? static_cast<std::int64_t>(weight_channel_axis(spec, layer)) : -1;
}

ScaleLayout layout_of(const Specialization& spec, const Layer& layer) {
  return is_product(layer) ? weight_scales(spec, layer) : ScaleLayout();
}

bool is_integer_constant(const Specialization& spec, const Layer& layer, std::size_t input) {
  const TensorId id = layer.inputs[input];
  if (!is_product(layer)) return static_cast<bool>(dequantized_weights(spec, id, 0, 1));
  return static_cast<bool>(
      dequantized_weights(spec, id, weight_channel_axis(spec, layer), output_channels(spec, layer)));
}

}  // namespace

std::string integer_obstacle(const Specialization& spec, const Assignment& assignment, LayerId id, bool fixed_shapes,
                             LayerId normalization) {
  const Layer& layer = spec.network->layer(id);
  if (!has_int8_form(spec, id)) return "it has no int8 form";
  if (spec.type(layer.outputs[0]) != DataType::kFloat32) return "its types in the file are not float32";
  for (std::size_t i = 0; i < std::min<std::size_t>(layer.inputs.size(), 2); ++i) {
    const TensorId input = layer.inputs[i];
    if (input == kNone) continue;
    if (spec.type(input) != DataType::kFloat32) return "its types in the file are not float32";
    if (!spec.is_constant(input)) {
      if (!dequantized(spec, input) && (assignment.scale.empty() || !usable(assignment.scale[input])))
        return "the scale of an input is too small or too large";
      continue;
    }
    if (is_integer_constant(spec, layer, i)) continue;
    if (spec.shape_dependent[input] && !fixed_shapes) return "an operand depends on the shapes of the inputs";
    if (layer.op->function == Function::kConvTranspose && layer.attributes.integer("group", 1) > 1)
      return "DequantizeLinear has no scales for the output channels of a ConvTranspose with groups";
    const Layer* multiplied = normalization == kNone ? nullptr : &spec.network->layer(normalization);
    const Tensor values = multiplied == nullptr
                              ? spec.value(input).in_memory()
                              : scaled_weights(spec, layer, scale_shift(spec, *multiplied, Rounding::kNone).scale);
    const Tensor scales = own_scales(format_of(Format::kInt8), layout_of(spec, layer), values);
    // Of larger ones, the DequantizeLinear would make infinities.
    if (!std::ranges::all_of(scales.values<float>(), [](float s) { return usable(s) && s <= 0x1p120f; }))
      return multiplied == nullptr ? "the scale of a channel of its weights is too large"
                                   : fmt::format(
                                         "the scale of a channel of its weights, with '{}' multiplied in, is "
                                         "too large",
                                         multiplied->name);
  }
  return {};
}

TypedChanges::Quantized IntegerExport::quantize(LayerId id, std::size_t input) {
  const Layer& layer = spec_.network->layer(id);
  const auto own = weights_.find(id);
  const bool has_own = input == 1 && own != weights_.end();
  const std::int64_t axis = axis_of(spec_, layer);
  const std::pair<TensorId, std::int64_t> key{layer.inputs[input], axis};
  if (!has_own)
    if (const auto found = shared_.find(key); found != shared_.end()) return found->second;
  const Tensor values = (has_own ? own->second : spec_.value(layer.inputs[input])).in_memory();
  TypedChanges::Quantized result;
  const NumericFormat& format = format_of(Format::kInt8);
  const ScaleLayout layout = layout_of(spec_, layer);
  result.axis = std::max<std::int64_t>(axis, 0);
  result.scales = own_scales(format, layout, values);
  Tensor integers(DataType::kFloat32, values.shape());
  ulpscope::quantize(format, layout, values, result.scales, integers.data<float>(), false);
  result.integers = integers.cast(DataType::kInt8);
  ++constants_;
  per_channel_ += axis >= 0 ? 1 : 0;
  if (!has_own) shared_[key] = result;
  return result;
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
      entry = quantize(id, i);
    } else {
      if (dequantized(spec_, input)) continue;
      entry.scales = Tensor::of<float>({}, {assignment.scale[input]});
    }
    entry.layer = id;
    entry.input = i;
    changes.quantized.push_back(std::move(entry));
  }
}

}  // namespace ulpscope
