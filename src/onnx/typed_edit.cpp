#include "onnx/typed_edit.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <unordered_map>
#include <unordered_set>

#include "onnx/element_type.h"
#include "onnx/functions.h"
#include "onnx/graph_order.h"
#include "onnx/model_writer.h"
#include "onnx/opset_upgrade.h"
#include "onnx/tensor_reader.h"

namespace ulpscope {

using namespace onnx_model;

namespace {

std::size_t at(std::int32_t id) { return static_cast<std::size_t>(id); }

std::string_view short_name(DataType type) {
  switch (type) {
    case DataType::kFloat16:
      return "fp16";
    case DataType::kBFloat16:
      return "bf16";
    default:
      return "fp32";
  }
}

bool is_float(DataType type) {
  return type == DataType::kFloat32 || type == DataType::kFloat16 || type == DataType::kBFloat16;
}

/// Every name of a value or a node, in every graph.
void collect_names(const onnx::GraphProto& graph, std::unordered_set<std::string>& names) {
  for (const auto& info : graph.input()) names.insert(info.name());
  for (const auto& info : graph.value_info()) names.insert(info.name());
  for (const auto& tensor : graph.initializer()) names.insert(tensor.name());
  for (const auto& node : graph.node()) {
    names.insert(node.name());
    names.insert(node.output().begin(), node.output().end());
    for (const auto& attribute : node.attribute()) {
      if (attribute.has_g()) collect_names(attribute.g(), names);
      for (const auto& inner : attribute.graphs()) collect_names(inner, names);
    }
  }
}

using Names = std::unordered_map<std::string, std::string>;

/// Renames what a sub-graph takes from around it.
void rename_free(onnx::GraphProto& graph, Names names) {
  for (const auto& input : graph.input()) names.erase(input.name());
  for (const auto& initializer : graph.initializer()) names.erase(initializer.name());
  for (const auto& node : graph.node())
    for (const auto& output : node.output()) names.erase(output);
  const auto rename = [&](std::string* name) {
    if (const auto found = names.find(*name); found != names.end()) *name = found->second;
  };
  for (auto& node : *graph.mutable_node()) {
    for (auto& input : *node.mutable_input()) rename(&input);
    for (auto& attribute : *node.mutable_attribute()) {
      if (attribute.has_g()) rename_free(*attribute.mutable_g(), names);
      for (auto& inner : *attribute.mutable_graphs()) rename_free(inner, names);
    }
  }
  for (auto& output : *graph.mutable_output()) rename(output.mutable_name());
}

onnx::AttributeProto& attribute_of(onnx::NodeProto& node, const char* name) {
  for (auto& attribute : *node.mutable_attribute())
    if (attribute.name() == name) return attribute;
  onnx::AttributeProto& added = *node.add_attribute();
  added.set_name(name);
  return added;
}

bool is_constant_node(const onnx::NodeProto& node) {
  return node.op_type() == "Constant" && domain_of(node.domain()).empty();
}

}  // namespace

namespace {

/// One export: the protobuf objects are edited, their elements stay where they are.
class Edit {
 public:
  Edit(const ModelFile& file, const Network& network, const std::vector<LayerId>& layer_of_node,
       const std::filesystem::path& folder, const TypedChanges& changes)
      : file_(file),
        network_(network),
        layer_of_node_(layer_of_node),
        changes_(changes),
        typing_(changes.typing),
        reader_(file, folder, false),
        model_(file.proto),
        graph_(*model_.mutable_graph()) {
    for (const TensorBytes& bytes : file.tensors) {
      Payload payload;
      payload.field = bytes.has_raw ? 9 : static_cast<std::uint32_t>(bytes.packed_field);
      payload.bytes = bytes.has_raw ? bytes.raw : bytes.packed;
      payloads_.push_back(std::move(payload));
    }
    collect_names(graph_, names_);
    for (const auto& [convolution, normalization] : changes.absorbed) absorbed_[normalization] = convolution;
    for (const auto& parameter : changes.parameters) parameters_[{parameter.layer, parameter.input}] = &parameter.value;
    for (const auto& each : changes.quantised) quantised_[{each.layer, each.input}] = &each;
    replaced_.insert(changes.replaced.begin(), changes.replaced.end());
    for (const auto& info : file.proto.graph().value_info()) described_[info.name()] = &info;
    for (std::size_t o = 0; o < network.outputs.size(); ++o) handed_out_[network.outputs[o]] = typing_.outputs[o];
  }

