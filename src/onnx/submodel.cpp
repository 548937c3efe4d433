#include "onnx/submodel.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "core/messages.h"
#include "onnx/element_type.h"
#include "onnx/functions.h"
#include "onnx/graph_order.h"
#include "onnx/model_file.h"
#include "onnx/model_writer.h"

namespace ulpscope {

using namespace onnx_model;

namespace {

using NameSet = std::unordered_set<std::string>;

bool is_external(const onnx::TensorProto& tensor) { return tensor.data_location() == onnx::TensorProto::EXTERNAL; }

/// The elements as they lie in the file.
std::vector<Payload> payloads_of(const ModelFile& file) {
  std::vector<Payload> payloads;
  for (const TensorBytes& bytes : file.tensors) {
    Payload& payload = payloads.emplace_back();
    payload.field = bytes.has_raw ? 9 : static_cast<std::uint32_t>(bytes.packed_field);
    payload.bytes = bytes.has_raw ? bytes.raw : bytes.packed;
  }
  return payloads;
}

void set_tensor(onnx::TensorProto& proto, const std::string& name, const Tensor& value,
                std::vector<Payload>& payloads) {
  proto.Clear();
  proto.set_name(name);
  proto.set_data_type(to_onnx_type(value.type()));
  for (const std::int64_t dim : value.shape()) proto.add_dims(dim);
  set_payload(proto, payloads.size());
  Payload& payload = payloads.emplace_back();
  payload.source = value;
  payload.type = value.type();
}

/// Negative dimensions: nothing is known of them.
void set_shape(onnx::ValueInfoProto& info, const Shape& shape) {
  auto& set = *info.mutable_type()->mutable_tensor_type()->mutable_shape();
  for (const std::int64_t dim : shape) {
    auto& added = *set.add_dim();
    if (dim >= 0) added.set_dim_value(dim);
  }
}

void set_value(onnx::ValueInfoProto& info, const std::string& name, DataType type, const Shape& shape) {
  info.Clear();
  info.set_name(name);
  info.mutable_type()->mutable_tensor_type()->set_elem_type(to_onnx_type(type));
  set_shape(info, shape);
}

}  // namespace

struct ModelParts::Impl {
  ModelFile file;
  std::vector<Node> nodes;
  std::vector<const onnx::NodeProto*> protos;  ///< Per node.
  std::vector<char> constant_only;             ///< Per node, whether it needs no input of the graph.
  std::vector<std::string> inputs, outputs;
  std::unordered_map<std::string, const onnx::TensorProto*> initializers;
  std::unordered_map<std::string, const onnx::NodeProto*> constants;
  std::unordered_map<std::string, std::size_t> producer;

