#include "onnx/importer.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "graph/inference.h"
#include "onnx/element_type.h"
#include "onnx/graph_order.h"
#include "onnx/sequences.h"
#include "ulpscope/error.h"
#include "ulpscope/log.h"

namespace ulpscope::onnx_model {
namespace {

constexpr int kMaxGraphDepth = 32;

/// What an output is that no network has; empty: a tensor of numbers, or not said.
std::string not_a_tensor(const onnx::ValueInfoProto& output) {
  switch (output.type().value_case()) {
    case onnx::TypeProto::kSequenceType:
      return output.type().sequence_type().elem_type().has_map_type() ? "a sequence of maps" : "a sequence";
    case onnx::TypeProto::kMapType:
      return "a map";
    case onnx::TypeProto::kTensorType:
      return output.type().tensor_type().elem_type() == onnx::TensorProto::STRING ? "a tensor of strings" : "";
    default:
      return "";
  }
}

bool reads_as_weight(const OpDef* op, int input) { return op == nullptr || op->is_weight(input); }

}  // namespace

Importer::Importer(const ModelFile& file, const OpRegistry& ops, TensorReader& reader, std::vector<std::string> wanted)
    : file_(file),
      ops_(ops),
      reader_(reader),
      wanted_(std::move(wanted)),
      opsets_(check_versions(file.proto, file.source)),
      functions_(file.proto, opsets_, file.source) {}

std::shared_ptr<Network> Importer::run() {
  Built built = import_graph(file_.proto.graph(), opsets_, nullptr);
  if (!unknown_.empty()) report_unknown_operators();
  if (!foreign_.empty()) warn_of_foreign_layers();
  built.network->source = file_.source;
  built.network->check();
  infer_types(*built.network);
  return built.network;
}

void Importer::fail(ErrorCode code, const std::string& message) const {
  throw Error(code, fmt::format("[import] {}: {}", file_.source, message));
}

Importer::Built Importer::import_graph(const onnx::GraphProto& graph, const Opsets& opsets, const Scope* parent) {
  Built built{std::make_shared<Network>(), {}};
  Scope scope;
  scope.parent = parent;
  scope.depth = parent == nullptr ? 0 : parent->depth + 1;
  scope.network = built.network.get();
  if (scope.depth > kMaxGraphDepth)
    fail(ErrorCode::kInvalidFile,
         fmt::format("graph '{}': graphs are nested more than {} deep", graph.name(), kMaxGraphDepth));
  built.network->name = graph.name();
  built.network->source = file_.source;
  for (const auto& info : graph.value_info()) scope.declared[info.name()] = &info;
  for (const auto& info : graph.output()) scope.declared[info.name()] = &info;

  define_inputs(graph, scope);
  define_initializers(graph, scope);
  built.captured = resolve_free_values(graph, scope);
  std::vector<FlatNode> nodes = functions_.expand(graph.node(), opsets);
  for (const FlatNode& node : nodes)
    for (const auto& output : node.proto->output())
      if (scope.values.contains(output) || scope.constants.contains(output))
        fail(ErrorCode::kInvalidFile, fmt::format("node '{}' computes '{}', which is an input or an initializer",
                                                  node_name(*node.proto), output));
  const std::string wrong = sort_nodes(
      nodes, [&](const std::string& name) { return scope.values.contains(name) || scope.constants.contains(name); });
  if (!wrong.empty()) fail(ErrorCode::kInvalidFile, wrong);

  const std::vector<std::string> made = follow_sequences(graph, scope, nodes);
  std::vector<std::string> outputs;
  if (parent == nullptr) outputs = leave_out_unknown(nodes);
  if (outputs.empty()) outputs = made;
  const auto as_tensors = constants_read_as_tensors(graph, nodes, scope);
  for (const FlatNode& node : nodes) add_node(node, scope, as_tensors);
  add_outputs(outputs, graph.name(), scope, as_tensors);
  add_defaults(scope, as_tensors);
  return built;
}

/// What takes the place of an output that is no tensor of numbers.
struct Importer::Replaced {
  std::string output, what;
  std::vector<std::string> tensors;
};

/// Replaces nodes of sequences and maps, and returns the outputs that are tensors: of the main graph, those that the
/// others are made of take their places, and nodes that only others need are left out.
std::vector<std::string> Importer::follow_sequences(const onnx::GraphProto& graph, Scope& scope,
                                                    std::vector<FlatNode>& nodes) {
  const KnownValues known{
      .integers = [&](const std::string& name) -> std::optional<std::vector<std::int64_t>> {
        Tensor value;
        if (const auto found = scope.constants.find(name); found != scope.constants.end()) {
          value = elements(*found->second);
        } else {
          const auto node = std::ranges::find_if(nodes, [&](const FlatNode& each) {
            return is_constant_node(*each.proto) && each.proto->output_size() > 0 && each.proto->output(0) == name;
          });
          if (node == nodes.end()) return std::nullopt;
          value = constant_value(*node->proto);
        }
        if (!is_integer(value.type())) return std::nullopt;
        const Tensor wide = value.cast(DataType::kInt64);
        return std::vector<std::int64_t>(wide.data<std::int64_t>(), wide.data<std::int64_t>() + wide.size());
      },
      .dimension = [&](const std::string& name, std::int64_t axis) -> std::optional<std::int64_t> {
        std::optional<Shape> shape;
        if (const TensorId id = scope.network->find_tensor(name); id != kNone) shape = scope.network->tensor(id).shape;
        if (const auto found = scope.declared.find(name); !shape && found != scope.declared.end()) {
          TensorInfo info;
          describe(*found->second, info, "value");
          shape = info.shape;
        }
        if (const auto found = scope.constants.find(name); found != scope.constants.end())
          shape = elements(*found->second).shape();
        if (!shape) return std::nullopt;
        if (axis < 0) axis += std::ssize(*shape);
        if (axis < 0 || axis >= std::ssize(*shape) || (*shape)[static_cast<std::size_t>(axis)] < 0) return std::nullopt;
        return (*shape)[static_cast<std::size_t>(axis)];
      }};
  SequenceResolver resolver(known, copies_);
  resolver.run(nodes, fmt::format("[import] {}", file_.source));
  std::vector<std::string> outputs;
  std::vector<Replaced> replaced;
  for (const auto& output : graph.output()) {
    const std::string what = scope.parent == nullptr ? not_a_tensor(output) : "";
    const auto tensors = resolver.tensors_of(output.name());
    if (what.empty() && !tensors) {
      outputs.push_back(output.name());
      continue;
    }
    if (scope.parent != nullptr)
      fail(ErrorCode::kUnsupported, fmt::format("graph '{}': its output '{}' is a sequence or map, which is not "
                                                "supported inside of an If, Loop or Scan",
                                                graph.name(), output.name()));
    replaced.push_back(
        {output.name(), what.empty() ? "a sequence" : what, tensors.value_or(std::vector<std::string>())});
  }
  if (replaced.empty()) return outputs;
  for (const Replaced& each : replaced)
    for (const std::string& name : each.tensors)
      if (std::ranges::find(outputs, name) == outputs.end()) outputs.push_back(name);
  if (outputs.empty())
    fail(ErrorCode::kUnsupported,
         fmt::format("expected an output that is a tensor of numbers, or made of one; '{}' is {}", replaced[0].output,
                     replaced[0].what));
  leave_out_others(outputs, nodes);
  for (const Replaced& each : replaced)
    log_info(fmt::format("[import] {}: output '{}' is {}: {}", file_.source, each.output, each.what,
                         each.tensors.empty()
                             ? "it is left out"
                             : fmt::format("what is run and compared are the tensors that go into it: {}",
                                           fmt::join(each.tensors, ", "))));
  return outputs;
}

void Importer::define_inputs(const onnx::GraphProto& graph, Scope& scope) {
  // Up to IR version 3 every initializer had to be an input, of sub-graphs, too.
  const bool all_are_inputs = file_.proto.ir_version() < 4;
  std::unordered_set<std::string> defaults;
  if (scope.parent == nullptr || all_are_inputs)
    for (const auto& initializer : graph.initializer()) defaults.insert(initializer.name());
  for (const auto& input : graph.input()) {
    if (defaults.contains(input.name())) {
      if (!all_are_inputs) scope.defaults.push_back(&input);
      continue;
    }
    if (input.name().empty()) fail(ErrorCode::kInvalidFile, "a graph input has no name");
    if (!scope.values.insert(input.name()).second)
      fail(ErrorCode::kInvalidFile, fmt::format("two inputs have the name '{}'", input.name()));
    TensorInfo info;
    info.name = input.name();
    describe(input, info, "input");
    if (scope.parent == nullptr && info.type == DataType::kUndefined)
      fail(ErrorCode::kInvalidFile, fmt::format("input '{}' has no type", input.name()));
    scope.network->inputs.push_back(scope.network->add_tensor(std::move(info)));
  }
}

void Importer::define_initializers(const onnx::GraphProto& graph, Scope& scope) {
  if (graph.sparse_initializer_size() > 0)
    fail(ErrorCode::kUnsupported, fmt::format("initializer '{}': sparse tensors are not supported",
                                              graph.sparse_initializer(0).values().name()));
  for (const auto& initializer : graph.initializer()) {
    if (scope.values.contains(initializer.name())) continue;  // an input of a sub-graph: its value comes from outside
    if (initializer.name().empty()) fail(ErrorCode::kInvalidFile, "an initializer has no name");
    auto constant = std::make_shared<Constant>();
    constant->proto = &initializer;
    if (!scope.constants.emplace(initializer.name(), std::move(constant)).second)
      fail(ErrorCode::kInvalidFile, fmt::format("two initializers have the name '{}'", initializer.name()));
  }
}

/// Finds what the graph takes from around it. Constants become constants of this graph, other values become inputs.
std::vector<std::string> Importer::resolve_free_values(const onnx::GraphProto& graph, Scope& scope) {
  std::vector<std::string> captured;
  if (scope.parent == nullptr) return captured;
  for (const auto& name : free_values(graph)) {
    for (const Scope* outer = scope.parent; outer != nullptr; outer = outer->parent) {
      if (const auto found = outer->constants.find(name); found != outer->constants.end()) {
        scope.constants.emplace(name, found->second);
        const auto is_it = [&](const onnx::ValueInfoProto* input) { return input->name() == name; };
        if (const auto input = std::ranges::find_if(outer->defaults, is_it); input != outer->defaults.end())
          scope.defaults.push_back(*input);
        break;
      }
      if (!outer->values.contains(name)) continue;
      TensorInfo info;
      info.name = name;
      if (const TensorId id = outer->network->find_tensor(name); id != kNone) {
        const TensorInfo& original = outer->network->tensor(id);
        info.type = original.type;
        info.shape = original.shape;
        info.dim_names = original.dim_names;
      }
      scope.values.insert(name);
      scope.network->inputs.push_back(scope.network->add_tensor(std::move(info)));
      captured.push_back(name);
      break;
    }
  }
  return captured;
}

std::unordered_set<std::string> Importer::constants_read_as_tensors(const onnx::GraphProto& graph,
                                                                    const std::vector<FlatNode>& nodes,
                                                                    const Scope& scope) const {
  std::unordered_set<std::string> result;
  const auto use = [&](const std::string& name) {
    if (scope.constants.contains(name)) result.insert(name);
  };
  for (const FlatNode& node : nodes) {
    const OpDef* op = find_op_anywhere(node);
    for (int i = 0; i < node.proto->input_size(); ++i)
      if (!reads_as_weight(op, i)) use(node.proto->input(i));
  }
  for (const auto& output : graph.output()) use(output.name());
  return result;
}

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
  layer.name = unique_layer_name(node_name(node));
  layer.op = &op;
  layer.opset = opset;
  layer.nodes = {node_name(node)};
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
  for (const auto& output : node.output())
    layer.outputs.push_back(output.empty() ? kNone : define_value(output, scope));
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
  layer.name = unique_layer_name(name);
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
    if (name == "sparse_value")
      fail(ErrorCode::kUnsupported, fmt::format("{}: sparse tensors are not supported", where));
  }
  fail(ErrorCode::kInvalidFile, fmt::format("{}: it has no value", where));
}