  ExportReport run(const std::filesystem::path& folder, const std::string& name, std::optional<std::uint64_t> limit) {
    find_live_nodes();
    find_variants();
    name_variants();
    write_nodes();
    write_initializers();
    write_descriptions();
    write_versions();
    load_external_data(graph_);
    auto metadata = changes_.metadata;
    metadata.emplace_back("ulpscope.added_casts", added_casts());
    for (const auto& [key, value] : metadata) {
      auto& props = *model_.mutable_metadata_props();
      auto found = std::find_if(props.begin(), props.end(), [&](const auto& entry) { return entry.key() == key; });
      auto* entry = found == props.end() ? props.Add() : &*found;
      entry->set_key(key);
      entry->set_value(value);
    }
    const ModelWriter writer(model_, std::move(payloads_), name, limit.value_or(kLargestModelFile));
    report_.bytes = writer.model_bytes() + writer.data_bytes();
    report_.external = writer.data_bytes() > 0;
    writer.write(folder);
    return report_;
  }

 private:
  using Variant = std::pair<DataType, Rounding>;

  /// Names, one per line.
  std::string added_casts() const {
    std::unordered_set<std::string> before;
    for (std::size_t n = 0; n < num_nodes(); ++n) before.insert(source_node(n).name());
    std::string text;
    for (const auto& node : graph_.node())
      if (node.op_type() == "Cast" && !node.name().empty() && !before.contains(node.name()))
        text += (text.empty() ? "" : "\n") + node.name();
    return text;
  }

  const onnx::NodeProto& source_node(std::size_t index) const {
    return file_.proto.graph().node(static_cast<int>(index));
  }
  std::size_t num_nodes() const { return layer_of_node_.size(); }

  TensorId tensor(const std::string& name) const { return name.empty() ? kNone : network_.find_tensor(name); }
  bool is_constant(TensorId id) const { return id != kNone && typing_.constant[at(id)] != 0; }
  /// It is in the file, as an initializer or a Constant node.
  bool is_in_file(TensorId id) const {
    const LayerId producer = network_.tensor(id).producer;
    return network_.tensor(id).value && (producer == kNone || network_.layer(producer).op->kind == OpKind::kConstant);
  }
  DataType declared(TensorId id) const {
    const TensorInfo& info = network_.tensor(id);
    return info.value ? info.value.type() : info.type;
  }
  DataType written(TensorId id) const { return typing_.written[at(id)]; }

  /// How node `index` reads its input; declared types where there is no layer.
  Typing::Read read_of(std::size_t index, std::size_t input, TensorId id) const {
    const LayerId layer = layer_of_node_[index];
    if (layer != kNone && input < typing_.reads[at(layer)].size()) return typing_.reads[at(layer)][input];
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
      const auto quantised = quantised_.find({layer, static_cast<std::size_t>(i)});
      if (layer != kNone && quantised != quantised_.end() && quantised->second->integers) continue;
      function(i, id, read_of(index, static_cast<std::size_t>(i), id));
    }
  }

  /// True if a read takes a converted copy of a constant instead of what the file has under its name.
  bool is_copy(TensorId id, const Typing::Read& read) const {
    if (!is_constant(id) || read.type == DataType::kUndefined) return false;
    return read.type != declared(id) || read.first != Rounding::kNone;
  }

  static std::vector<std::string> captured(const onnx::NodeProto& node) {
    std::vector<std::string> result;
    const auto add = [&](const onnx::GraphProto& graph) {
      for (std::string& name : free_values(graph)) result.push_back(std::move(name));
    };
    for (const auto& attribute : node.attribute()) {
      if (attribute.has_g()) add(attribute.g());
      for (const auto& inner : attribute.graphs()) add(inner);
    }
    return result;
  }

