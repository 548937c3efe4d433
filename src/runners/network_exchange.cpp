#include "runners/network_exchange.h"

#include <fmt/format.h>

#include <algorithm>
#include <queue>
#include <unordered_map>
#include <unordered_set>

#include "core/messages.h"
#include "graph/inference.h"
#include "runners/flat_network.h"
#include "ulpscope/error.h"

namespace ulpscope {
namespace {

constexpr std::int64_t kFoldedElements = 1 << 16;

Value type_value(DataType type) { return type == DataType::kUndefined ? Value() : Value(name_of(type)); }

Value id_value(TensorId id) { return id == kNone ? Value() : Value(std::int64_t{id.number()}); }

Value numbers_value(const std::vector<std::int64_t>& numbers) {
  Value::Array result;
  for (const std::int64_t number : numbers) result.push_back(number < 0 ? Value() : Value(number));
  return result;
}

template <typename T>
Value ids_value(const std::vector<T>& ids) {
  Value::Array result;
  for (const T id : ids) result.push_back(id_value(id));
  return result;
}

template <typename... T>
[[noreturn]] void fail(fmt::format_string<T...> text, T&&... values) {
  throw Error(ErrorCode::kScript, "[script] network: " + fmt::format(text, std::forward<T>(values)...));
}

std::optional<DataType> requested_type(const Value& value) {
  if (value.is_null()) return std::nullopt;
  const auto type = data_type_from_name(value.text());
  if (!type) fail("expected a type name, got '{}'", value.text());
  return type;
}

Attribute attribute_of(const std::string& name, const Value& value) {
  if (value.is_tensor()) return value.tensor().clone();
  if (value.is_string()) return value.text();
  if (!value.is_array()) {
    if (std::holds_alternative<double>(value.variant())) return static_cast<float>(value.real());
    return value.integer();
  }
  const Value::Array& items = value.array();
  if (!items.empty() && items.front().is_string()) return value.strings();
  const bool real =
      std::ranges::any_of(items, [](const Value& item) { return std::holds_alternative<double>(item.variant()); });
  if (!real) return value.shape();
  std::vector<float> numbers;
  for (const Value& item : items) numbers.push_back(static_cast<float>(item.real()));
  if (numbers.empty()) fail("the attribute '{}' is empty", name);
  return numbers;
}

/// Builds a network from a base and a script's description of its changes.
class Composer {
 public:
  Composer(const Network* base, const Value& description, const OpRegistry& ops, bool for_shapes)
      : description_(description), ops_(ops), for_shapes_(for_shapes), network_(std::make_shared<Network>()) {
    if (base != nullptr) {
      *network_ = *base;
      flat_.emplace(*base);
      bodies_begin_ = static_cast<std::int64_t>(base->tensors.size());
      bodies_end_ = static_cast<std::int64_t>(flat_->tensors().size());
    }
    opset_ = static_cast<int>(description["opset"].integer());
  }

  std::shared_ptr<Network> compose() {
    Network& network = *network_;
    if (description_["name"].is_string()) network.name = description_["name"].text();
    rename_tensors();
    add_tensors();
    change_layers();
    if (owns_bodies_) rebuild_bodies(*network_);
    for (const Value& layer : description_["added_layers"].array()) add_layer(layer);
    network.inputs = ids(description_["inputs"]);
    for (const auto& [id, shape] : stand_ins_) network.inputs.push_back(id);
    network.outputs = ids(description_["outputs"]);
    if (network.outputs.empty() && !for_shapes_)
      fail("expected at least one output, got none; try network.mark_output(tensor)");
    sort_layers();
    name_everything();
    network.rebuild_index();
    network.check();
    infer_types(network);
    declare_types();
    return network_;
  }

  /// Shapes of the network's inputs, after compose(); -1 where the script gave -1. Nothing where one has no rank.
  std::optional<std::vector<Shape>> input_shapes() const {
    std::vector<Shape> result;
    for (const TensorId id : network_->inputs) {
      const auto stand_in = stand_ins_.find(id);
      const auto& shape = network_->tensor(id).shape;
      if (stand_in == stand_ins_.end() && !shape) return std::nullopt;
      result.push_back(stand_in != stand_ins_.end() ? stand_in->second : *shape);
    }
    return result;
  }