void Importer::add_outputs(const std::vector<std::string>& names, const std::string& graph, Scope& scope,
                           const std::unordered_set<std::string>& as_tensors) {
  std::unordered_set<std::string> seen;
  for (const std::string& name : names) {
    if (!scope.values.contains(name) && !scope.constants.contains(name))
      fail(ErrorCode::kInvalidFile, fmt::format("the output '{}' of graph '{}' is computed by no node", name, graph));
    if (!seen.insert(name).second && scope.parent == nullptr) {
      log_info(fmt::format("[import] {}: output '{}' is listed twice, and handed out once", file_.source, name));
      continue;
    }
    scope.network->outputs.push_back(use_value(name, scope, as_tensors));
  }
}

void Importer::add_defaults(Scope& scope, const std::unordered_set<std::string>& as_tensors) {
  for (const onnx::ValueInfoProto* input : scope.defaults) {
    TensorInfo declared;
    describe(*input, declared, "input");
    const TensorId id = use_value(input->name(), scope, as_tensors);
    scope.network->defaults.push_back(
        {id, scope.network->tensor(id).value, std::move(declared.shape), std::move(declared.dim_names)});
  }
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

void Importer::describe(const onnx::ValueInfoProto& declared, TensorInfo& info, const std::string& what) const {
  const onnx::TypeProto& type = declared.type();
  const auto refuse = [&](std::string_view kind) {
    fail(ErrorCode::kUnsupported, fmt::format("{} '{}': {} are not supported", what, declared.name(), kind));
  };
  switch (type.value_case()) {
    case onnx::TypeProto::kTensorType:
      break;
    case onnx::TypeProto::VALUE_NOT_SET:
      return;
    case onnx::TypeProto::kSequenceType:
      return refuse("sequences");
    case onnx::TypeProto::kMapType:
      return refuse("maps");
    case onnx::TypeProto::kOptionalType:
      return refuse("optionals");
    case onnx::TypeProto::kSparseTensorType:
      return refuse("sparse tensors");
    case onnx::TypeProto::kOpaqueType:
      return refuse("opaque types");
  }
  const onnx::TypeProto::Tensor& tensor = type.tensor_type();
  if (tensor.elem_type() != onnx::TensorProto::UNDEFINED) {
    const auto element = from_onnx_type(tensor.elem_type());
    if (!element) refuse(fmt::format("tensors of type {}", onnx_type_name(tensor.elem_type())));
    info.type = *element;
  }
  if (!tensor.has_shape()) return;
  info.shape.emplace();
  bool named = false;
  for (const auto& dim : tensor.shape().dim()) {
    info.shape->push_back(dim.has_dim_value() && dim.dim_value() >= 0 ? dim.dim_value() : -1);
    info.dim_names.push_back(dim.dim_param());
    named |= !dim.dim_param().empty();
  }
  if (!named) info.dim_names.clear();
}

}  // namespace ulpscope::onnx_model