  /// Nodes that compute constants which everybody now has converted copies of are dropped; those that nobody needed
  /// before stay.
  void find_live_nodes() {
    std::unordered_set<std::string> needed, needed_before;
    const auto use_before = [&](const std::string& name) { needed_before.insert(name); };
    for (const auto& output : graph_.output()) {
      needed.insert(output.name());
      use_before(output.name());
    }
    for (std::size_t n = 0; n < num_nodes(); ++n)
      for (const std::string& name : values_read(source_node(n))) use_before(name);
    live_.assign(num_nodes(), 0);
    // Readers may stand before producers in a file that is out of order: until nothing changes.
    for (bool changed = true; changed;) {
      changed = false;
      for (std::size_t n = num_nodes(); n-- > 0;) {
        if (live_[n]) continue;
        const onnx::NodeProto& node = source_node(n);
        if (is_absorbed(layer_of_node_[n])) {
          // Its output is written by the convolution.
          const bool wanted = std::any_of(node.output().begin(), node.output().end(),
                                          [&](const auto& o) { return !o.empty() && needed.contains(o); });
          if (wanted &&
              needed.insert(network_.tensor(network_.layer(absorbed_.at(layer_of_node_[n])).outputs[0]).name).second)
            changed = true;
          continue;
        }
        const auto any_output = [&](const std::unordered_set<std::string>& names) {
          return std::any_of(node.output().begin(), node.output().end(),
                             [&](const auto& o) { return !o.empty() && names.contains(o); });
        };
        if (!any_output(needed) && any_output(needed_before)) continue;
        live_[n] = 1;
        changed = true;
        for_each_read(n, [&](int i, TensorId id, const Typing::Read& read) {
          if (!is_copy(id, read)) needed.insert(node.input(i));
        });
        for (const auto& name : node.input())
          if (tensor(name) == kNone) needed.insert(name);
        for (const std::string& name : captured(node)) needed.insert(name);
      }
    }
    needed_ = std::move(needed);
    needed_before_ = std::move(needed_before);
    for (std::size_t n = 0; n < num_nodes(); ++n) report_.removed += live_[n] ? 0 : 1;
  }

  void find_variants() {
    for (std::size_t n = 0; n < num_nodes(); ++n) {
      if (!live_[n]) continue;
      for_each_read(n, [&](int, TensorId id, const Typing::Read& read) {
        if (is_copy(id, read)) variants_[id][{read.type, read.first}];
      });
    }
  }

  std::string fresh(const std::string& wanted) {
    std::string name = wanted;
    for (int i = 1; !names_.insert(name).second; ++i) name = fmt::format("{}_{}", wanted, i);
    return name;
  }

  /// A constant that is needed in one type keeps its name; every further type has a name of its own.
  void name_variants() {
    for (auto& [id, variants] : variants_) {
      const std::string& name = network_.tensor(id).name;
      bool taken = !is_in_file(id) || needed_.contains(name);
      for (auto& [variant, chosen] : variants) {
        chosen = taken ? fresh(fmt::format("{}_{}", name, short_name(variant.first))) : name;
        taken = true;
      }
    }
  }

  const Tensor& elements(TensorId id) const {
    return is_in_file(id) ? network_.tensor(id).value : changes_.folded[at(id)];
  }

  std::size_t add_payload(Tensor source, DataType type, Rounding first) {
    Payload payload;
    payload.source = std::move(source);
    payload.type = type;
    payload.first = first;
    payloads_.push_back(std::move(payload));
    return payloads_.size() - 1;
  }

  onnx::TensorProto make_tensor(const std::string& name, const Tensor& source, DataType type, Rounding first) {
    onnx::TensorProto result;
    for (std::int64_t dim : source.shape()) result.add_dims(dim);
    result.set_data_type(to_onnx_type(type));
    if (!name.empty()) result.set_name(name);
    set_payload(result, add_payload(source, type, first));
    ++report_.initializers;
    return result;
  }

  void add_initializer(const std::string& name, const Tensor& source, DataType type, Rounding first = Rounding::kNone) {
    new_initializers_.push_back(make_tensor(name, source, type, first));
  }

