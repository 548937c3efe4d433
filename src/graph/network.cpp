#include "graph/network.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_set>

#include "ulpscope/error.h"

namespace ulpscope {
namespace {

bool has(const std::vector<TensorInfo>& tensors, TensorId id) {
  return id >= 0 && static_cast<std::size_t>(id) < tensors.size();
}

}  // namespace

TensorId Network::add_tensor(TensorInfo info) {
  const TensorId id = static_cast<TensorId>(tensors.size());
  if (!info.name.empty() && !tensor_index_.emplace(info.name, id).second)
    throw Error(ErrorCode::kInvalidFile, fmt::format("two values have the name '{}'", info.name));
  tensors.push_back(std::move(info));
  return id;
}

LayerId Network::add_layer(Layer layer) {
  const LayerId id = static_cast<LayerId>(layers.size());
  for (const auto* ids : {&layer.inputs, &layer.outputs})
    for (TensorId tensor : *ids)
      if (tensor != kNone && !has(tensors, tensor))
        throw Error(ErrorCode::kInvalidFile,
                    fmt::format("layer '{}' refers to tensor {}, of {}", layer.name, tensor, tensors.size()));
  if (!layer_index_.emplace(layer.name, id).second)
    throw Error(ErrorCode::kInvalidArgument, fmt::format("two layers have the name '{}'", layer.name));
  for (TensorId output : layer.outputs)
    if (output != kNone) tensor(output).producer = id;
  layers.push_back(std::move(layer));
  return id;
}

TensorId Network::find_tensor(std::string_view tensor_name) const {
  const auto found = tensor_index_.find(std::string(tensor_name));
  return found == tensor_index_.end() ? kNone : found->second;
}

LayerId Network::find_layer(std::string_view layer_name) const {
  const auto found = layer_index_.find(std::string(layer_name));
  return found == layer_index_.end() ? kNone : found->second;
}

void Network::rebuild_index() {
  tensor_index_.clear();
  layer_index_.clear();
  for (TensorInfo& info : tensors) info.producer = kNone;
  for (std::size_t i = 0; i < tensors.size(); ++i)
    if (!tensors[i].name.empty()) tensor_index_.emplace(tensors[i].name, static_cast<TensorId>(i));
  for (std::size_t i = 0; i < layers.size(); ++i) {
    layer_index_.emplace(layers[i].name, static_cast<LayerId>(i));
    for (TensorId output : layers[i].outputs)
      if (output != kNone) tensor(output).producer = static_cast<LayerId>(i);
  }
}

std::vector<std::vector<LayerId>> Network::consumers() const {
  std::vector<std::vector<LayerId>> result(tensors.size());
  for (std::size_t i = 0; i < layers.size(); ++i)
    for (TensorId input : layers[i].inputs) {
      if (input == kNone) continue;
      auto& list = result[static_cast<std::size_t>(input)];
      if (list.empty() || list.back() != static_cast<LayerId>(i)) list.push_back(static_cast<LayerId>(i));
    }
  return result;
}

bool Network::is_output(TensorId id) const { return std::find(outputs.begin(), outputs.end(), id) != outputs.end(); }

void Network::check() const {
  const auto in_range = [&](TensorId id) { return has(tensors, id); };
  std::vector<bool> available(tensors.size(), false);
  for (std::size_t i = 0; i < tensors.size(); ++i) available[i] = tensors[i].producer == kNone && tensors[i].value;
  for (TensorId id : inputs) {
    if (!in_range(id)) throw Error(ErrorCode::kInvalidFile, "a network input is out of range");
    available[static_cast<std::size_t>(id)] = true;
  }
  std::unordered_set<std::string_view> names;
  for (const Layer& layer : layers) {
    if (!names.insert(layer.name).second)
      throw Error(ErrorCode::kInvalidFile, fmt::format("two layers have the name '{}'", layer.name));
    for (TensorId id : layer.inputs) {
      if (id == kNone) continue;
      if (!in_range(id))
        throw Error(ErrorCode::kInvalidFile, fmt::format("layer '{}' reads a tensor that is out of range", layer.name));
      if (!available[static_cast<std::size_t>(id)])
        throw Error(ErrorCode::kInvalidFile, fmt::format("layer '{}' reads '{}', which nothing before it computes",
                                                         layer.name, tensor(id).name));
    }
    for (TensorId id : layer.outputs) {
      if (id == kNone) continue;
      if (!in_range(id))
        throw Error(ErrorCode::kInvalidFile,
                    fmt::format("layer '{}' writes a tensor that is out of range", layer.name));
      if (available[static_cast<std::size_t>(id)])
        throw Error(ErrorCode::kInvalidFile,
                    fmt::format("layer '{}' writes '{}', which exists already", layer.name, tensor(id).name));
      available[static_cast<std::size_t>(id)] = true;
    }
  }
  for (TensorId id : outputs)
    if (!in_range(id) || !available[static_cast<std::size_t>(id)])
      throw Error(ErrorCode::kInvalidFile,
                  fmt::format("the network output '{}' is never computed", in_range(id) ? tensor(id).name : "?"));
}

}  // namespace ulpscope
