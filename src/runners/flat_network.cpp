#include "runners/flat_network.h"

#include <algorithm>

namespace ulpscope {

FlatNetwork::FlatNetwork(const Network& network) : network_(network), graph_of_(network.num_all_layers(), 0) {
  Numbers numbers(network.tensors.size());
  for (const TensorId id : network.tensors.ids()) {
    numbers[id] = id.number();
    tensors_.push_back({&network, id, kNone});
  }
  visit(network, 0, kNone, std::move(numbers));
}

void FlatNetwork::visit(const Network& graph, std::int64_t first, LayerId holder, Numbers numbers) {
  const std::size_t index = graphs_.size();
  graphs_.push_back(std::move(numbers));
  std::vector<Body> bodies = graph.bodies();
  // Bodies of one layer are in the order of their attributes' names.
  std::ranges::stable_sort(bodies, [](const Body& a, const Body& b) {
    return a.holder != b.holder ? a.holder < b.holder : a.attribute > b.attribute;
  });
  auto body = bodies.begin();
  for (const LayerId id : graph.layers.ids()) {
    const LayerId outside(first + id.number());
    const LayerId outermost = holder == kNone ? outside : holder;
    for (; body != bodies.end() && body->holder == id; ++body)
      visit(*body->graph->network, first + body->first.number(), outermost,
            number_body(*body, graph.layers[id], outermost, graphs_[index]));
    graph_of_[outside] = index;
    layers_.push_back(outside);
  }
}

FlatNetwork::Numbers FlatNetwork::number_body(const Body& body, const Layer& layer, LayerId holder,
                                              const Numbers& around) {
  const Network& graph = *body.graph->network;
  Numbers numbers(graph.tensors.size(), -1);
  const std::vector<int>& captures = body.graph->captures;
  const std::size_t formal = graph.inputs.size() - captures.size();
  for (std::size_t i = 0; i < captures.size(); ++i)
    numbers[graph.inputs[formal + i]] = around[layer.inputs[static_cast<std::size_t>(captures[i])]];
  for (const TensorId id : graph.tensors.ids()) {
    if (numbers[id] >= 0) continue;
    numbers[id] = static_cast<std::int64_t>(tensors_.size());
    tensors_.push_back({&graph, id, holder});
  }
  return numbers;
}

std::vector<std::int64_t> FlatNetwork::numbers(LayerId id, std::vector<TensorId> Layer::* which) const {
  std::vector<std::int64_t> result;
  for (const TensorId tensor : network_.layer(id).*which)
    result.push_back(tensor == kNone ? -1 : graphs_[graph_of_[id]][tensor]);
  return result;
}

}  // namespace ulpscope
