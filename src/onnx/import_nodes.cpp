// Nodes as layers: which operator, its values, constants and attributes.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/utf8.h"
#include "onnx/importer.h"
#include "ulpscope/error.h"

namespace ulpscope::onnx_model {

const OpDef* Importer::find_op(const FlatNode& node) const {
  return ops_.find(domain_of(node.proto->domain()), node.proto->op_type());
}

const OpDef* Importer::find_op_anywhere(const FlatNode& node) const {
  const OpDef* op = find_op(node);
  return op != nullptr ? op : ops_.find_elsewhere(domain_of(node.proto->domain()), node.proto->op_type());
}

int Importer::opset_of(const FlatNode& node) const {
  const std::string domain = domain_of(node.proto->domain());
  const auto found = node.opsets->find(domain);
  if (found != node.opsets->end()) return static_cast<int>(found->second);
  if (domain.empty())
    fail(ErrorCode::kInvalidFile, fmt::format("node '{}' ({}): the model does not say which opset it uses",
                                              node_name(*node.proto), node.proto->op_type()));
  return 1;  // exporters forget the entries of other domains, whose operators have one version anyway
}

std::string Importer::unique_layer_name(const std::string& wanted) {
  std::string name = wanted;
  while (!layer_names_.insert(name).second) name = fmt::format("{}_{}", wanted, name_counter_++);
  return name;
}

Layer Importer::new_layer(const onnx::NodeProto& node, const OpDef& op, int opset) {
  Layer layer;
  layer.nodes = {node_name(node)};
  layer.name = unique_layer_name(layer.nodes.front());
  layer.op = &op;
  layer.opset = opset;
  return layer;
}

void Importer::check_counts(const onnx::NodeProto& node, const OpDef& op, int opset) const {
  const auto where = [&] { return fmt::format("node '{}' ({})", node_name(node), node.op_type()); };
  if (op.since_version > opset)
    fail(ErrorCode::kInvalidFile, fmt::format("{}: the operator exists since opset {}, but the model uses opset {}",
                                              where(), op.since_version, opset));
  const auto check = [&](const auto& names, OpDef::Range range, std::string_view kind) {
    int count = names.size();
    while (count > 0 && names[count - 1].empty()) --count;
    const bool few = names.size() < range.min;
    if (!few && count <= range.max) return;
    const std::string expected = range.min == range.max ? fmt::format("{}", range.min)
                                 : few                  ? fmt::format("at least {}", range.min)
                                                        : fmt::format("at most {}", range.max);
    fail(ErrorCode::kInvalidFile, fmt::format("{}: expected {} {}, got {}", where(), expected, kind, count));
  };
  check(node.input(), op.inputs, "inputs");
  check(node.output(), op.outputs, "outputs");
}

void Importer::add_node(const FlatNode& flat, Scope& scope, const std::unordered_set<std::string>& as_tensors) {
  const onnx::NodeProto& node = *flat.proto;
  const OpDef* op = find_op_anywhere(flat);
  if (op != nullptr && find_op(flat) == nullptr)
    foreign_.push_back({node.op_type(), domain_of(node.domain()), node_name(node)});
  if (op == nullptr) {
    unknown_.push_back({node.op_type(), domain_of(node.domain()), node_name(node)});
    for (const auto& output : node.output())
      if (!output.empty()) define_value(output, scope);
    return;
  }
  const int opset = opset_of(flat);
  if (is_constant_node(node)) return add_constant_node(node, opset, scope);
  check_counts(node, *op, opset);
  std::vector<TensorId> inputs;
  for (const auto& input : node.input()) inputs.push_back(input.empty() ? kNone : use_value(input, scope, as_tensors));
  if (op->kind != OpKind::kControl)
    while (!inputs.empty() && inputs.back() == kNone) inputs.pop_back();
  else if (op->name == "Loop" && inputs.size() < 2)
    inputs.resize(2, kNone);  // captured values follow the formal inputs, absent ones included
  Layer layer = new_layer(node, *op, opset);
  layer.inputs = std::move(inputs);
  add_attributes(flat, layer, scope, as_tensors);
  for (int i = 0; i < node.output_size(); ++i) {
    std::string output = node.output(i);
    // Kernels write what an operator always has, whoever reads it.
    if (output.empty() && i < op->outputs.min && op->outputs.max != kAnyNumber)
      output = fmt::format("{}/unread {}", layer.name, i);
    layer.outputs.push_back(output.empty() ? kNone : define_value(output, scope));
  }
  scope.network->add_layer(std::move(layer));
}

TensorId Importer::define_value(const std::string& name, Scope& scope) {
  TensorInfo info;
  info.name = name;
  if (const auto found = scope.declared.find(name); found != scope.declared.end())
    describe(*found->second, info, "value");
  scope.values.insert(name);
  return scope.network->add_tensor(std::move(info));
}

const Tensor& Importer::elements(Constant& constant) {
  if (!constant.value)
    constant.value = reader_.read(*constant.proto, fmt::format("initializer '{}'", constant.proto->name()));
  return constant.value;
}

/// The tensor of a name; adds the weight or the Constant layer when it is the first use of a constant.
TensorId Importer::use_value(const std::string& name, Scope& scope, const std::unordered_set<std::string>& as_tensors) {
  if (const TensorId id = scope.network->find_tensor(name); id != kNone) return id;
  const auto found = scope.constants.find(name);
  if (found == scope.constants.end())
    throw InternalError(fmt::format("value '{}' was not defined before its use", name));
  TensorInfo info;
  info.name = name;
  info.value = elements(*found->second);
  info.type = info.value.type();
  info.shape = info.value.shape();
  const TensorId id = scope.network->add_tensor(std::move(info));
  if (!as_tensors.contains(name)) return id;
  Layer layer;
  layer.op = ops_.find("", "Constant");
  if (layer.op == nullptr) throw InternalError("the registry has no operator Constant");
  layer.name = unique_layer_name(as_utf8(name));
  const auto opset = opsets_.find("");
  layer.opset = opset == opsets_.end() ? 1 : static_cast<int>(opset->second);
  layer.outputs = {id};
  scope.network->add_layer(std::move(layer));
  return id;
}

void Importer::add_constant_node(const onnx::NodeProto& node, int opset, Scope& scope) {
  if (node.output_size() != 1 || node.output(0).empty())
    fail(ErrorCode::kInvalidFile,
         fmt::format("node '{}' (Constant): expected 1 output, got {}", node_name(node), node.output_size()));
  Layer layer = new_layer(node, *ops_.find("", "Constant"), opset);
  auto constant = std::make_shared<Constant>();
  constant->value = constant_value(node);
  const TensorId id = define_value(node.output(0), scope);
  TensorInfo& info = scope.network->tensor(id);
  info.value = constant->value;
  info.type = info.value.type();
  info.shape = info.value.shape();
  info.dim_names.clear();
  scope.constants.emplace(node.output(0), std::move(constant));  // sub-graphs get constants of their own
  layer.outputs = {id};
  scope.network->add_layer(std::move(layer));
}

Tensor Importer::constant_value(const onnx::NodeProto& node) {
  using Proto = onnx::AttributeProto;
  const std::string where = fmt::format("node '{}' (Constant)", node_name(node));
  for (const auto& attribute : node.attribute()) {
    const std::string& name = attribute.name();
    const auto vector = [](auto values, auto tag) {
      using T = decltype(tag);
      const std::vector<T> list(values.begin(), values.end());
      return Tensor::of<T>({static_cast<std::int64_t>(list.size())}, std::span<const T>(list));
    };
    // Files of IR version 1 do not say which type an attribute has.
    const auto is = [&](std::string_view wanted, Proto::AttributeType type) {
      if (name != wanted) return false;
      if (attribute.type() != type && attribute.type() != Proto::UNDEFINED)
        fail(ErrorCode::kInvalidFile,
             fmt::format("{}: expected {} as attribute '{}', got {}", where, Proto::AttributeType_Name(type), name,
                         Proto::AttributeType_Name(attribute.type())));
      return true;
    };
    if (is("value", Proto::TENSOR) && attribute.has_t())
      return reader_.read(attribute.t(), fmt::format("attribute 'value' of {}", where));
    if (is("value_float", Proto::FLOAT)) return Tensor::scalar<float>(attribute.f());
    if (is("value_int", Proto::INT)) return Tensor::scalar<std::int64_t>(attribute.i());
    if (is("value_floats", Proto::FLOATS)) return vector(attribute.floats(), float{});
    if (is("value_ints", Proto::INTS)) return vector(attribute.ints(), std::int64_t{});
    if (name == "value_string" || name == "value_strings")
      fail(ErrorCode::kUnsupported, fmt::format("{}: tensors of type string are not supported", where));
  }
  fail(ErrorCode::kInvalidFile, fmt::format("{}: it has no value", where));
}

void Importer::add_attributes(const FlatNode& flat, Layer& layer, Scope& scope,
                              const std::unordered_set<std::string>& as_tensors) {
  using Proto = onnx::AttributeProto;
  const std::string where = fmt::format("node '{}' ({})", node_name(*flat.proto), flat.proto->op_type());
  const auto refuse = [&](const Proto& attribute, std::string_view kind) {
    fail(ErrorCode::kUnsupported,
         fmt::format("{}: attribute '{}': {} are not supported", where, attribute.name(), kind));
  };
  const auto formal_inputs = static_cast<std::ptrdiff_t>(layer.inputs.size());
  for (const Proto& attribute : flat.proto->attribute()) {
    const std::string& name = attribute.name();
    if (!attribute.ref_attr_name().empty())
      fail(
          ErrorCode::kInvalidFile,
          fmt::format("{}: attribute '{}' refers to an attribute of a function, but the node is in none", where, name));
    switch (attribute.type()) {
      case Proto::FLOAT:
        layer.attributes.set(name, attribute.f());
        break;
      case Proto::INT:
        layer.attributes.set(name, attribute.i());
        break;
      case Proto::STRING:
        layer.attributes.set(name, attribute.s());
        break;
      case Proto::FLOATS:
        layer.attributes.set(name, std::vector<float>(attribute.floats().begin(), attribute.floats().end()));
        break;
      case Proto::INTS:
        layer.attributes.set(name, std::vector<std::int64_t>(attribute.ints().begin(), attribute.ints().end()));
        break;
      case Proto::STRINGS:
        layer.attributes.set(name, std::vector<std::string>(attribute.strings().begin(), attribute.strings().end()));
        break;
      case Proto::TENSOR:
        layer.attributes.set(name, reader_.read(attribute.t(), fmt::format("attribute '{}' of {}", name, where)));
        break;
      case Proto::GRAPH: {
        Built built = import_graph(attribute.g(), *flat.opsets, &scope);
        Subgraph graph{std::move(built.network), {}};
        for (const auto& captured : built.captured) {
          const TensorId id = use_value(captured, scope, as_tensors);
          const auto found = std::find(layer.inputs.begin() + formal_inputs, layer.inputs.end(), id);
          graph.captures.push_back(static_cast<int>(found - layer.inputs.begin()));
          if (found == layer.inputs.end()) layer.inputs.push_back(id);
        }
        layer.attributes.set(name, std::move(graph));
        break;
      }
      case Proto::SPARSE_TENSOR:
      case Proto::SPARSE_TENSORS:
        refuse(attribute, "sparse tensors");
        break;
      case Proto::TENSORS:
        refuse(attribute, "lists of tensors");
        break;
      case Proto::GRAPHS:
        refuse(attribute, "lists of graphs");
        break;
      case Proto::TYPE_PROTO:
      case Proto::TYPE_PROTOS:
        refuse(attribute, "types of sequences and optionals");
        break;
      default:
        fail(ErrorCode::kInvalidFile, fmt::format("{}: attribute '{}' has no type", where, name));
    }
  }
}

}  // namespace ulpscope::onnx_model
