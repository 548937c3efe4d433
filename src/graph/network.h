// The network before it is built: layers and the tensors between them, weakly typed.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "graph/attributes.h"
#include "graph/ids.h"
#include "graph/layer_form.h"
#include "graph/op.h"
#include "ulpscope/error.h"
#include "ulpscope/tensor.h"

namespace ulpscope {

class MappedFile;

/// A named value. `type` and `shape` are what the file declares or what follows from it; the type that an engine stores
/// the value in is the engine's choice.
struct TensorInfo {
  std::string name;
  DataType type = DataType::kUndefined;
  /// Nothing when not even the rank is known; -1 for a dimension that is not.
  std::optional<Shape> shape;
  /// The file's names of the dimensions ("batch"; empty where there is none). Empty or as long as `shape`.
  std::vector<std::string> dim_names;
  /// The layer that computes it; kNone for network inputs and for weights.
  LayerId producer = kNone;
  /// The elements, for a constant. They may lie in a mapped file.
  Tensor value;
};

/// What is executed. Most layers are one ONNX node.
struct Layer {
  std::string name;           ///< Unique in the network.
  const OpDef* op = nullptr;  ///< Never null in a network that left the importer.
  int opset = 0;              ///< The version of the operator's domain that the model imports.
  Attributes attributes;
  std::vector<TensorId> inputs;    ///< kNone for an optional input that is absent.
  std::vector<TensorId> outputs;   ///< kNone for an output that nobody asked for.
  std::vector<std::string> nodes;  ///< Names of the ONNX nodes that it came from.

  /// Requested compute precision (`layer.precision`). Nothing: the engine's choice.
  std::optional<Request> precision;
  /// Requested type per output (`layer.set_output_type`); as long as `outputs` or empty.
  std::vector<std::optional<DataType>> output_types;

  /// kNone for one that is absent, by position or by name.
  TensorId input(std::size_t index) const { return index < inputs.size() ? inputs[index] : kNone; }
  TensorId output(std::size_t index) const { return index < outputs.size() ? outputs[index] : kNone; }
  /// The first, and no other.
  bool has_one_output() const {
    return output(0) != kNone &&
           std::all_of(outputs.begin() + 1, outputs.end(), [](TensorId id) { return id == kNone; });
  }
  std::optional<DataType> output_type(std::size_t index) const {
    return index < output_types.size() ? output_types[index] : std::nullopt;
  }
};

/// A constant that callers may give a value of their own: an initializer of ONNX that is an input of the graph, too.
struct DefaultValue {
  TensorId tensor;
  Tensor value;                        ///< As the file has it; once the tensor has another, it cannot be given.
  std::optional<Shape> shape;          ///< As the file declares the input; -1 and nothing as in TensorInfo.
  std::vector<std::string> dim_names;  ///< As in TensorInfo.
};

/// A graph that a layer runs, and the ids of its layers in the network around it.
struct Body {
  LayerId holder = kNone;  ///< The If, Loop or Scan.
  std::string_view attribute;
  const Subgraph* graph = nullptr;
  /// Layer i of the body, bodies inside of it included, is `first` + i in the network around it.
  LayerId first = kNone;

  LayerId outside(LayerId inside) const { return LayerId(first.number() + inside.number()); }
  LayerId inside(LayerId outside) const { return LayerId(outside.number() - first.number()); }
};

/// What a list of all layers (Network::num_all_layers) says of those of a body, in the body's own ids; `T()` for layers
/// that it does not reach.
template <typename T>
IdMap<LayerId, T> part_of(const IdMap<LayerId, T>& all, const Body& body, std::size_t layers) {
  IdMap<LayerId, T> result(layers);
  for (LayerId id : result.ids())
    if (const LayerId outside = body.outside(id); all.contains(outside)) result[id] = all[outside];
  return result;
}

/// What to ask for, per layer, those in bodies included (Network::num_all_layers); nothing: the engine's choice.
using Requests = IdMap<LayerId, std::optional<Request>>;

/// Layers in an order in which every input is computed before it is used. Initializers that an operator reads as
/// tensors are layers of type Constant; those that it reads as weights (OpDef::weights) are tensors with a value only.
class Network {
 public:
  std::string name;
  /// Where it came from, for messages.
  std::string source;
  /// The files that its constants lie in.
  std::vector<std::shared_ptr<const MappedFile>> files;
  IdMap<LayerId, Layer> layers;
  IdMap<TensorId, TensorInfo> tensors;
  std::vector<TensorId> inputs;
  std::vector<TensorId> outputs;
  /// Of bodies: those of the graph around them that they read.
  std::vector<DefaultValue> defaults;

