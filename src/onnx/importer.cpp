#include "onnx/importer.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "core/messages.h"
#include "graph/inference.h"
#include "onnx/element_type.h"
#include "onnx/graph_order.h"
#include "onnx/sequences.h"
#include "ulpscope/error.h"

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
  infer_captured_shapes(*built.network);
  return built.network;
}

void Importer::fail(ErrorCode code, const std::string& message) const {
  throw error_of(code, "[import] {}: {}", file_.source, message);
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
      fail(ErrorCode::kUnsupported, fmt::format("graph '{}': its output '{}' is a sequence, map or optional, which is "
                                                "not supported inside of an If, Loop or Scan",
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
    log_info("[import] {}: output '{}' is {}: {}", file_.source, each.output, each.what,
             each.tensors.empty() ? "it is left out"
                                  : fmt::format("what is run and compared are the tensors that go into it: {}",
                                                fmt::join(each.tensors, ", ")));
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

void Importer::add_outputs(const std::vector<std::string>& names, const std::string& graph, Scope& scope,
                           const std::unordered_set<std::string>& as_tensors) {
  std::unordered_set<std::string> seen;
  for (const std::string& name : names) {
    if (!scope.values.contains(name) && !scope.constants.contains(name))
      fail(ErrorCode::kInvalidFile, fmt::format("the output '{}' of graph '{}' is computed by no node", name, graph));
    if (!seen.insert(name).second && scope.parent == nullptr) {
      log_info("[import] {}: output '{}' is listed twice, and handed out once", file_.source, name);
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

void Importer::describe(const onnx::ValueInfoProto& declared, TensorInfo& info, const std::string& what) const {
  // An optional that is an input has to be given: a tensor.
  const bool optional = declared.type().optional_type().elem_type().has_tensor_type();
  const onnx::TypeProto& type = optional ? declared.type().optional_type().elem_type() : declared.type();
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
