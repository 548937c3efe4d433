#include "graph/network.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <unordered_set>
#include <variant>

#include "core/file.h"
#include "core/messages.h"
#include "ulpscope/error.h"

namespace ulpscope {
namespace {

bool has_bodies(const Layer& layer) { return layer.op != nullptr && layer.op->kind == OpKind::kControl; }

}  // namespace

std::string Network::file() const {
  const auto is_source = [&](const auto& each) { return each->path() == source; };
  return std::ranges::any_of(files, is_source) ? source : std::string();
}

TensorId Network::add_tensor(TensorInfo info) {
  const TensorId id(tensors.size());
  if (!info.name.empty() && !tensor_index_.emplace(info.name, id).second)
    throw invalid_file("two values have the name '{}'", info.name);
  return tensors.add(std::move(info));
}

LayerId Network::add_layer(Layer layer) {
  const LayerId id(layers.size());
  for (const auto* ids : {&layer.inputs, &layer.outputs})
    for (TensorId tensor : present(*ids))
      if (!tensors.contains(tensor))
        throw invalid_file("layer '{}' refers to tensor {}, of {}", layer.name, tensor.number(), tensors.size());
  if (!layer_index_.emplace(layer.name, id).second) throw invalid_argument("two layers have the name '{}'", layer.name);
  for (TensorId output : present(layer.outputs)) tensor(output).producer = id;
  layers.add(std::move(layer));
  index_bodies_of(id);
  return id;
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

void Network::index_bodies_of(LayerId holder) {
  if (!has_bodies(layers[holder])) return;
  std::int32_t count = 0;
  for (const Subgraph* graph : layers[holder].attributes.graphs()) {
    const std::int32_t first = bodies_.empty() ? 0 : bodies_.back().first + bodies_.back().layers;
    bodies_.push_back({holder, count++, first, static_cast<std::int32_t>(graph->network->num_all_layers())});
  }
}

Body Network::body_at(const BodyPlace& place) const {
  std::int32_t count = 0;
  for (const auto& [name, attribute] : layers[place.holder].attributes.all())
    if (const auto* graph = std::get_if<Subgraph>(&attribute); graph != nullptr && count++ == place.graph)
      return {place.holder, name, graph, LayerId(std::ssize(layers) + place.first)};
  throw InternalError(fmt::format("layer '{}' has lost a body", layers[place.holder].name));
}

std::vector<Body> Network::bodies() const {
  std::vector<Body> result;
  for (const BodyPlace& place : bodies_) result.push_back(body_at(place));
  return result;
}

std::size_t Network::num_all_layers() const {
  return layers.size() + (bodies_.empty() ? 0 : static_cast<std::size_t>(bodies_.back().first + bodies_.back().layers));
}

void Network::own_bodies() {
  for (const BodyPlace& place : bodies_) {
    const Body body = body_at(place);
    auto own = std::make_shared<Network>(*body.graph->network);
    own->own_bodies();
    layers[place.holder].attributes.set(std::string(body.attribute), Subgraph{std::move(own), body.graph->captures});
  }
}

const Network::BodyPlace* Network::place_of(LayerId id) const {
  const auto behind = std::ranges::upper_bound(bodies_, id.number() - std::ssize(layers), {}, &BodyPlace::first);
  return behind == bodies_.begin() ? nullptr : &*std::prev(behind);
}

LayerId Network::holder_of(LayerId id) const {
  if (layers.contains(id)) return id;
  const BodyPlace* place = id == kNone ? nullptr : place_of(id);
  return place == nullptr ? LayerId(kNone) : place->holder;
}

/// REQUIRES: a body has it.
Layer& Network::layer_in_body(LayerId id) const {
  const BodyPlace* place = id == kNone ? nullptr : place_of(id);
  if (place == nullptr) throw InternalError(fmt::format("network '{}' has no layer {}", name, id.number()));
  const Body body = body_at(*place);
  return body.graph->network->layer(body.inside(id));
}

void Network::rebuild_index() {
  tensor_index_.clear();
  layer_index_.clear();
  bodies_.clear();
  for (TensorInfo& info : tensors) info.producer = kNone;
  for (TensorId i : tensors.ids())
    if (!tensors[i].name.empty()) tensor_index_.emplace(tensors[i].name, i);
  for (LayerId i : layers.ids()) {
    layer_index_.emplace(layers[i].name, i);
    index_bodies_of(i);
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
    if (!tensors.contains(id)) throw invalid_file("a network input is out of range");
    available[id] = true;
  }
  std::unordered_set<std::string_view> names;
  for (const Layer& layer : layers) {
    if (!names.insert(layer.name).second) throw invalid_file("two layers have the name '{}'", layer.name);
    for (TensorId id : present(layer.inputs)) {
      if (!tensors.contains(id)) throw invalid_file("layer '{}' reads a tensor that is out of range", layer.name);
      if (!available[id])
        throw invalid_file("layer '{}' reads '{}', which nothing before it computes", layer.name, tensor(id).name);
    }
    for (TensorId id : present(layer.outputs)) {
      if (!tensors.contains(id)) throw invalid_file("layer '{}' writes a tensor that is out of range", layer.name);
      if (available[id])
        throw invalid_file("layer '{}' writes '{}', which exists already", layer.name, tensor(id).name);
      available[id] = true;
    }
  }
  for (TensorId id : outputs)
    if (!tensors.contains(id) || !available[id])
      throw invalid_file("the network output '{}' is never computed", tensors.contains(id) ? tensor(id).name : "?");
}

}  // namespace ulpscope
