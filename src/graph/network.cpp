#include "graph/network.h"

#include <fmt/format.h>

#include <algorithm>
#include <ranges>
#include <unordered_set>
#include <variant>

#include "ulpscope/error.h"

namespace ulpscope {
namespace {

bool has_bodies(const Layer& layer) { return layer.op != nullptr && layer.op->kind == OpKind::kControl; }

}  // namespace

TensorId Network::add_tensor(TensorInfo info) {
  const TensorId id(tensors.size());
  if (!info.name.empty() && !tensor_index_.emplace(info.name, id).second)
    throw Error(ErrorCode::kInvalidFile, fmt::format("two values have the name '{}'", info.name));
  return tensors.add(std::move(info));
}

LayerId Network::add_layer(Layer layer) {
  const LayerId id(layers.size());
  for (const auto* ids : {&layer.inputs, &layer.outputs})
    for (TensorId tensor : present(*ids))
      if (!tensors.contains(tensor))
        throw Error(ErrorCode::kInvalidFile,
                    fmt::format("layer '{}' refers to tensor {}, of {}", layer.name, tensor.number(), tensors.size()));
  if (!layer_index_.emplace(layer.name, id).second)
    throw Error(ErrorCode::kInvalidArgument, fmt::format("two layers have the name '{}'", layer.name));
  for (TensorId output : present(layer.outputs)) tensor(output).producer = id;
  if (has_bodies(layer)) holders_.push_back(id);
  return layers.add(std::move(layer));
}

void Network::insert_layer(LayerId at, Layer layer) {
  layers.insert(at, std::move(layer));
  rebuild_index();
}

std::string Network::free_name(const std::string& wanted) const {
  std::string name = wanted;
  for (int n = 2; find_tensor(name) != kNone || find_layer(name) != kNone; ++n) name = fmt::format("{} {}", wanted, n);
  return name;
}

TensorId Network::find_tensor(std::string_view tensor_name) const {
  const auto found = tensor_index_.find(std::string(tensor_name));
  return found == tensor_index_.end() ? kNone : found->second;
}

LayerId Network::find_layer(std::string_view layer_name) const {
  const auto found = layer_index_.find(std::string(layer_name));
  if (found != layer_index_.end()) return found->second;
  for (const Body& body : bodies())
    if (const LayerId inside = body.graph->network->find_layer(layer_name); inside != kNone)
      return body.outside(inside);
  return kNone;
}

std::vector<Body> Network::bodies() const {
  std::vector<Body> result;
  std::size_t next = layers.size();
  for (LayerId holder : holders_)
    for (const auto& [name, attribute] : layers[holder].attributes.all())
      if (const auto* graph = std::get_if<Subgraph>(&attribute)) {
        result.push_back({holder, name, graph, LayerId(next)});
        next += graph->network->num_all_layers();
      }
  return result;
}

std::size_t Network::num_all_layers() const {
  std::size_t count = layers.size();
  for (const Body& body : bodies()) count += body.graph->network->num_all_layers();
  return count;
}

void Network::own_bodies() {
  for (LayerId holder : holders_) {
    Attributes& attributes = layers[holder].attributes;
    const Attributes before = attributes;
    for (const auto& [name, attribute] : before.all())
      if (const auto* graph = std::get_if<Subgraph>(&attribute)) {
        auto own = std::make_shared<Network>(*graph->network);
        own->own_bodies();
        attributes.set(name, Subgraph{std::move(own), graph->captures});
      }
  }
}

LayerId Network::holder_of(LayerId id) const {
  if (layers.contains(id)) return id;
  LayerId holder = kNone;
  for (const Body& body : bodies())
    if (body.first <= id) holder = body.holder;
  return holder;
}

/// REQUIRES: a body has it.
Layer& Network::layer_in_body(LayerId id) const {
  for (const Body& body : std::views::reverse(bodies()))
    if (body.first <= id) return body.graph->network->layer(body.inside(id));
  throw InternalError(fmt::format("network '{}' has no layer {}", name, id.number()));
}

void Network::rebuild_index() {
  tensor_index_.clear();
  layer_index_.clear();
  holders_.clear();
  for (TensorInfo& info : tensors) info.producer = kNone;
  for (TensorId i : tensors.ids())
    if (!tensors[i].name.empty()) tensor_index_.emplace(tensors[i].name, i);
  for (LayerId i : layers.ids()) {
    layer_index_.emplace(layers[i].name, i);
    if (has_bodies(layers[i])) holders_.push_back(i);
    for (TensorId output : present(layers[i].outputs)) tensor(output).producer = i;
  }
}

IdMap<TensorId, std::vector<LayerId>> Network::consumers() const {
  IdMap<TensorId, std::vector<LayerId>> result(tensors.size());
  for (LayerId i : layers.ids())
    for (TensorId input : present(layers[i].inputs)) {
      auto& list = result[input];
      if (list.empty() || list.back() != i) list.push_back(i);
    }
  return result;
}

bool Network::is_output(TensorId id) const { return std::ranges::find(outputs, id) != outputs.end(); }

bool Network::can_be_given(const DefaultValue& constant) const {
  const Tensor& value = tensor(constant.tensor).value;
  return value && value.place() == constant.value.place();
}

const DefaultValue* Network::find_default(std::string_view tensor_name) const {
  const auto found = std::ranges::find_if(defaults, [&](const DefaultValue& each) {
    return tensor(each.tensor).name == tensor_name && can_be_given(each);
  });
  return found == defaults.end() ? nullptr : &*found;
}

void Network::check() const {
  IdMap<TensorId, bool> available(tensors.size(), false);
  for (TensorId i : tensors.ids()) available[i] = tensors[i].producer == kNone && tensors[i].value;
  for (TensorId id : inputs) {
    if (!tensors.contains(id)) throw Error(ErrorCode::kInvalidFile, "a network input is out of range");
    available[id] = true;
  }
  std::unordered_set<std::string_view> names;
  for (const Layer& layer : layers) {
    if (!names.insert(layer.name).second)
      throw Error(ErrorCode::kInvalidFile, fmt::format("two layers have the name '{}'", layer.name));
    for (TensorId id : present(layer.inputs)) {
      if (!tensors.contains(id))
        throw Error(ErrorCode::kInvalidFile, fmt::format("layer '{}' reads a tensor that is out of range", layer.name));
      if (!available[id])
        throw Error(ErrorCode::kInvalidFile, fmt::format("layer '{}' reads '{}', which nothing before it computes",
                                                         layer.name, tensor(id).name));
    }
    for (TensorId id : present(layer.outputs)) {
      if (!tensors.contains(id))
        throw Error(ErrorCode::kInvalidFile,
                    fmt::format("layer '{}' writes a tensor that is out of range", layer.name));
      if (available[id])
        throw Error(ErrorCode::kInvalidFile,
                    fmt::format("layer '{}' writes '{}', which exists already", layer.name, tensor(id).name));
      available[id] = true;
    }
  }
  for (TensorId id : outputs)
    if (!tensors.contains(id) || !available[id])
      throw Error(ErrorCode::kInvalidFile, fmt::format("the network output '{}' is never computed",
                                                       tensors.contains(id) ? tensor(id).name : "?"));
}

}  // namespace ulpscope
