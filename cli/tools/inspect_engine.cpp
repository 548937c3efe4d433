#include "tools/inspect_engine.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "compare/array_text.h"
#include "engine/option_names.h"
#include "tools/inspect_text.h"

namespace ulpscope::cli {
namespace {

using Json = nlohmann::ordered_json;

struct Totals {
  double microseconds = 0;
  std::int64_t weight_bytes = 0, output_bytes = 0;
};

Totals totals_of(const std::vector<Engine::LayerReport>& layers) {
  Totals totals;
  for (const Engine::LayerReport& layer : layers) {
    totals.microseconds += layer.microseconds;
    totals.weight_bytes += layer.weight_bytes;
    totals.output_bytes += layer.output_bytes;
  }
  return totals;
}

std::vector<std::pair<std::string, std::size_t>> precision_counts(const std::vector<Engine::LayerReport>& layers) {
  std::vector<std::pair<std::string, std::size_t>> counts;
  for (const Engine::LayerReport& layer : layers) {
    auto found = std::ranges::find(counts, layer.precision, &std::pair<std::string, std::size_t>::first);
    if (found == counts.end()) found = counts.insert(counts.end(), {layer.precision, 0});
    ++found->second;
  }
  return counts;
}

std::vector<std::string> bindings_text(const std::vector<Binding>& bindings) {
  std::vector<std::string> entries;
  for (const Binding& binding : bindings)
    entries.push_back(tensor_text(binding.name, name_of(binding.type), binding.shape ? to_string(*binding.shape) : ""));
  return entries;
}

std::vector<std::string> tensors_text(const std::vector<Engine::TensorReport>& tensors) {
  std::vector<std::string> entries;
  for (const Engine::TensorReport& tensor : tensors)
    entries.push_back(tensor_text((tensor.weight ? "Weight | " : "") + tensor.name, name_of(tensor.storage),
                                  tensor.shape ? to_string(*tensor.shape) : ""));
  return entries;
}

std::string layers_text(const Engine& engine, const std::vector<Engine::LayerReport>& layers, const InspectShow& show) {
  std::string text;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const Engine::LayerReport& layer = layers[i];
    text += layer_text("Layer", i, layer.name, layer.op, tensors_text(layer.inputs), tensors_text(layer.outputs));
    std::string about = "---- Precision ----\n";
    about += fmt::format("Precision = {}{}\n", layer.precision, layer.reason.empty() ? "" : ": " + layer.reason);
    if (!layer.group.empty()) about += fmt::format("Group = {}\n", layer.group);
    if (!layer.tactic.empty()) about += fmt::format("Tactic = {}\n", layer.tactic);
    if (layer.microseconds > 0) about += fmt::format("Time = {:.4g} us (the whole group)\n", layer.microseconds);
    about += fmt::format("Memory = {} bytes of weights, {} bytes of outputs\n", layer.weight_bytes, layer.output_bytes);
    if (show.attributes && !layer.nodes.empty()) about += fmt::format("Nodes = {}\n", fmt::join(layer.nodes, ", "));
    text += indent_block(about) + "\n";
    if (show.weights) {
      for (const auto* tensors : {&layer.inputs, &layer.outputs}) {
        for (const Engine::TensorReport& tensor : *tensors) {
          const TensorId id = engine.network().find_tensor(tensor.name);
          const bool own = tensors == &layer.outputs;  // of a Constant layer
          if (id == kNone || !engine.network().tensor(id).value || !(tensor.weight || own)) continue;
          text += indent_block(fmt::format("Weight | {} | Values:\n{}", tensor.name,
                                           indent_block(array_text(engine.network().tensor(id).value)))) +
                  "\n";
        }
      }
    }
    text += "\n";
  }
  return text;
}

Json shape_json(const std::optional<Shape>& shape) { return shape ? Json(*shape) : Json(nullptr); }

Json bindings_json(const std::vector<Binding>& bindings) {
  Json json = Json::array();
  for (const Binding& binding : bindings)
    json.push_back({{"name", binding.name}, {"type", name_of(binding.type)}, {"shape", shape_json(binding.shape)}});
  return json;
}

Json tensors_json(const std::vector<Engine::TensorReport>& tensors) {
  Json json = Json::array();
  for (const Engine::TensorReport& tensor : tensors)
    json.push_back({{"name", tensor.name},
                    {"storage", name_of(tensor.storage)},
                    {"shape", shape_json(tensor.shape)},
                    {"weight", tensor.weight}});
  return json;
}

}  // namespace

std::string engine_text(const Engine& engine, const InspectShow& show) {
  const std::vector<Engine::LayerReport> layers = engine.report();
  const Totals totals = totals_of(layers);
  const std::vector<std::string> allowed = enabled_precisions(engine.options());
  std::string text = fmt::format(
      "Name: {} | Target: {} | Precisions: {}\n\n", engine.network().name, engine.options().target,
      engine.options().strongly_typed ? "as in the file"
                                      : fmt::format("fp32{}{}", allowed.empty() ? "" : ", ", fmt::join(allowed, ", ")));
  const std::vector<std::string> inputs = bindings_text(engine.inputs()), outputs = bindings_text(engine.outputs());
  text += fmt::format("---- {} Engine Input(s) ----\n{}\n\n", inputs.size(), braces(inputs));
  text += fmt::format("---- {} Engine Output(s) ----\n{}\n\n", outputs.size(), braces(outputs));
  if (layers.empty())
    return text + "The build waits for input shapes (dynamic dimensions): give --input-shapes or a profile.\n";
  text += fmt::format(
      "---- Memory ----\nWeights: {} bytes on the target\nStored outputs of groups: {} bytes on the target, all "
      "together\nEmulation: {} bytes of activations at once\n\n",
      totals.weight_bytes, totals.output_bytes, engine.arena_bytes());
  text += fmt::format("---- Time ----\n{:.4g} us estimated on the target\n\n", totals.microseconds);
  std::vector<std::string> counts;
  for (const auto& [precision, count] : precision_counts(layers))
    counts.push_back(fmt::format("{} {}", count, precision));
  text += fmt::format("---- {} Layer(s): {} ----\n", layers.size(), fmt::join(counts, ", "));
  if (show.layers) text += layers_text(engine, layers, show);
  return stripped(text);
}

Json engine_json(const Engine& engine) {
  const std::vector<Engine::LayerReport> layers = engine.report();
  const Totals totals = totals_of(layers);
  Json json{{"kind", "engine"},
            {"name", engine.network().name},
            {"target", engine.options().target},
            {"precisions", enabled_precisions(engine.options())},
            {"strongly_typed", engine.options().strongly_typed},
            {"inputs", bindings_json(engine.inputs())},
            {"outputs", bindings_json(engine.outputs())},
            {"microseconds", totals.microseconds},
            {"weight_bytes", totals.weight_bytes},
            {"output_bytes", totals.output_bytes},
            {"arena_bytes", engine.arena_bytes()},
            {"layers", Json::array()}};
  for (const Engine::LayerReport& layer : layers)
    json["layers"].push_back({{"name", layer.name},
                              {"op", layer.op},
                              {"nodes", layer.nodes},
                              {"precision", layer.precision},
                              {"reason", layer.reason},
                              {"group", layer.group},
                              {"tactic", layer.tactic},
                              {"microseconds", layer.microseconds},
                              {"weight_bytes", layer.weight_bytes},
                              {"output_bytes", layer.output_bytes},
                              {"inputs", tensors_json(layer.inputs)},
                              {"outputs", tensors_json(layer.outputs)}});
  return json;
}

}  // namespace ulpscope::cli
