#include "convert/obstacles.h"

#include <fmt/format.h>

#include <algorithm>

#include "convert/integer_export.h"
#include "convert/lowerable.h"
#include "engine/assign.h"
#include "graph/inference.h"
#include "graph/layer_form.h"
#include "graph/stashed_outputs.h"
#include "onnx/type_support.h"

namespace ulpscope {
namespace {

constexpr char kInFunction[] = "it is inside of a model-local function or of a SequenceMap, which stays as it is";

/// What the outputs of the layer are when its float operands have that type.
bool outputs_follow(const Specialization& spec, const Layer& layer, DataType type) {
  std::vector<InferContext::Input> inputs(layer.inputs.size());
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const TensorId tensor = layer.inputs[i];
    if (tensor == kNone) continue;
    inputs[i].present = true;
    inputs[i].type = is_lowerable(spec.type(tensor)) && !layer.op->is_parameter(i) ? type : spec.type(tensor);
    inputs[i].shape = spec.shape(tensor) ? &*spec.shape(tensor) : nullptr;
    inputs[i].value = spec.is_constant(tensor) ? &spec.value(tensor) : nullptr;
  }
  const auto outputs = infer_layer(layer, inputs);
  for (std::size_t o = 0; o < outputs.size() && o < layer.outputs.size(); ++o)
    if (layer.outputs[o] != kNone && !is_stashed(layer, o) && is_lowerable(spec.type(layer.outputs[o])) &&
        outputs[o].type != type)
      return false;
  return true;
}

bool has_fixed_inputs(const Network& network) {
  return std::ranges::all_of(network.inputs, [&](TensorId id) {
    const auto& shape = network.tensor(id).shape;
    return shape && std::find(shape->begin(), shape->end(), -1) == shape->end();
  });
}

}  // namespace

Obstacles::Obstacles(const Specialization& spec, const IdMap<LayerId, char>& frozen)
    : spec_(spec), frozen_(frozen), fixed_shapes_(has_fixed_inputs(*spec.network)) {
  for (const LayerPlace& place : all_layers(spec)) places_.emplace(place.id, place);
}

DataType Obstacles::narrow_type_in_file(LayerId id) const {
  const LayerPlace& place = places_.at(id);
  return ulpscope::narrow_type_in_file(*place.spec, place.inside);
}

std::string Obstacles::in_type(LayerId id, DataType type) const {
  const LayerPlace& place = places_.at(id);
  const Layer& layer = place.layer();
  if (frozen_[id]) return kInFunction;
  if (const DataType own = narrow_type_in_file(id); own != DataType::kUndefined && own != type)
    return fmt::format("the file has its outputs in {}", name_of(own));
  if (!onnx_accepts("", "Cast", opset_, type)) return fmt::format("opset {} has no {}", opset_, name_of(type));
  if (!onnx_accepts(layer.op->domain, layer.op->name, opset_, type)) {
    const int since = onnx_accepts_since(layer.op->domain, layer.op->name, opset_, type);
    if (onnx_defines_in_float(layer.op->domain, layer.op->name, opset_, type))
      return fmt::format(
          "ONNX defines {} at opset {} by a function with constants in float32, which onnx.checker refuses for {}",
          layer.op->name, opset_, name_of(type));
    return fmt::format(
        "ONNX has no {} {} at opset {}{}", name_of(type), layer.op->name, opset_,
        since > kNewestOpset
            ? fmt::format(" (it has one since opset {}, which TensorRT and ONNX Runtime do not load)", since)
            : "");
  }
  // These say their type themselves, and are told another one.
  if (layer.op->function == Function::kCast || layer.op->fills) return {};
  if (!outputs_follow(*place.spec, layer, type)) return fmt::format("not all of its outputs can be {}", name_of(type));
  return {};
}

std::string Obstacles::in_elements(LayerId id, const Assignment& assignment, LayerId normalization) const {
  const LayerForm& form = form_of(assignment.precision[id]);
  if (frozen_[id]) return kInFunction;
  if (opset_ < form.opset)
    return fmt::format("opset {} has no DequantizeLinear {}", opset_,
                       form.weight.encoding->granularity == Granularity::kBlock ? "of such blocks" : "per channel");
  return integer_obstacle(spec_, assignment, id, fixed_shapes_, normalization);
}

}  // namespace ulpscope
