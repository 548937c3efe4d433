#include "precision/marking.h"

#include <algorithm>

#include "graph/layer_choice.h"

namespace ulpscope {

namespace {

IdMap<LayerId, char> markable(const Network& network, const IdMap<TensorId, DataType>& types,
                              const IdMap<LayerId, char>& numeric) {
  IdMap<LayerId, char> result(network.layers.size(), 0);
  for (const auto& [l, layer] : network.layers.items()) {
    if (layer.op->kind == OpKind::kConstant || layer.op->precision == PrecisionRule::kFixed) continue;
    if (layer.op->precision == PrecisionRule::kCompute && !numeric[l]) continue;
    result[l] = std::ranges::all_of(layer.outputs, [&](TensorId id) {
      if (id == kNone) return true;
      const DataType type = types[id];
      return type == DataType::kFloat32 || type == DataType::kFloat16 || type == DataType::kBFloat16;
    });
  }
  return result;
}

}  // namespace

IdMap<LayerId, char> markable_layers(const Specialization& spec) {
  return markable(*spec.network, spec.inferred.types, spec.numeric);
}

IdMap<LayerId, char> markable_layers(const Network& network) {
  IdMap<TensorId, DataType> types;
  for (const TensorInfo& info : network.tensors) types.push_back(info.type);
  return markable(network, types, numeric_layers(network, types));
}

Requests mark_layers(const Network& network, const IdMap<LayerId, char>& markable, std::span<const int> layers,
                     DataType type) {
  Requests requested = own_requests(network);
  for (const int layer : layers)
    if (markable[LayerId(layer)]) requested[LayerId(layer)] = type;
  return requested;
}

std::vector<std::string> marked_nodes(const Network& network, const IdMap<LayerId, char>& markable,
                                      std::span<const int> layers) {
  std::vector<int> ordered(layers.begin(), layers.end());
  std::ranges::sort(ordered);
  std::vector<std::string> result;
  const auto add = [&](const std::string& name) {
    if (std::ranges::find(result, name) == result.end()) result.push_back(name);
  };
  for (const int index : ordered) {
    if (!markable[LayerId(index)]) continue;
    const Layer& layer = network.layer(LayerId(index));
    if (layer.nodes.empty()) add(layer.name);
    for (const std::string& node : layer.nodes) add(node.empty() ? layer.name : node);
  }
  return result;
}

}  // namespace ulpscope