  /// What a reader of `type` calls the tensor; makes the Cast before `before` when it is the first.
  std::string name_in(TensorId id, DataType type) {
    const std::string& name = network_.tensor(id).name;
    const DataType own = written(id);
    const auto out = handed_out_.find(id);
    const bool renamed = out != handed_out_.end() && out->second != own && network_.tensor(id).producer != kNone;
    if (renamed && !inner_.contains(id)) inner_[id] = fresh(fmt::format("{}_{}", name, short_name(own)));
    const std::string& source = renamed ? inner_.at(id) : name;
    if (type == DataType::kUndefined || type == own || !is_float(own)) return source;
    auto& cast = casts_[{id, type}];
    if (!cast.empty()) return cast;
    cast = renamed && out->second == type ? name : fresh(fmt::format("{}_{}", name, short_name(type)));
    onnx::NodeProto node;
    node.set_op_type("Cast");
    node.set_name(fresh(fmt::format("Cast_{}_{}", name, short_name(type))));
    node.add_input(source);
    node.add_output(cast);
    onnx::AttributeProto& to = attribute_of(node, "to");
    to.set_type(onnx::AttributeProto::INT);
    to.set_i(to_onnx_type(type));
    nodes_.push_back(std::move(node));
    ++report_.casts;
    if (cast != name) describe_as(name, cast, type);
    return cast;
  }

  void describe_as(const std::string& original, const std::string& name, DataType type) {
    const auto found = described_.find(original);
    if (found == described_.end() || !found->second->type().has_tensor_type()) return;
    onnx::ValueInfoProto info = *found->second;
    info.set_name(name);
    info.mutable_type()->mutable_tensor_type()->set_elem_type(to_onnx_type(type));
    new_descriptions_.push_back(std::move(info));
  }

  std::string name_of_read(TensorId id, const Typing::Read& read) {
    if (!is_copy(id, read)) return is_constant(id) ? network_.tensor(id).name : name_in(id, read.type);
    return variants_.at(id).at({read.type, read.first});
  }

  /// The order of the network's layers, which is that of the file wherever the file is in order.
  std::vector<std::size_t> node_order() const {
    std::vector<std::pair<LayerId, std::size_t>> order;
    for (std::size_t n = 0; n < num_nodes(); ++n) {
      LayerId first = kNone;
      for (const auto& output : source_node(n).output())
        if (const TensorId id = tensor(output); id != kNone) first = std::max(first, network_.tensor(id).producer);
      order.emplace_back(first, n);
    }
    bool sorted = true;
    std::unordered_set<std::string> later;
    for (std::size_t n = num_nodes(); n-- > 0 && sorted;) {
      for (const std::string& name : values_read(source_node(n))) sorted &= !later.contains(name);
      later.insert(source_node(n).output().begin(), source_node(n).output().end());
    }
    if (!sorted) std::stable_sort(order.begin(), order.end(), [](auto& a, auto& b) { return a.first < b.first; });
    std::vector<std::size_t> result;
    for (const auto& entry : order) result.push_back(entry.second);
    return result;
  }

  void write_nodes() {
    for (std::size_t n = 0; n < num_nodes(); ++n)
      report_.source_casts += source_node(n).op_type() == "Cast" && domain_of(source_node(n).domain()).empty();
    for (std::size_t index : node_order()) {
      if (!live_[index]) {
        if (is_constant_node(source_node(index))) write_constant_copy(index);
        continue;
      }
      onnx::NodeProto node = source_node(index);
      edit_inputs(index, node);
      edit_outputs(index, node);
      edit_attributes(index, node);
      if (changes_.opset != 0) raise_opset(index, node);
      std::optional<onnx::NodeProto> behind = storing_node(index, node);
      nodes_.push_back(std::move(node));
      if (behind) nodes_.push_back(std::move(*behind));
    }
    for (std::size_t o = 0; o < network_.outputs.size(); ++o)
      if (network_.tensor(network_.outputs[o]).producer != kNone) name_in(network_.outputs[o], typing_.outputs[o]);
    graph_.clear_node();
    for (auto& node : nodes_) *graph_.add_node() = std::move(node);
  }