 private:
  TensorId id_of(const Value& value) const {
    if (value.is_null()) return kNone;
    std::int64_t id = value.integer();
    if (is_in_body(id)) {
      const FlatNetwork::TensorPlace& place = flat_->tensors()[static_cast<std::size_t>(id)];
      fail("expected a tensor outside of bodies, got '{}', which lies in a body of '{}'; try an output of that layer",
           place.info().name, network_->layer(place.holder).name);
    }
    if (id >= bodies_end_) id -= bodies_end_ - bodies_begin_;
    if (id < 0 || id >= static_cast<std::int64_t>(network_->tensors.size())) fail("there is no tensor {}", id);
    return TensorId(id);
  }

  /// Of FlatNetwork's numbers, in which scripts name tensors; those that they add follow.
  bool is_in_body(std::int64_t number) const { return number >= bodies_begin_ && number < bodies_end_; }

  std::vector<TensorId> ids(const Value& value) const {
    std::vector<TensorId> result;
    for (const Value& item : value.array()) result.push_back(id_of(item));
    return result;
  }

  void rename_tensors() {
    for (const Value& change : description_["changed_tensors"].array()) {
      const TensorId id = id_of(change["id"]);
      network_->tensor(id).name = change["name"].text();
      if (const auto type = requested_type(change["dtype"])) declared_[id] = *type;
    }
  }

  void add_tensors() {
    for (const Value& entry : description_["new_tensors"].array()) {
      const TensorId id(network_->tensors.size());
      TensorInfo info;
      info.name = entry["name"].text();
      if (const auto type = requested_type(entry["dtype"])) {
        info.type = *type;
        declared_[id] = *type;
      }
      if (entry["shape"].is_array()) info.shape = entry["shape"].shape();
      if (entry["value"].is_tensor()) {
        info.value = entry["value"].tensor().clone();  // the frame's memory holds much more
        info.type = info.value.type();
        info.shape = info.value.shape();
      }
      // A constant that was left out because only shapes are asked for.
      if (for_shapes_ && info.shape && info.name.empty() && !info.value) stand_ins_[id] = *info.shape;
      network_->tensors.push_back(std::move(info));
    }
  }

  void request(Layer& layer, const Value& entry) {
    layer.precision = requested_type(entry["precision"]);
    layer.output_types.clear();
    for (const Value& type : entry["output_types"].array()) layer.output_types.push_back(requested_type(type));
    const auto open = [](const auto& type) { return !type.has_value(); };
    if (std::ranges::all_of(layer.output_types, open)) layer.output_types.clear();
  }

  void change_layers() {
    for (const Value& change : description_["changed_layers"].array()) {
      const std::int64_t id = change["id"].integer();
      if (id < 0 || id >= static_cast<std::int64_t>(network_->num_all_layers())) fail("there is no layer {}", id);
      if (!network_->layers.contains(LayerId(id))) {
        change_in_body(LayerId(id), change);
        continue;
      }
      Layer& layer = network_->layers[LayerId(id)];
      layer.name = change["name"].text();
      request(layer, change);
      layer.inputs = ids(change["inputs"]);
      for (std::size_t i = 0; i < layer.inputs.size(); ++i) layer.inputs[i] = readable(layer, i);
    }
  }

  /// A layer of a body may have other types and another name, but reads what it does in the model.
  void change_in_body(LayerId id, const Value& change) {
    if (!std::exchange(owns_bodies_, true)) network_->own_bodies();
    Layer& layer = network_->layer(id);
    std::vector<std::int64_t> inputs;
    for (const Value& input : change["inputs"].array()) inputs.push_back(input.is_null() ? -1 : input.integer());
    if (inputs != flat_->inputs(id))
      throw unsupported(
          "[script] layer '{}': expected the inputs that the model gives it, since it lies in a body of '{}', got "
          "others",
          layer.name, network_->layer(network_->holder_of(id)).name);
    if (const std::string& name = change["name"].text(); name != layer.name) {
      if (network_->find_layer(name) != kNone) fail("expected different names of layers, got '{}' twice", name);
      renamed_in_bodies_.push_back(name);
      layer.name = name;
    }
    request(layer, change);
  }