  /// `source`, where that is the file; empty for a network from memory.
  std::string file() const;

  TensorId add_tensor(TensorInfo info);
  /// Appends; sets the producer of its outputs. Throws Error(kInvalidArgument) when the name is taken.
  LayerId add_layer(Layer layer);
  /// In front of the layer `at`, whose id and those behind it grow by one. REQUIRES: the name is free, and its inputs
  /// are computed before.
  void insert_layer(LayerId at, Layer layer);
  /// `wanted`, or with a number where a tensor or layer has that name.
  std::string free_name(const std::string& wanted) const;

  /// kNone when there is none of that name.
  TensorId find_tensor(std::string_view tensor_name) const;
  /// In the network, else in a body.
  LayerId find_layer(std::string_view layer_name) const;
  /// To be called after layers or tensors were renamed, removed or reordered directly.
  void rebuild_index();

  const TensorInfo& tensor(TensorId id) const { return tensors[id]; }
  TensorInfo& tensor(TensorId id) { return tensors[id]; }
  /// Of the network, or inside of a body: their ids follow those of `layers`, body after body.
  const Layer& layer(LayerId id) const { return layers.contains(id) ? layers[id] : layer_in_body(id); }
  Layer& layer(LayerId id) { return layers.contains(id) ? layers[id] : layer_in_body(id); }

  /// The bodies of its layers, in order; those of one layer follow each other.
  std::vector<Body> bodies() const;
  /// `layers`, and all layers of all bodies.
  std::size_t num_all_layers() const;
  auto all_layer_ids() const { return first_ids<LayerId>(num_all_layers()); }
  /// From now on the bodies are this network's own: copies share them.
  void own_bodies();
  /// The layer of `layers` that runs the body that a layer is in; the layer itself where it is in none.
  LayerId holder_of(LayerId id) const;

  /// For each tensor, the layers that read it, in order, each once.
  IdMap<TensorId, std::vector<LayerId>> consumers() const;
  bool is_output(TensorId id) const;
  bool can_be_given(const DefaultValue& constant) const;
  /// Null when no constant of that name can be given.
  const DefaultValue* find_default(std::string_view tensor_name) const;

  /// Checks what every later stage relies on: order, ids in range, unique names, one producer per tensor.
  /// Throws Error(kInvalidFile) naming the layer.
  void check() const;

 private:
  /// A body by what copies of the network have in common.
  struct BodyPlace {
    LayerId holder;
    std::int32_t graph;          ///< Which one of those of the holder,
    std::int32_t first, layers;  ///< and which layers, behind those of the network.
  };
  void index_bodies_of(LayerId holder);
  Body body_at(const BodyPlace& place) const;
  /// The body that has a layer behind those of the network; null: there is none.
  const BodyPlace* place_of(LayerId id) const;
  Layer& layer_in_body(LayerId id) const;

  std::unordered_map<std::string, TensorId> tensor_index_;
  std::unordered_map<std::string, LayerId> layer_index_;
  std::vector<BodyPlace> bodies_;  ///< In order.
};

/// Calls `work`; an Error that it throws names the file of the network.
template <typename Work>
auto naming_file(const Network& network, const Work& work) {
  try {
    return work();
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kInterrupted) throw;
    throw error.of_file(network.file());
  }
}

}  // namespace ulpscope