  void edit_inputs(std::size_t index, onnx::NodeProto& node) {
    const LayerId layer = layer_of_node_[index];
    for_each_read(index,
                  [&](int i, TensorId id, const Typing::Read& read) { node.set_input(i, name_of_read(id, read)); });
    for (const auto& [key, value] : parameters_) {
      if (key.first != layer || layer == kNone) continue;
      while (static_cast<std::size_t>(node.input_size()) <= key.second) node.add_input("");
      const auto& reads = typing_.reads[at(layer)];
      const DataType type = reads[std::min(key.second, reads.size() - 1)].type;
      const TensorId original = key.second < network_.layer(layer).inputs.size()
                                    ? network_.layer(layer).inputs[key.second]
                                    : network_.layer(layer).inputs[1];
      const std::string name = fresh(network_.tensor(original).name + "_prepared");
      add_initializer(name, *value, type);
      node.set_input(static_cast<int>(key.second), name);
    }
    for (auto each = quantised_.lower_bound({layer, 0}); layer != kNone && each != quantised_.end(); ++each) {
      if (each->first.first != layer) break;
      const auto input = static_cast<int>(each->first.second);
      const TensorId id = network_.layer(layer).inputs[each->first.second];
      node.set_input(input, each->second->integers ? dequantised_weights(id, *each->second)
                                                   : dequantised_activation(id, *each->second));
    }
    Names renamed;
    for (const std::string& name : captured(node)) {
      const TensorId id = tensor(name);
      if (id == kNone || is_constant(id) || !is_float(declared(id))) continue;
      if (std::string now = name_in(id, declared(id)); now != name) renamed[name] = std::move(now);
    }
    if (!renamed.empty())
      for (auto& attribute : *node.mutable_attribute()) {
        if (attribute.has_g()) rename_free(*attribute.mutable_g(), renamed);
        for (auto& inner : *attribute.mutable_graphs()) rename_free(inner, renamed);
      }
  }

  /// A node that is new, before the one that is being written.
  void add_node(const char* op, const std::string& name, const std::vector<std::string>& inputs,
                const std::string& output, std::optional<std::int64_t> axis = std::nullopt) {
    onnx::NodeProto node;
    node.set_op_type(op);
    node.set_name(fresh(fmt::format("{}_{}", op, name)));
    for (const std::string& input : inputs) node.add_input(input);
    node.add_output(output);
    if (axis) {
      onnx::AttributeProto& attribute = attribute_of(node, "axis");
      attribute.set_type(onnx::AttributeProto::INT);
      attribute.set_i(*axis);
    }
    nodes_.push_back(std::move(node));
  }

  std::string dequantised_activation(TensorId id, const TypedChanges::Quantised& how) {
    std::string& result = dequantised_[id];
    if (!result.empty()) return result;
    const std::string& name = network_.tensor(id).name;
    const std::string source = name_in(id, DataType::kFloat32);
    const std::string scale = fresh(name + "_scale"), quantised = fresh(name + "_int8");
    result = fresh(name + "_dequantized");
    add_initializer(scale, how.scales, DataType::kFloat32);
    if (zero_.empty()) {
      zero_ = fresh("int8_zero_point");
      add_initializer(zero_, Tensor::of<std::int8_t>({}, {std::int8_t{0}}), DataType::kInt8);
    }
    add_node("QuantizeLinear", name, {source, scale, zero_}, quantised);
    add_node("DequantizeLinear", name, {quantised, scale, zero_}, result);
    ++report_.quantised;
    describe_as(name, quantised, DataType::kInt8);
    describe_as(name, result, DataType::kFloat32);
    return result;
  }

  std::string dequantised_weights(TensorId id, const TypedChanges::Quantised& how) {
    std::string& result = integer_weights_[{how.integers.raw(), how.axis}];
    if (!result.empty()) return result;
    const std::string& name = network_.tensor(id).name;
    const std::string integers = fresh(name + "_int8"), scale = fresh(name + "_scale");
    result = fresh(name + "_dequantized");
    add_initializer(integers, how.integers, DataType::kInt8);
    add_initializer(scale, how.scales, DataType::kFloat32);
    const bool per_axis = !how.scales.shape().empty();
    add_node("DequantizeLinear", name, {integers, scale}, result,
             per_axis ? std::optional<std::int64_t>(how.axis) : std::nullopt);
    ++report_.integer_weights;
    return result;
  }

