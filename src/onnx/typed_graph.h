// The state of one export, which its parts share: typed_edit.cpp (what is kept and under which names), typed_nodes.cpp,
// typed_values.cpp (initializers, descriptions, versions). Private to src/onnx.
#pragma once

#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "formats/numeric_format.h"
#include "graph/dequantized_constant.h"
#include "onnx/export.h"
#include "onnx/functions.h"
#include "onnx/graph_order.h"
#include "onnx/model_file.h"
#include "onnx/model_writer.h"
#include "onnx/tensor_reader.h"

namespace ulpscope::onnx_model {

inline bool is_float(DataType type) {
  return type == DataType::kFloat32 || type == DataType::kFloat16 || type == DataType::kBFloat16;
}

inline std::string_view short_name(DataType type) {
  return format_of(is_float(type) ? type : DataType::kFloat32)->name;
}

inline onnx::AttributeProto& attribute_of(onnx::NodeProto& node, const char* name) {
  for (auto& attribute : *node.mutable_attribute())
    if (attribute.name() == name) return attribute;
  onnx::AttributeProto& added = *node.add_attribute();
  added.set_name(name);
  return added;
}

/// What all graphs of one export have in common: names, the elements of tensors, which stay where they are, versions.
struct TypedFile {
  TypedFile(const ModelFile& file, const std::filesystem::path& folder, const TypedChanges& changes);

  /// `wanted`, or with a number.
  std::string fresh(const std::string& wanted);
  std::size_t add_payload(Tensor source, DataType type, Rounding first);
  onnx::TensorProto make_tensor(const std::string& name, const Tensor& source, DataType type, Rounding first);
  int opset_of_source() const;
  /// The file has operators of this domain from now on.
  void import_domain(const char* domain, int version);

  /// Casts that graphs have and did not have before.
  void note_casts(const onnx::GraphProto& before, const onnx::GraphProto& after);
  void write_versions();
  void write_metadata();
  /// Elements that lie outside of the original file come into this one.
  void load_external_data(onnx::GraphProto& graph);

  const TypedChanges& changes;  ///< Of the main graph.
  TensorReader reader;
  onnx::ModelProto model;
  std::vector<Payload> payloads;
  std::unordered_set<std::string> names;
  std::string added_casts;  ///< One per line.
  ExportReport report;
};

/// The edit of one graph.
class TypedEdit {
 public:
  /// `graph` is changed in place. `is_main`: it is the body of no layer.
  TypedEdit(TypedFile& file, onnx::GraphProto& graph, const Network& network, const TypedChanges& changes,
            bool is_main);

  void run();

 private:
  using Variant = std::pair<DataType, Rounding>;

  /// Bodies first: what they read of constants around them may be copies of their own then.
  void edit_bodies();

  const onnx::NodeProto& source_node(std::size_t index) const { return source_.node(static_cast<int>(index)); }
  std::size_t num_nodes() const { return layer_of_node_.size(); }

  TensorId tensor(const std::string& name) const { return name.empty() ? kNone : network_.find_tensor(name); }
  bool is_constant(TensorId id) const { return id != kNone && typing_.constant[id] != 0; }
  /// It is in the graph, or in one around it, as an initializer or a Constant node.
  bool is_in_file(TensorId id) const {
    const LayerId producer = network_.tensor(id).producer;
    return network_.tensor(id).value && (producer == kNone || network_.layer(producer).op->kind == OpKind::kConstant);
  }
  DataType declared(TensorId id) const {
    const TensorInfo& info = network_.tensor(id);
    return info.value ? info.value.type() : info.type;
  }
  DataType written(TensorId id) const { return typing_.written[id]; }

  /// How node `index` reads its input; declared types where there is no layer.
  Typing::Read read_of(std::size_t index, std::size_t input, TensorId id) const {
    const LayerId layer = layer_of_node_[index];
    if (layer != kNone && input < typing_.reads[layer].size()) return typing_.reads[layer][input];
    return {is_float(declared(id)) ? declared(id) : DataType::kUndefined, Rounding::kNone};
  }

  bool is_absorbed(LayerId layer) const { return layer != kNone && absorbed_.contains(layer); }

  /// The reads of a node that are neither parameters of its own nor absorbed.
  template <typename Function>
  void for_each_read(std::size_t index, Function&& function) const {
    const onnx::NodeProto& node = source_node(index);
    const LayerId layer = layer_of_node_[index];
    for (int i = 0; i < node.input_size(); ++i) {
      const TensorId id = tensor(node.input(i));
      if (id == kNone || parameters_.contains({layer, static_cast<std::size_t>(i)})) continue;
      const auto quantized = quantized_.find({layer, static_cast<std::size_t>(i)});
      if (layer != kNone && quantized != quantized_.end() && quantized->second->elements) continue;
      function(i, id, read_of(index, static_cast<std::size_t>(i), id));
    }
  }