  static void rebuild_bodies(const Network& network) {
    for (const Body& body : network.bodies()) {
      rebuild_bodies(*body.graph->network);
      body.graph->network->rebuild_index();
    }
  }

  /// An input that the operator may read: values of scripts become Constant layers where it reads no weight.
  TensorId readable(const Layer& layer, std::size_t index) {
    const TensorId id = layer.inputs[index];
    if (id == kNone || !network_->tensor(id).value || network_->tensor(id).producer != kNone) return id;
    if (layer.op->is_weight(index)) return id;
    Layer constant = new_layer("Constant", layer.name);
    constant.outputs = {id};
    network_->tensor(id).producer = LayerId(network_->layers.size());
    pending_.push_back(std::move(constant));
    return id;
  }

  Layer new_layer(const std::string& op, const std::string& where) const {
    Layer layer;
    layer.op = ops_.find("", op);
    if (layer.op == nullptr)
      throw unsupported("[script] layer '{}': expected an operator that ulpscope has, got '{}'", where, op);
    layer.opset = opset_;
    return layer;
  }

  void add_layer(const Value& entry) {
    const std::string& name = entry["name"].text();
    const Value::Array& operators = entry["operators"].array();
    for (std::size_t i = 0; i < operators.size(); ++i) {
      const Value& node = operators[i];
      const std::string& op = node["op"].text();
      Layer layer = new_layer(op, name);
      const bool last = i + 1 == operators.size();
      layer.name = last ? name : fmt::format("{}/{}_{}", name, op, i);
      layer.nodes = {name};
      layer.inputs = ids(node["inputs"]);
      layer.outputs = ids(node["outputs"]);
      while (!layer.inputs.empty() && layer.inputs.back() == kNone) layer.inputs.pop_back();
      name_new_tensors(layer);
      if (op == "Constant")
        set_constant(layer, node["attributes"]);
      else
        for (const auto& [key, value] : node["attributes"].map()) layer.attributes.set(key, attribute_of(key, value));
      request(layer, entry);
      if (!last) layer.output_types.clear();
      for (std::size_t k = 0; k < layer.inputs.size(); ++k) layer.inputs[k] = readable(layer, k);
      if (op == "Constant" && stand_ins_.count(layer.outputs[0]) != 0) continue;
      add_pending();
      for (TensorId output : present(layer.outputs))
        network_->tensor(output).producer = LayerId(network_->layers.size());
      network_->layers.push_back(std::move(layer));
    }
    add_pending();
  }

  void add_pending() {
    for (Layer& layer : pending_) network_->layers.push_back(std::move(layer));
    pending_.clear();
  }

  void set_constant(const Layer& layer, const Value& attributes) {
    TensorInfo& info = network_->tensor(layer.outputs[0]);
    if (attributes["value"].is_tensor()) {
      info.value = attributes["value"].tensor().clone();
      info.type = info.value.type();
      info.shape = info.value.shape();
    } else {
      info.type = requested_type(attributes["dtype"]).value_or(DataType::kFloat32);
      stand_ins_[layer.outputs[0]] = attributes["shape"].shape();
    }
  }

  void name_new_tensors(const Layer& layer) {
    for (std::size_t i = 0; i < layer.inputs.size(); ++i)
      if (layer.inputs[i] != kNone && network_->tensor(layer.inputs[i]).name.empty())
        network_->tensor(layer.inputs[i]).name = fmt::format("{}_input_{}", layer.name, i);
    for (std::size_t i = 0; i < layer.outputs.size(); ++i)
      if (layer.outputs[i] != kNone && network_->tensor(layer.outputs[i]).name.empty())
        network_->tensor(layer.outputs[i]).name = layer.name + "_output";
  }