  /// The node behind a layer that computes in float32: the Cast to what it stores, or the Identity of one that stores
  /// float32.
  std::optional<onnx::NodeProto> storing_node(std::size_t index, onnx::NodeProto& node) {
    const LayerId layer = layer_of_node_[index];
    if (layer == kNone) return std::nullopt;
    const auto stored = std::find_if(changes_.stored.begin(), changes_.stored.end(),
                                     [&](const auto& each) { return each.first == layer; });
    const bool casts = stored != changes_.stored.end();
    if (!casts && std::find(changes_.copied.begin(), changes_.copied.end(), layer) == changes_.copied.end())
      return std::nullopt;
    const std::string name = node.output(0);
    node.set_output(0, fresh(name + "_fp32"));
    onnx::NodeProto result;
    result.set_op_type(casts ? "Cast" : "Identity");
    result.set_name(
        fresh(fmt::format("{}_{}_{}", result.op_type(), name, casts ? short_name(stored->second) : "fp32")));
    result.add_input(node.output(0));
    result.add_output(name);
    if (!casts) return result;
    onnx::AttributeProto& to = attribute_of(result, "to");
    to.set_type(onnx::AttributeProto::INT);
    to.set_i(to_onnx_type(stored->second));
    ++report_.casts;
    return result;
  }

  void edit_outputs(std::size_t index, onnx::NodeProto& node) {
    const LayerId layer = layer_of_node_[index];
    for (const auto& [normalization, convolution] : absorbed_)
      if (convolution == layer && layer != kNone)
        node.set_output(0, network_.tensor(network_.layer(normalization).outputs[0]).name);
    for (auto& output : *node.mutable_output())
      if (const TensorId id = tensor(output); id != kNone && !is_in_file(id))
        output = name_in(id, DataType::kUndefined);
  }

  void edit_attributes(std::size_t index, onnx::NodeProto& node) {
    const LayerId layer = layer_of_node_[index];
    if (layer == kNone || node.output_size() == 0) return;
    for (const auto& [normalization, epsilon] : changes_.epsilons) {
      if (normalization != layer) continue;
      onnx::AttributeProto& attribute = attribute_of(node, "epsilon");
      attribute.set_type(onnx::AttributeProto::FLOAT);
      attribute.set_f(epsilon);
    }
    const TensorId output = network_.layer(layer).outputs.empty() ? kNone : network_.layer(layer).outputs[0];
    if (output == kNone || is_constant(output) || written(output) == declared(output)) return;
    if (!domain_of(node.domain()).empty()) return;
    if (node.op_type() == "Cast") attribute_of(node, "to").set_i(to_onnx_type(written(output)));
    if (node.op_type() == "ConstantOfShape") {
      const Tensor value = network_.layer(layer).attributes.has("value")
                               ? network_.layer(layer).attributes.required_tensor("value")
                               : Tensor::of<float>({1}, {0.0F});
      onnx::AttributeProto& attribute = attribute_of(node, "value");
      attribute.set_type(onnx::AttributeProto::TENSOR);
      *attribute.mutable_t() = make_tensor("", value, written(output), Rounding::kNone);
    }
  }

  void raise_opset(std::size_t index, onnx::NodeProto& node) {
    // Ranks by the names of the source: a cast of the value has another one.
    const auto rank_of = [&](const std::string&) {
      const onnx::NodeProto& source = source_node(index);
      const TensorId id = source.input_size() > 0 ? tensor(source.input(0)) : kNone;
      return id == kNone ? -1 : changes_.ranks[at(id)];
    };
    upgrade(node, opset_of_source(), changes_.opset, rank_of,
            [&](const std::string& wanted, const std::vector<std::int64_t>& values) {
              const std::string name = fresh(wanted);
              add_initializer(name,
                              Tensor::of<std::int64_t>({static_cast<std::int64_t>(values.size())}, std::span(values)),
                              DataType::kInt64);
              return name;
            });
  }

  int opset_of_source() const {
    for (const auto& import : file_.proto.opset_import())
      if (domain_of(import.domain()).empty()) return static_cast<int>(import.version());
    return 1;
  }

  /// A Constant node that is needed in one other type only.
  void write_constant_copy(std::size_t index) {
    onnx::NodeProto node = source_node(index);
    const TensorId id = tensor(node.output(0));
    const auto found = id == kNone ? variants_.end() : variants_.find(id);
    if (found == variants_.end()) return;
    for (const auto& [variant, name] : found->second) {
      if (name != node.output(0)) continue;
      node.clear_attribute();
      onnx::AttributeProto& attribute = attribute_of(node, "value");
      attribute.set_type(onnx::AttributeProto::TENSOR);
      *attribute.mutable_t() = make_tensor("", elements(id), variant.first, variant.second);
      nodes_.push_back(std::move(node));
      --report_.removed;
      return;
    }
  }

