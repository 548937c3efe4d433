#include "graph/given_defaults.h"

#include <algorithm>
#include <utility>

#include "ulpscope/error.h"

namespace ulpscope {
namespace {

/// The body with these constants as captured values, which the layer gets as further inputs.
void give_to_body(const Network& network, Layer& layer, Subgraph& graph, std::span<const std::string> names) {
  std::vector<std::string> read;
  std::ranges::copy_if(names, std::back_inserter(read),
                       [&](const std::string& name) { return graph.network->find_default(name) != nullptr; });
  if (read.empty()) return;
  graph.network = with_inputs(*graph.network, read);
  for (const std::string& name : read) {
    const TensorId id = network.find_tensor(name);
    const auto found = std::ranges::find(layer.inputs, id);
    graph.captures.push_back(static_cast<int>(found - layer.inputs.begin()));
    if (found == layer.inputs.end()) layer.inputs.push_back(id);
  }
}

}  // namespace

std::shared_ptr<Network> with_inputs(const Network& network, std::span<const std::string> names) {
  auto result = std::make_shared<Network>(network);
  for (const std::string& name : names) {
    const DefaultValue* found = network.find_default(name);
    if (found == nullptr) throw InternalError("the constant '" + name + "' cannot be given");
    TensorInfo& info = result->tensor(found->tensor);
    info.value = {};
    info.shape = found->shape;
    info.dim_names = found->dim_names;
    result->inputs.push_back(found->tensor);
    std::erase_if(result->defaults, [&](const DefaultValue& each) { return each.tensor == found->tensor; });
  }
  result->layers.clear();
  for (const Layer& each : network.layers) {
    const bool gone =
        each.op->kind == OpKind::kConstant && each.has_one_output() && !result->tensor(each.outputs[0]).value;
    if (gone) continue;
    Layer layer = each;
    for (const auto& [name, value] : each.attributes.all()) {
      const auto* graph = std::get_if<Subgraph>(&value);
      if (graph == nullptr) continue;
      Subgraph body = *graph;
      give_to_body(*result, layer, body, names);
      layer.attributes.set(name, std::move(body));
    }
    result->layers.push_back(std::move(layer));
  }
  result->rebuild_index();
  return result;
}

}  // namespace ulpscope