  /// Constants that became layers are named after their tensor, as initializers of a model are.
  void name_everything() {
    std::unordered_set<std::string> taken;
    for (const Layer& layer : network_->layers)
      if (!layer.name.empty() && !taken.insert(layer.name).second)
        fail("expected different names of layers, got '{}' twice", layer.name);
    for (const std::string& name : renamed_in_bodies_)
      if (!taken.insert(name).second) fail("expected different names of layers, got '{}' twice", name);
    for (Layer& layer : network_->layers) {
      if (!layer.name.empty()) continue;
      const std::string& stem = network_->tensor(layer.outputs[0]).name;
      layer.name = stem;
      for (int i = 1; !taken.insert(layer.name).second; ++i) layer.name = fmt::format("{}_{}", stem, i);
      layer.nodes = {layer.name};
    }
    std::unordered_set<std::string_view> tensors;
    for (const TensorInfo& info : network_->tensors)
      if (!info.name.empty() && !tensors.insert(info.name).second)
        fail("expected different names of tensors, got '{}' twice", info.name);
  }

  /// Producers before consumers; otherwise the order that the layers have.
  void sort_layers() {
    auto& layers = network_->layers;
    std::unordered_map<TensorId, LayerId> producer;
    for (LayerId i : layers.ids())
      for (TensorId id : present(layers[i].outputs)) producer[id] = i;
    IdMap<LayerId, std::vector<LayerId>> users(layers.size());
    IdMap<LayerId, std::size_t> waits_for(layers.size(), 0);
    for (LayerId i : layers.ids()) {
      std::unordered_set<LayerId> before;
      for (const TensorId id : layers[i].inputs)
        if (const auto found = producer.find(id); id != kNone && found != producer.end()) before.insert(found->second);
      for (const LayerId other : before) users[other].push_back(i);
      waits_for[i] = before.size();
    }
    std::priority_queue<LayerId, std::vector<LayerId>, std::greater<>> ready;
    for (LayerId i : layers.ids())
      if (waits_for[i] == 0) ready.push(i);
    IdMap<LayerId, Layer> sorted;
    sorted.reserve(layers.size());
    while (!ready.empty()) {
      const LayerId next = ready.top();
      ready.pop();
      for (const LayerId user : users[next])
        if (--waits_for[user] == 0) ready.push(user);
      sorted.push_back(std::move(layers[next]));
    }
    for (LayerId i : layers.ids())
      if (waits_for[i] > 0) fail("expected a network without cycles, got one through layer '{}'", layers[i].name);
    layers = std::move(sorted);
  }

  /// `tensor.dtype = ...`: what callers hand over and get; computed tensors are stored in it.
  void declare_types() {
    for (const auto& [id, type] : declared_) {
      TensorInfo& info = network_->tensor(id);
      if (info.producer != kNone && !info.value) {
        Layer& layer = network_->layer(info.producer);
        layer.output_types.resize(layer.outputs.size());
        for (std::size_t i = 0; i < layer.outputs.size(); ++i)
          if (layer.outputs[i] == id) layer.output_types[i] = type;
      }
      if (info.producer == kNone || network_->is_output(id)) info.type = type;
    }
  }

