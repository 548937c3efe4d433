#include "tools/inspect_onnx.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "compare/array_text.h"
#include "compare/results.h"
#include "onnx/element_type.h"
#include "tools/inspect_text.h"

namespace ulpscope::cli {
namespace {

using Json = nlohmann::ordered_json;

std::string shape_text(const std::vector<OnnxDimension>& shape) {
  std::vector<std::string> dims;
  for (const OnnxDimension& dim : shape)
    dims.push_back(std::holds_alternative<std::string>(dim) ? python_string(std::get<std::string>(dim))
                                                            : std::to_string(std::get<std::int64_t>(dim)));
  return fmt::format("({}{})", fmt::join(dims, ", "), dims.size() == 1 ? "," : "");
}

std::string list_text(const Shape& shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

std::string values_text(const OnnxConstant& constant) {
  return constant.value ? array_text(constant.value) : "<error: failed to load weights>";
}

/// What is known of the values of a graph and of those around it, by name.
struct Known {
  struct Entry {
    std::string type, shape;
  };
  std::unordered_map<std::string, Entry> values;

  void add(const OnnxValue& value) { values[value.name] = {value.type, value.shape ? shape_text(*value.shape) : ""}; }
  void add(const OnnxConstant& value) { values[value.name] = {value.type, to_string(value.shape)}; }
};

/// As for a mapping: a name that comes again counts once.
std::vector<std::string> entries_of(const std::vector<OnnxValue>& values) {
  std::vector<std::string> result, names;
  for (const OnnxValue& value : values) {
    if (std::ranges::find(names, value.name) != names.end()) continue;
    names.push_back(value.name);
    result.push_back(tensor_text(value.name, value.type, value.shape ? shape_text(*value.shape) : ""));
  }
  return result;
}

/// Element types are numbers in attributes of these names.
std::string integer_text(const std::string& name, std::int64_t value) {
  const bool type = name == "to" || name == "dtype" || name == "target_type";
  return type && value > 0 && value < 256 ? onnx_model::onnx_type_name(static_cast<int>(value)) : std::to_string(value);
}

class Writer {
 public:
  explicit Writer(const InspectShow& show) : show_(show) {}

  std::string graph(const OnnxGraph& graph, const std::string& title, const Known& outer, bool subgraph, int level) {
    const std::string_view prefix = subgraph ? "Subgraph" : "Graph";
    Known known = outer;
    for (const OnnxValue& value : graph.values) known.add(value);
    for (const OnnxConstant& constant : graph.initializers) known.add(constant);
    for (const OnnxValue& value : graph.inputs) known.add(value);
    for (const OnnxValue& value : graph.outputs) known.add(value);
    std::unordered_map<std::string, bool> initialized;
    for (const OnnxConstant& constant : graph.initializers) initialized[constant.name] = true;

    std::string out = title.empty() ? "" : title + "\n\n";
    if (show_.attributes && !graph.documentation.empty())
      out += fmt::format("---- Docstring ----\n{}\n\n", graph.documentation);
    const std::vector<std::string> inputs = entries_of(graph.inputs), outputs = entries_of(graph.outputs);
    out += fmt::format("---- {} {} Input(s) ----\n{}\n\n", inputs.size(), prefix, braces(inputs));
    out += fmt::format("---- {} {} Output(s) ----\n{}\n\n", outputs.size(), prefix, braces(outputs));
    out += fmt::format("---- {} Initializer(s) ----\n", graph.initializers.size());
    if (show_.weights) {
      for (const OnnxConstant& constant : graph.initializers)
        out += fmt::format("Initializer | {} [dtype={}, shape={}] | Values:\n{}\n\n", constant.name, constant.type,
                           list_text(constant.shape), indent_block(values_text(constant)));
      if (graph.initializers.empty()) out += "{}\n\n";
    } else if (show_.layers) {
      std::vector<std::string> entries;
      for (const OnnxConstant& constant : graph.initializers)
        entries.push_back(tensor_text(constant.name, constant.type, to_string(constant.shape)));
      out += braces(entries) + "\n\n";
    } else {
      out += "\n";
    }
    out += fmt::format("---- {} Node(s) ----\n", graph.nodes.size());
    if (!show_.layers) return indent_block(out, level);
    const auto describe = [&](const std::vector<std::string>& names) {
      std::vector<std::string> entries;
      for (const std::string& name : names) {
        const auto found = known.values.find(name);
        const std::string shown = initialized.contains(name) ? "Initializer | " + name : name;
        entries.push_back(found == known.values.end() ? stripped(shown)
                                                      : tensor_text(shown, found->second.type, found->second.shape));
      }
      return entries;
    };
    for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
      const OnnxNode& node = graph.nodes[i];
      out += layer_text("Node", i, node.name, node.op, describe(node.inputs), describe(node.outputs));
      if (show_.attributes && !node.attributes.empty()) {
        out += indent_block("---- Attributes ----") + "\n";
        for (const auto& [name, value] : node.attributes)
          out += indent_block(fmt::format("{}{} = {}", node.name.empty() ? "" : node.name + ".", name,
                                          attribute(name, value, known, level))) +
                 "\n";
      }
      out += "\n";
    }
    return indent_block(out, level);
  }

 private:
  std::string attribute(const std::string& name, const OnnxAttribute& value, const Known& known, int level) {
    if (const auto integer = std::get_if<std::int64_t>(&value)) return integer_text(name, *integer);
    if (const auto real = std::get_if<float>(&value)) return python_float(static_cast<double>(*real));
    if (const auto text = std::get_if<std::string>(&value)) return *text;
    if (const auto integers = std::get_if<std::vector<std::int64_t>>(&value))
      return fmt::format("[{}]", fmt::join(*integers, ", "));
    if (const auto reals = std::get_if<std::vector<float>>(&value)) {
      std::vector<std::string> words;
      for (const float real : *reals) words.push_back(python_float(static_cast<double>(real)));
      return fmt::format("[{}]", fmt::join(words, ", "));
    }
    if (const auto texts = std::get_if<std::vector<std::string>>(&value)) return python_list(*texts);
    if (const auto constant = std::get_if<OnnxConstant>(&value)) {
      std::string text = fmt::format("Tensor: [dtype={}, shape={}]", constant->type, list_text(constant->shape));
      if (show_.weights) text += " | Values:\n" + indent_block(values_text(*constant));
      return text;
    }
    return "\n" + graph(*std::get<std::shared_ptr<const OnnxGraph>>(value), "", known, true, level + 2);
  }

  InspectShow show_;
};

Json value_json(const OnnxValue& value) {
  Json json{{"name", value.name}, {"type", value.type}, {"shape", nullptr}};
  if (!value.shape) return json;
  json["shape"] = Json::array();
  for (const OnnxDimension& dim : *value.shape)
    std::visit([&](const auto& each) { json["shape"].push_back(each); }, dim);
  return json;
}

Json constant_json(const OnnxConstant& constant) {
  return {{"name", constant.name}, {"type", constant.type}, {"shape", constant.shape}};
}

Json graph_json(const OnnxGraph& graph, const InspectShow& show);

Json attribute_json(const OnnxAttribute& value, const InspectShow& show) {
  if (const auto constant = std::get_if<OnnxConstant>(&value)) return constant_json(*constant);
  if (const auto inner = std::get_if<std::shared_ptr<const OnnxGraph>>(&value)) return graph_json(**inner, show);
  Json json;
  std::visit(
      [&](const auto& each) {
        if constexpr (std::is_constructible_v<Json, decltype(each)>) json = each;
      },
      value);
  return json;
}

Json graph_json(const OnnxGraph& graph, const InspectShow& show) {
  Json json{{"name", graph.name}, {"inputs", Json::array()}, {"outputs", Json::array()}};
  for (const OnnxValue& value : graph.inputs) json["inputs"].push_back(value_json(value));
  for (const OnnxValue& value : graph.outputs) json["outputs"].push_back(value_json(value));
  json["num_initializers"] = graph.initializers.size();
  json["num_nodes"] = graph.nodes.size();
  if (show.layers || show.weights) {
    json["initializers"] = Json::array();
    for (const OnnxConstant& constant : graph.initializers) json["initializers"].push_back(constant_json(constant));
  }
  if (!show.layers) return json;
  json["nodes"] = Json::array();
  for (const OnnxNode& node : graph.nodes) {
    Json entry{{"name", node.name}, {"op", node.op}, {"inputs", node.inputs}, {"outputs", node.outputs}};
    if (!node.domain.empty()) entry["domain"] = node.domain;
    if (show.attributes) {
      entry["attributes"] = Json::object();
      for (const auto& [name, value] : node.attributes) entry["attributes"][name] = attribute_json(value, show);
    }
    json["nodes"].push_back(std::move(entry));
  }
  return json;
}

}  // namespace

std::vector<std::string> unbounded_tensors(const OnnxGraph& graph) {
  // Operators and the input that decides the size of their output.
  static const std::unordered_map<std::string, std::size_t> kDeciding{
      {"Range", 1}, {"Pad", 1}, {"Resize", 3}, {"Tile", 1}, {"Expand", 1}};
  std::unordered_map<std::string, std::string> producers;  // Names of operators, by tensor.
  for (const OnnxNode& node : graph.nodes)
    for (const std::string& output : node.outputs) producers[output] = node.op;
  std::unordered_map<std::string, const OnnxValue*> described;
  for (const std::vector<OnnxValue>* values : {&graph.values, &graph.outputs})
    for (const OnnxValue& value : *values) described[value.name] = &value;
  std::unordered_set<std::string> known;  // Names of dimensions.
  for (const OnnxValue& input : graph.inputs)
    for (const OnnxDimension& dim : input.shape.value_or(std::vector<OnnxDimension>{}))
      if (const auto* name = std::get_if<std::string>(&dim)) known.insert(*name);

  const auto brings_a_size = [&](const std::string& tensor) {
    const auto found = described.find(tensor);
    // Outputs without a shape are shown as scalars.
    if (found == described.end() || !found->second->shape || found->second->shape->empty()) return true;
    bool brings = false;
    for (const OnnxDimension& dim : *found->second->shape) {
      const auto* name = std::get_if<std::string>(&dim);
      brings = brings || (name ? known.insert(*name).second : std::get<std::int64_t>(dim) < 0);
    }
    return brings;
  };
  std::vector<std::string> result;
  for (const OnnxNode& node : graph.nodes) {
    bool brings = false;
    for (const std::string& output : node.outputs) brings = brings_a_size(output) || brings;
    const auto deciding = kDeciding.find(node.op);
    if (!brings || deciding == kDeciding.end() || deciding->second >= node.inputs.size()) continue;
    const std::string& tensor = node.inputs[deciding->second];
    const auto producer = producers.find(tensor);
    if (producer == producers.end() || producer->second == "Min" || producer->second == "Constant") continue;
    if (std::ranges::find(result, tensor) == result.end()) result.push_back(tensor);
  }
  return result;
}

std::string onnx_text(const OnnxDescription& model, const InspectShow& show) {
  std::string opset = "Unknown";
  std::vector<std::string> others;
  for (const auto& [domain, version] : model.opsets) {
    if (domain.empty())
      opset = std::to_string(version);
    else
      others.push_back(fmt::format("{}: {}", python_string(domain), version));
  }
  std::string title = fmt::format("Name: {} | ONNX Opset: {}", model.graph.name, opset);
  if (!others.empty()) title += fmt::format(" | Other Opsets: {{{}}}", fmt::join(others, ", "));
  return stripped(Writer(show).graph(model.graph, title, {}, false, 0));
}

Json onnx_json(const OnnxDescription& model, const InspectShow& show) {
  Json json{{"kind", "onnx"}, {"opsets", Json::object()}};
  for (const auto& [domain, version] : model.opsets) json["opsets"][domain] = version;
  json.update(graph_json(model.graph, show));
  return json;
}

}  // namespace ulpscope::cli