  void write_initializers() {
    std::vector<onnx::TensorProto> kept;
    std::unordered_set<std::string> gone;
    for (const auto& tensor_proto : file_.proto.graph().initializer()) {
      const std::string& name = tensor_proto.name();
      const TensorId id = tensor(name);
      const auto found = id == kNone ? variants_.end() : variants_.find(id);
      const Variant* own = nullptr;
      if (found != variants_.end())
        for (const auto& [variant, chosen] : found->second)
          if (chosen == name) own = &variant;
      if (own != nullptr) {
        kept.push_back(make_tensor(name, elements(id), own->first, own->second));
        if (tensor_proto.has_doc_string()) kept.back().set_doc_string(tensor_proto.doc_string());
        retyped_[name] = own->first;
      } else if (needed_.contains(name) || !needed_before_.contains(name)) {
        kept.push_back(id != kNone && replaced_.contains(id)
                           ? make_tensor(name, elements(id), declared(id), Rounding::kNone)
                           : tensor_proto);
      } else {
        gone.insert(name);
      }
    }
    for (const auto& [id, variants] : variants_)
      for (const auto& [variant, name] : variants)
        if (name != network_.tensor(id).name) add_initializer(name, elements(id), variant.first, variant.second);
    graph_.clear_initializer();
    for (auto& each : kept) *graph_.add_initializer() = std::move(each);
    for (auto& each : new_initializers_) {
      // Before IR version 4 every initializer is an input as well.
      if (model_.ir_version() < 4) {
        onnx::ValueInfoProto& info = *graph_.add_input();
        info.set_name(each.name());
        auto* type = info.mutable_type()->mutable_tensor_type();
        type->set_elem_type(each.data_type());
        type->mutable_shape();
        for (std::int64_t dim : each.dims()) type->mutable_shape()->add_dim()->set_dim_value(dim);
      }
      *graph_.add_initializer() = std::move(each);
    }
    for (int i = graph_.input_size(); i-- > 0;) {
      auto& input = *graph_.mutable_input(i);
      if (gone.contains(input.name())) {
        graph_.mutable_input()->DeleteSubrange(i, 1);
        continue;
      }
      if (const auto found = retyped_.find(input.name()); found != retyped_.end())
        input.mutable_type()->mutable_tensor_type()->set_elem_type(to_onnx_type(found->second));
    }
    // Constant nodes with other elements than the file's.
    for (auto& node : *graph_.mutable_node()) {
      if (!is_constant_node(node)) continue;
      const TensorId id = tensor(node.output(0));
      if (id == kNone || !replaced_.contains(id) || !needed_.contains(node.output(0))) continue;
      node.clear_attribute();
      onnx::AttributeProto& attribute = attribute_of(node, "value");
      attribute.set_type(onnx::AttributeProto::TENSOR);
      *attribute.mutable_t() = make_tensor("", elements(id), declared(id), Rounding::kNone);
    }
  }

  void write_descriptions() {
    for (auto& input : *graph_.mutable_input()) {
      const TensorId id = tensor(input.name());
      if (id != kNone && network_.tensor(id).producer == kNone && !network_.tensor(id).value && is_float(written(id)))
        input.mutable_type()->mutable_tensor_type()->set_elem_type(to_onnx_type(written(id)));
    }
    for (std::size_t o = 0; o < network_.outputs.size(); ++o) {
      auto& output = *graph_.mutable_output(static_cast<int>(o));
      if (is_float(typing_.outputs[o]) && output.type().has_tensor_type())
        output.mutable_type()->mutable_tensor_type()->set_elem_type(to_onnx_type(typing_.outputs[o]));
    }
    std::unordered_set<std::string> values;
    for (const auto& node : graph_.node()) values.insert(node.output().begin(), node.output().end());
    for (const auto& initializer : graph_.initializer()) values.insert(initializer.name());
    for (const auto& input : graph_.input()) values.insert(input.name());
    for (int i = graph_.value_info_size(); i-- > 0;) {
      auto& info = *graph_.mutable_value_info(i);
      const TensorId id = tensor(info.name());
      // What is gone, and outputs that have an entry of their own.
      if (needed_before_.contains(info.name()) && !values.contains(info.name())) {
        graph_.mutable_value_info()->DeleteSubrange(i, 1);
        continue;
      }
      if (id == kNone || !info.type().has_tensor_type()) continue;
      DataType type = written(id);
      if (const auto found = retyped_.find(info.name()); found != retyped_.end()) type = found->second;
      if (const auto found = handed_out_.find(id); found != handed_out_.end()) type = found->second;
      if (is_constant(id) && variants_.contains(id))
        for (const auto& [variant, name] : variants_.at(id))
          if (name == info.name()) type = variant.first;
      if (is_float(type)) info.mutable_type()->mutable_tensor_type()->set_elem_type(to_onnx_type(type));
    }
    for (auto& info : new_descriptions_) *graph_.add_value_info() = std::move(info);
  }