  const Value& description_;
  const OpRegistry& ops_;
  bool for_shapes_;
  std::shared_ptr<Network> network_;
  std::optional<FlatNetwork> flat_;  ///< Of the base.
  std::int64_t bodies_begin_ = 0, bodies_end_ = 0;
  bool owns_bodies_ = false;
  std::vector<std::string> renamed_in_bodies_;
  int opset_ = 17;
  std::unordered_map<TensorId, DataType> declared_;
  std::unordered_map<TensorId, Shape> stand_ins_;
  std::vector<Layer> pending_;
};

/// By the numbers that scripts have: tensors of bodies stand between those of the base and those that were added.
Value shapes_value(const Network* base, const Network& network, const IdMap<TensorId, std::optional<Shape>>& shapes) {
  Value::Array result;
  const auto add = [&](DataType type, const std::optional<Shape>& shape) {
    result.push_back(Value::Array{type_value(type), shape ? Value::of_shape(*shape) : Value()});
  };
  const auto add_bodies = [&] {
    const FlatNetwork flat(*base);
    for (std::size_t i = base->tensors.size(); i < flat.tensors().size(); ++i)
      add(flat.tensors()[i].info().type, flat.tensors()[i].info().shape);
  };
  for (TensorId i : network.tensors.ids()) {
    if (base != nullptr && i.number() == std::ssize(base->tensors)) add_bodies();
    add(network.tensors[i].type, shapes[i]);
  }
  if (base != nullptr && network.tensors.size() == base->tensors.size()) add_bodies();
  return result;
}

std::vector<Shape> with_dynamic(std::vector<Shape> shapes, std::int64_t size) {
  for (Shape& shape : shapes)
    for (std::int64_t& dim : shape)
      if (dim < 0) dim = size;
  return shapes;
}

}  // namespace

Value describe_network(const Network& network, int handle) {
  Value::Array tensors, layers;
  const FlatNetwork flat(network);
  for (const FlatNetwork::TensorPlace& place : flat.tensors()) {
    const TensorInfo& info = place.info();
    const std::optional<Shape> shape = info.value ? info.value.shape() : info.shape;
    tensors.push_back(Value::Array{info.name, type_value(info.type), shape ? Value::of_shape(*shape) : Value(),
                                   static_cast<bool>(info.value)});
  }
  int opset = 0;
  for (const LayerId id : flat.layers()) {
    const Layer& layer = network.layer(id);
    if (layer.op->domain.empty()) opset = std::max(opset, layer.opset);
    Value::Array output_types;
    for (std::size_t i = 0; i < layer.outputs.size(); ++i)
      output_types.push_back(type_value(layer.output_type(i).value_or(DataType::kUndefined)));
    layers.push_back(
        Value::Map{{"id", std::int64_t{id.number()}},
                   {"name", layer.name},
                   {"op", layer.op->name},
                   {"domain", layer.op->domain},
                   {"type", tensorrt_layer_type(layer)},
                   {"inputs", numbers_value(flat.inputs(id))},
                   {"outputs", numbers_value(flat.outputs(id))},
                   {"precision", type_value(layer.precision ? layer.precision->type() : DataType::kUndefined)},
                   {"output_types", std::move(output_types)},
                   {"nodes", Value::of_strings(layer.nodes)}});
  }
  return Value::Map{{"handle", handle},
                    {"name", network.name},
                    {"opset", opset},
                    {"tensors", std::move(tensors)},
                    {"layers", std::move(layers)},
                    {"inputs", ids_value(network.inputs)},
                    {"outputs", ids_value(network.outputs)}};
}

Tensor constant_of(const Network& network, std::int64_t number) {
  const FlatNetwork flat(network);
  if (number < 0 || number >= std::ssize(flat.tensors())) return {};
  return flat.tensors()[static_cast<std::size_t>(number)].info().value;
}

std::shared_ptr<Network> apply_description(const Network* base, const Value& description, const OpRegistry& ops) {
  return Composer(base, description, ops, false).compose();
}

Value infer_description(const Network* base, const Value& description, const OpRegistry& ops) {
  Composer composer(base, description, ops, true);
  const std::shared_ptr<Network> network = composer.compose();
  IdMap<TensorId, std::optional<Shape>> known(network->tensors.size());
  const std::optional<std::vector<Shape>> given = composer.input_shapes();
  if (!given) return shapes_value(base, *network, known);
  const std::vector<Shape>& shapes = *given;
  const auto negative = [](const Shape& shape) {
    return std::ranges::any_of(shape, [](std::int64_t dim) { return dim < 0; });
  };
  if (std::ranges::none_of(shapes, negative))
    return shapes_value(base, *network, infer(*network, shapes, kFoldedElements).shapes);
  // What differs between two sizes of the dynamic dimensions depends on them.
  try {
    const InferredNetwork small = infer(*network, with_dynamic(shapes, 2), kFoldedElements);
    const InferredNetwork large = infer(*network, with_dynamic(shapes, 4), kFoldedElements);
    for (TensorId i : known.ids()) {
      if (!small.shapes[i] || !large.shapes[i] || small.shapes[i]->size() != large.shapes[i]->size()) continue;
      known[i] = small.shapes[i];
      for (std::size_t k = 0; k < known[i]->size(); ++k)
        if ((*known[i])[k] != (*large.shapes[i])[k]) (*known[i])[k] = -1;
    }
  } catch (const Error&) {
    // Shapes that fit other sizes only: nothing is known beforehand.
  }
  return shapes_value(base, *network, known);
}

}  // namespace ulpscope