  bool is_constant(const std::string& name) const { return initializers.contains(name) || constants.contains(name); }
};

ModelParts::ModelParts(std::span<const std::byte> bytes, const std::string& source) : impl_(std::make_unique<Impl>()) {
  Impl& own = *impl_;
  own.file.source = source;
  own.file.owner = std::shared_ptr<const void>(bytes.data(), [](const void*) {});
  read_model(bytes, own.file, true);
  const onnx::GraphProto& graph = own.file.proto.graph();
  for (const auto& tensor : graph.initializer()) own.initializers.emplace(tensor.name(), &tensor);
  NameSet defined;
  for (const auto& input : graph.input()) {
    defined.insert(input.name());
    if (!own.initializers.contains(input.name())) own.inputs.push_back(input.name());
  }
  for (const auto& output : graph.output()) own.outputs.push_back(output.name());
  const Opsets opsets;
  std::vector<FlatNode> order;
  for (const auto& node : graph.node()) {
    if (is_constant_node(node))
      own.constants.emplace(node.output(0), &node);
    else
      order.push_back({&node, &opsets});
  }
  const std::string wrong =
      sort_nodes(order, [&](const std::string& name) { return defined.contains(name) || own.is_constant(name); });
  if (!wrong.empty()) throw invalid_file("[onnx] {}: {}", source, wrong);
  for (const FlatNode& each : order) {
    Node node{node_name(*each.proto), each.proto->op_type(), {}, {}};
    for (const std::string& name : values_read(*each.proto))
      if (!own.is_constant(name)) node.inputs.push_back(name);
    own.constant_only.push_back(std::ranges::all_of(node.inputs, [&](const std::string& name) {
      const auto found = own.producer.find(name);
      return found != own.producer.end() && own.constant_only[found->second] != 0;
    }));
    for (const std::string& name : each.proto->output())
      if (!name.empty()) {
        node.outputs.push_back(name);
        own.producer.emplace(name, own.nodes.size());
      }
    own.nodes.push_back(std::move(node));
    own.protos.push_back(each.proto);
  }
}

ModelParts::~ModelParts() = default;

const std::vector<ModelParts::Node>& ModelParts::nodes() const noexcept { return impl_->nodes; }
const std::vector<std::string>& ModelParts::inputs() const noexcept { return impl_->inputs; }
const std::vector<std::string>& ModelParts::outputs() const noexcept { return impl_->outputs; }

ModelParts::Part ModelParts::between(std::span<const std::string> inputs, std::span<const std::string> outputs,
                                     bool constant_nodes) const {
  const Impl& own = *impl_;
  const NameSet wanted(inputs.begin(), inputs.end());
  NameSet reached = wanted;  // Computed from the inputs.
  std::vector<char> depends(own.nodes.size(), 0), needed(own.nodes.size(), 0);
  for (std::size_t n = 0; n < own.nodes.size(); ++n) {
    depends[n] = std::ranges::any_of(own.nodes[n].inputs, [&](const std::string& in) { return reached.contains(in); });
    if (depends[n] != 0) reached.insert(own.nodes[n].outputs.begin(), own.nodes[n].outputs.end());
  }
  const auto is_computed = [&](const auto& found) {
    return found != own.producer.end() &&
           (depends[found->second] != 0 || (constant_nodes && own.constant_only[found->second] != 0));
  };
  Part part;
  NameSet used, frozen;
  const auto need = [&](const std::string& name) {
    const auto found = own.producer.find(name);
    if (wanted.contains(name))
      used.insert(name);
    else if (is_computed(found))
      needed[found->second] = 1;
    else if (frozen.insert(name).second)
      part.frozen.push_back(name);
  };
  for (const std::string& name : outputs) {
    const auto found = own.producer.find(name);
    if (!is_computed(found) || wanted.contains(name)) continue;
    part.outputs.push_back(name);
    need(name);
  }
  for (std::size_t n = own.nodes.size(); n-- > 0;)
    if (needed[n] != 0)
      for (const std::string& name : own.nodes[n].inputs) need(name);
  for (std::size_t n = 0; n < own.nodes.size(); ++n)
    if (needed[n] != 0) part.nodes.push_back(n);
  for (const std::string& name : inputs)
    if (used.contains(name)) part.inputs.push_back(name);
  return part;
}

namespace {

Tensor value_of(const ModelParts::Known& known, const std::string& name) {
  Tensor value = known.value(name);
  if (!value) throw unsupported("[reduce] the value of '{}' is not known: no run of the model gives it", name);
  return value;
}

}  // namespace

void ModelParts::write(const Part& part, const Known& known, bool fixed, const std::filesystem::path& path) const {
  const Impl& own = *impl_;
  const onnx::GraphProto& source = own.file.proto.graph();
  onnx::ModelProto model = own.file.proto;
  onnx::GraphProto& graph = *model.mutable_graph();
  for (auto* list : {graph.mutable_input(), graph.mutable_output(), graph.mutable_value_info()}) list->Clear();
  graph.clear_node();
  graph.clear_initializer();
  graph.clear_quantization_annotation();
  model.clear_training_info();
  std::vector<Payload> payloads = payloads_of(own.file);
  NameSet constants;
  const auto add_constant = [&](const std::string& name) {
    if (!constants.insert(name).second) return;
    if (const auto node = own.constants.find(name); node != own.constants.end()) {
      // As Polygraphy has it: nodes of a part are those that may fail. Before IR 4, initializers would be inputs.
      const onnx::AttributeProto* const value = find_attribute(*node->second, "value");
      if (value == nullptr || model.ir_version() < 4) {
        *graph.add_node() = *node->second;
      } else {
        onnx::TensorProto& tensor = *graph.add_initializer();
        tensor = value->t();
        tensor.set_name(name);
      }
    } else if (const auto found = own.initializers.find(name); found != own.initializers.end()) {
      onnx::TensorProto& tensor = *graph.add_initializer();
      tensor = *found->second;
      if (is_external(tensor)) set_tensor(tensor, name, value_of(known, name), payloads);
    }
  };
  for (const std::size_t n : part.nodes)
    for (const std::string& name : values_read(*own.protos[n])) add_constant(name);
  for (const std::string& name : part.frozen)
    set_tensor(*graph.add_initializer(), name, value_of(known, name), payloads);
  for (const std::size_t n : part.nodes) *graph.add_node() = *own.protos[n];
  const auto declared = [&](const auto& list, const std::string& name) -> const onnx::ValueInfoProto* {
    const auto found = std::ranges::find_if(list, [&](const auto& info) { return info.name() == name; });
    return found == list.end() ? nullptr : &*found;
  };
  for (const std::string& name : part.inputs) {
    const onnx::ValueInfoProto* info = declared(source.input(), name);
    if (info != nullptr && !fixed) {
      *graph.add_input() = *info;
    } else {
      const Tensor value = value_of(known, name);
      set_value(*graph.add_input(), name, value.type(), value.shape());
    }
  }
  for (const std::string& name : part.outputs) {
    const onnx::ValueInfoProto* info = declared(source.output(), name);
    const std::optional<Shape> shape = known.shape(name);
    if (info != nullptr && !fixed) {
      onnx::ValueInfoProto& output = *graph.add_output();
      output = *info;
      if (shape && output.type().has_tensor_type() && !output.type().tensor_type().has_shape())
        set_shape(output, *shape);
      continue;
    }
    const Tensor value = value_of(known, name);
    const Shape unknown(value.shape().size(), -1);
    set_value(*graph.add_output(), name, value.type(), fixed ? value.shape() : shape.value_or(unknown));
  }
  const ModelWriter writer(model, std::move(payloads), path.filename().string());
  if (path.has_parent_path()) std::filesystem::create_directories(path.parent_path());
  writer.write(path.has_parent_path() ? path.parent_path() : std::filesystem::path("."));
}

}  // namespace ulpscope