  void write_versions() {
    if (changes_.opset == 0) return;
    for (auto& import : *model_.mutable_opset_import())
      if (domain_of(import.domain()).empty()) import.set_version(changes_.opset);
    // The IR version that came with the opset; older readers would not know the opset either.
    const int ir = changes_.opset >= 21 ? 10 : changes_.opset >= 19 ? 9 : changes_.opset >= 15 ? 8 : 7;
    if (model_.ir_version() < ir && model_.ir_version() >= 4) model_.set_ir_version(ir);
  }

  /// Elements that lie outside of the original file come into this one.
  void load_external_data(onnx::GraphProto& graph) {
    const auto load = [&](onnx::TensorProto& proto) {
      if (proto.data_location() != onnx::TensorProto::EXTERNAL) return;
      const Tensor value = reader_.read(proto, fmt::format("initializer '{}'", proto.name()));
      proto.clear_external_data();
      proto.clear_data_location();
      set_payload(proto, add_payload(value, value.type(), Rounding::kNone));
    };
    for (auto& proto : *graph.mutable_initializer()) load(proto);
    for (auto& node : *graph.mutable_node())
      for (auto& attribute : *node.mutable_attribute()) {
        if (attribute.has_t()) load(*attribute.mutable_t());
        if (attribute.has_g()) load_external_data(*attribute.mutable_g());
      }
  }

  const ModelFile& file_;
  const Network& network_;
  const std::vector<LayerId>& layer_of_node_;
  const TypedChanges& changes_;
  const Typing& typing_;
  TensorReader reader_;
  onnx::ModelProto model_;
  onnx::GraphProto& graph_;
  std::vector<Payload> payloads_;
  std::unordered_set<std::string> names_, needed_, needed_before_;
  std::unordered_map<std::string, const onnx::ValueInfoProto*> described_;
  std::map<TensorId, DataType> handed_out_;
  std::map<LayerId, LayerId> absorbed_;
  std::map<std::pair<LayerId, std::size_t>, const Tensor*> parameters_;
  std::map<std::pair<LayerId, std::size_t>, const TypedChanges::Quantised*> quantised_;
  std::map<TensorId, std::string> dequantised_;                                  ///< Of activations.
  std::map<std::pair<const void*, std::int64_t>, std::string> integer_weights_;  ///< By elements and axis.
  std::string zero_;                                                             ///< The zero point of all of them.
  std::set<TensorId> replaced_;
  std::vector<char> live_;
  std::map<TensorId, std::map<Variant, std::string>> variants_;
  std::map<TensorId, std::string> inner_;
  std::map<std::pair<TensorId, DataType>, std::string> casts_;
  std::vector<onnx::NodeProto> nodes_;
  std::vector<onnx::TensorProto> new_initializers_;
  std::vector<onnx::ValueInfoProto> new_descriptions_;
  std::unordered_map<std::string, DataType> retyped_;
  ExportReport report_;
};

}  // namespace

ExportReport write_typed(const ModelFile& file, const Network& network, const std::vector<LayerId>& layer_of_node,
                         const std::filesystem::path& source_folder, const TypedChanges& changes,
                         const std::filesystem::path& folder, const std::string& name,
                         std::optional<std::uint64_t> limit) {
  return Edit(file, network, layer_of_node, source_folder, changes).run(folder, name, limit);
}

}  // namespace ulpscope