  /// It keeps what the file stores of it, and a read in another type takes a Cast of it.
  bool stays(TensorId id, const Typing::Read& read) const {
    return read.first == Rounding::kNone && (scales_.contains(id) || is_dequantized_constant(network_, id));
  }

  /// True if a read takes a converted copy of a constant instead of what the file has under its name.
  bool is_copy(TensorId id, const Typing::Read& read) const {
    if (!is_constant(id) || read.type == DataType::kUndefined || stays(id, read)) return false;
    return read.type != declared(id) || read.first != Rounding::kNone;
  }

  /// Nodes that compute constants which everybody now has converted copies of are dropped; those that nobody needed
  /// before stay.
  void find_live_nodes();

  void find_variants();

  /// A constant that is needed in one type keeps its name; every further type has a name of its own.
  void name_variants();

  const Tensor& elements(TensorId id) const;

  void add_initializer(const std::string& name, const Tensor& source, DataType type, Rounding first = Rounding::kNone);

  /// What a reader of `type` calls the tensor; makes the Cast before `before` when it is the first.
  std::string name_in(TensorId id, DataType type);

  void describe_as(const std::string& original, const std::string& name, DataType type);

  std::string name_of_read(TensorId id, const Typing::Read& read);

  /// The order of the network's layers, which is that of the file wherever the file is in order.
  std::vector<std::size_t> node_order() const;

  void write_nodes();

  void edit_inputs(std::size_t index, onnx::NodeProto& node);

  /// A node that is new, before the one that is being written.
  using NodeAttributes = std::vector<std::pair<const char*, std::int64_t>>;
  void add_node(const char* op, const std::string& name, const std::vector<std::string>& inputs,
                const std::vector<std::string>& outputs, const NodeAttributes& attributes = {},
                const char* domain = "");
  /// Of the activations of this type: one for all.
  std::string zero_point(DataType type);

  /// A Transpose of the last two of these dimensions.
  void add_turn(const std::string& name, const std::string& input, const std::string& output, std::int64_t rank);
  void dequantize_blocks_of(const std::string& name, std::string source, const std::string& quantized,
                            const std::string& scale, const std::string& result, const TypedChanges::Quantized& how);
  std::string dequantized_activation(TensorId id, const TypedChanges::Quantized& how);

  std::string dequantized_weights(TensorId id, const TypedChanges::Quantized& how);
  /// E4M3 times powers of two, whose codes of E8M0 are uint8.
  void dequantize_by_codes(const std::string& name, const std::string& elements, const std::string& codes,
                           const std::string& result, std::int64_t block);

  /// The nodes behind a layer that computes in float32: Casts to what it stores, or the Identity of one that stores
  /// float32.
  std::vector<onnx::NodeProto> storing_nodes(std::size_t index, onnx::NodeProto& node);

  void edit_outputs(std::size_t index, onnx::NodeProto& node);

  void edit_attributes(std::size_t index, onnx::NodeProto& node);

  void raise_opset(std::size_t index, onnx::NodeProto& node);

  /// A Constant node that is needed in one other type only.
  void write_constant_copy(std::size_t index);

  void write_initializers();

  void write_descriptions();

  TypedFile& file_;
  onnx::GraphProto& graph_;
  const Network& network_;
  const TypedChanges& changes_;
  const Typing& typing_;
  const bool is_main_;
  onnx::GraphProto source_;              ///< The graph as it was, but for its bodies.
  std::unordered_set<std::string> own_;  ///< What the graph itself defines.
  std::vector<LayerId> layer_of_node_;
  std::unordered_set<std::string> needed_, needed_before_;
  std::set<TensorId> scales_;  ///< And zero points, of weights that a product reads as codes.
  std::unordered_map<std::string, const onnx::ValueInfoProto*> described_;
  std::map<TensorId, DataType> output_types_;
  std::map<LayerId, LayerId> absorbed_;
  std::map<std::pair<LayerId, std::size_t>, const Tensor*> parameters_;
  std::map<std::pair<LayerId, std::size_t>, const TypedChanges::Quantized*> quantized_;
  /// Of activations, by the type of elements, axis and block.
  std::map<std::tuple<TensorId, DataType, std::int64_t, std::int64_t>, std::string> dequantized_;
  /// Of constants, by elements, axis and the type that layers read.
  std::map<std::tuple<const void*, std::int64_t, DataType>, std::string> stored_elements_;
  std::map<DataType, std::string> zeros_;
  std::set<TensorId> replaced_;
  std::vector<char> live_;
  std::map<TensorId, std::map<Variant, std::string>> variants_;
  std::map<TensorId, std::string> inner_;
  std::map<std::pair<TensorId, DataType>, std::string> casts_;
  std::vector<onnx::NodeProto> nodes_;
  std::vector<onnx::TensorProto> new_initializers_;
  std::vector<onnx::ValueInfoProto> new_descriptions_;
  std::unordered_map<std::string, DataType> retyped_;
};

}  // namespace ulpscope::onnx_model
