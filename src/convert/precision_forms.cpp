#include "convert/precision_forms.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "engine/assign.h"
#include "graph/layer_choice.h"

namespace ulpscope {
namespace {

bool has_choice(const LayerPlace& place) { return place.numeric() && has_precision(place.layer()); }

/// The ONNX nodes of layers that stay in float32.
std::vector<std::string> kept_nodes(const Specialization& spec, const Assignment& assignment) {
  std::vector<std::string> names;
  for (const LayerPlace& place : all_layers(spec))
    if (has_choice(place) && assignment.precision[place.id] == Precision::kFP32)
      names.insert(names.end(), place.layer().nodes.begin(), place.layer().nodes.end());
  return names;
}

/// The layer computes in the narrow type that the file has it in, whatever is enabled.
bool is_as_in_file(const LayerPlace& place, const Assignment& assignment) {
  return narrow_type_in_file(*place.spec, place.inside) == storage_of(assignment.precision[place.id]);
}

/// Layers outside of bodies that move values and were asked to store them in a type, or stay in float32 for the file.
std::vector<std::pair<std::string, std::string>> asked_movements(const Specialization& spec,
                                                                 const Assignment& assignment) {
  std::vector<std::pair<std::string, std::string>> layers;
  if (assignment.asked.empty()) return layers;
  for (const Layer& layer : spec.network->layers) {
    if (layer.op->precision != PrecisionRule::kMovement) continue;
    for (TensorId output : present(layer.outputs))
      if (spec.type(output) == DataType::kFloat32 && assignment.asked[output] != DataType::kUndefined) {
        layers.emplace_back(layer.name, name_of(assignment.asked[output]));
        break;
      }
  }
  return layers;
}

/// What a weakly typed network is asked for.
struct Constraints {
  std::vector<std::pair<std::string, std::string>> layers;    ///< With TensorRT's name of the type.
  std::vector<std::pair<std::string, std::string>> left_out;  ///< In formats that such networks do not have.
};

/// Of layers that stay in float32 or were asked for in a type; others take the lowest one that is allowed.
Constraints constraints_of(const Specialization& spec, const Assignment& assignment, const Requests& requested) {
  Constraints result{asked_movements(spec, assignment), {}};
  for (const LayerPlace& place : all_layers(spec)) {
    const LayerForm& form = form_of(assignment.precision[place.id]);
    if (!has_choice(place) || is_as_in_file(place, assignment)) continue;
    if (!form.is_weakly_typed())
      result.left_out.emplace_back(place.layer().name, form.name);
    else if (requested[place.id] || form.precision == Precision::kFP32)
      // TensorRT takes tf32 for products in float32.
      result.layers.emplace_back(place.layer().name,
                                 form.type == DataType::kUndefined ? name_of(form.stored) : form.request());
  }
  return result;
}

/// A name as a regular expression that matches it alone.
std::string escaped(const std::string& name) {
  std::string result;
  for (char c : name) {
    if (std::string_view(R"(.^$*+?()[]{}|\)").find(c) != std::string_view::npos) result += '\\';
    result += c;
  }
  return result;
}

}  // namespace

std::string layer_precisions_form(const Specialization& spec, const Assignment& assignment) {
  std::string text;
  for (const LayerPlace& place : all_layers(spec))
    if (has_choice(place) && !is_as_in_file(place, assignment))
      text += fmt::format("{}:{}\n", place.layer().name, form_of(assignment.precision[place.id]).request());
  for (const auto& [name, type] : asked_movements(spec, assignment)) text += fmt::format("{}:{}\n", name, type);
  return text;
}

std::string postprocess_script(const Specialization& spec, const Assignment& assignment, const Requests& requested,
                               std::string_view flags) {
  const Constraints constraints = constraints_of(spec, assignment, requested);
  std::string text = fmt::format(
      "\"\"\"Sets precisions of layers in a weakly typed network (TensorRT up to 10): postprocess(network).\n\n"
      "polygraphy run MODEL --trt{} --precision-constraints obey --trt-network-postprocess-script THIS_FILE\n"
      "\"\"\"\n\nimport tensorrt as trt\n\n",
      flags);
  if (!constraints.left_out.empty()) text += "# Left out, since only typed models have their formats:\n";
  for (const auto& [name, format] : constraints.left_out)
    text += fmt::format("#   {}: {}\n", nlohmann::json(name).dump(), format);
  text += "PRECISIONS = {\n";
  for (const auto& [name, type] : constraints.layers)
    text += fmt::format("    {}: trt.{},\n", nlohmann::json(name).dump(), type);
  text +=
      "}\n\n\ndef postprocess(network):\n    \"\"\"Sets the precisions of layers; those in float32 hand out float32, "
      "too.\"\"\"\n"
      "    for index in range(network.num_layers):\n        layer = network.get_layer(index)\n"
      "        if layer.name not in PRECISIONS:\n            continue\n"
      "        layer.precision = PRECISIONS[layer.name]\n"
      "        if layer.precision != trt.float32:\n            continue\n"
      "        for output in range(layer.num_outputs):\n"
      "            if layer.get_output(output).dtype in (trt.float32, trt.float16):\n"
      "                layer.set_output_type(output, trt.float32)\n";
  return text;
}

std::string exclusions(const Specialization& spec, const Assignment& assignment) {
  const std::vector<std::string> kept = kept_nodes(spec, assignment);
  nlohmann::json json;
  json["nodes_to_exclude"] = nlohmann::json::array();
  for (const std::string& name : kept) json["nodes_to_exclude"].push_back(escaped(name));
  json["node_block_list"] = kept;
  return json.dump(2) + "\n";
}

}  // namespace ulpscope
