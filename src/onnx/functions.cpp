#include "onnx/functions.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>

#include "core/messages.h"
#include "core/utf8.h"
#include "onnx/type_support.h"

namespace ulpscope::onnx_model {
namespace {

using AttributeValues = std::unordered_map<std::string, const onnx::AttributeProto*>;

constexpr std::size_t kMaxExpandedNodes = 1u << 20, kMaxExpandedBytes = 256u << 20, kMaxCallDepth = 128;

void collect_values(const onnx::GraphProto& graph, std::unordered_set<std::string>& names) {
  for (const auto& input : graph.input()) names.insert(input.name());
  for (const auto& initializer : graph.initializer()) names.insert(initializer.name());
  for (const auto& node : graph.node()) {
    names.insert(node.output().begin(), node.output().end());
    for_each_body(node, [&](const onnx::GraphProto& body) { collect_values(body, names); });
  }
}

void rename(std::string* name, const Names& names) {
  if (const auto found = names.find(*name); found != names.end()) *name = found->second;
}

/// Replaces references to the function's attributes by the values of this call; those without a value disappear.
void bind_attributes(onnx::NodeProto& node, const AttributeValues& values) {
  for (int i = node.attribute_size(); i-- > 0;) {
    auto& attribute = *node.mutable_attribute(i);
    if (!attribute.ref_attr_name().empty()) {
      const auto found = values.find(attribute.ref_attr_name());
      if (found == values.end()) {
        node.mutable_attribute()->DeleteSubrange(i, 1);
        continue;
      }
      const std::string name = attribute.name();
      attribute = *found->second;
      attribute.set_name(name);
      continue;
    }
    if (attribute.has_g())
      for (auto& inner : *attribute.mutable_g()->mutable_node()) bind_attributes(inner, values);
    for (auto& graph : *attribute.mutable_graphs())
      for (auto& inner : *graph.mutable_node()) bind_attributes(inner, values);
  }
}

}  // namespace

void rename_node(onnx::NodeProto& node, const Names& names, const std::string& prefix) {
  if (!node.name().empty()) node.set_name(prefix + node.name());
  for (auto& input : *node.mutable_input()) rename(&input, names);
  for (auto& output : *node.mutable_output()) rename(&output, names);
  for_each_body(node, [&](onnx::GraphProto& body) { rename_graph(body, names, prefix); });
}

void rename_graph(onnx::GraphProto& graph, Names names, const std::string& prefix) {
  for (const auto& input : graph.input()) names.erase(input.name());
  for (const auto& initializer : graph.initializer()) names.erase(initializer.name());
  for (const auto& node : graph.node())
    for (const auto& output : node.output()) names.erase(output);
  for (auto& node : *graph.mutable_node()) rename_node(node, names, prefix);
  for (auto& output : *graph.mutable_output()) rename(output.mutable_name(), names);
}

std::string domain_of(const std::string& domain) { return domain == "ai.onnx" ? std::string() : domain; }

std::string node_name(const onnx::NodeProto& node) {
  if (!node.name().empty()) return as_utf8(node.name());
  for (const auto& output : node.output())
    if (!output.empty()) return "node_of_" + as_utf8(output);
  return "node_of_" + as_utf8(node.op_type());
}

FunctionInliner::FunctionInliner(const onnx::ModelProto& model, const Opsets& model_opsets, std::string source)
    : source_(std::move(source)) {
  for (const auto& function : model.functions()) {
    Opsets opsets = model_opsets;
    for (const auto& import : function.opset_import()) opsets[domain_of(import.domain())] = import.version();
    const Key key{domain_of(function.domain()), function.name(), function.overload()};
    if (!functions_.emplace(key, Function{&function, std::move(opsets)}).second)
      fail(fmt::format("function '{}' of domain '{}' is defined twice", function.name(), function.domain()));
  }
  if (!functions_.empty()) collect_values(model.graph(), values_);
}

void FunctionInliner::fail(const std::string& message) const {
  throw invalid_file("[import] {}: {}", source_, message);
}

std::vector<FlatNode> FunctionInliner::expand(const google::protobuf::RepeatedPtrField<onnx::NodeProto>& nodes,
                                              const Opsets& opsets) {
  std::vector<FlatNode> out;
  out.reserve(static_cast<std::size_t>(nodes.size()));
  for (const auto& node : nodes) expand_node(node, opsets, out);
  return out;
}

void FunctionInliner::expand_node(const onnx::NodeProto& node, const Opsets& opsets, std::vector<FlatNode>& out) {
  const Key key{domain_of(node.domain()), node.op_type(), node.overload()};
  const auto found = functions_.find(key);
  if (found == functions_.end())
    out.push_back({&node, &opsets});
  else
    inline_call(node, key, found->second, out);
}

std::string FunctionInliner::fresh_value(const std::string& wanted) {
  std::string name = wanted;
  if (values_.insert(name).second) return name;
  // Calls of one name make the same wishes: the search goes on where that of the one before ended.
  for (int& n = suffixes_[wanted];; ++n)
    if (name = fmt::format("{}_{}", wanted, n); values_.insert(name).second) return name;
}

void FunctionInliner::inline_call(const onnx::NodeProto& call, const Key& key, const Function& function,
                                  std::vector<FlatNode>& out) {
  const onnx::FunctionProto& proto = *function.proto;
  const std::string name = node_name(call);
  if (!active_.insert(key).second) fail(fmt::format("function '{}' calls itself (node '{}')", proto.name(), name));
  if (active_.size() > kMaxCallDepth)
    fail(fmt::format("function '{}': calls are nested more than {} deep", proto.name(), kMaxCallDepth));
  if (call.input_size() > proto.input_size() || call.output_size() > proto.output_size())
    fail(fmt::format("node '{}' calls function '{}' with {} inputs and {} outputs; it has {} and {}", name,
                     proto.name(), call.input_size(), call.output_size(), proto.input_size(), proto.output_size()));
  const std::string prefix = name + "/";

  Names names;
  for (int i = 0; i < proto.input_size(); ++i)
    names[proto.input(i)] = i < call.input_size() ? call.input(i) : std::string();
  std::vector<std::pair<std::string, std::string>> copies;  // outputs that only pass a value on
  for (int i = 0; i < call.output_size(); ++i) {
    if (call.output(i).empty()) continue;
    if (!names.emplace(proto.output(i), call.output(i)).second)
      copies.emplace_back(names[proto.output(i)], call.output(i));
  }
  for (const auto& node : proto.node())
    for (const auto& output : node.output())
      if (!output.empty() && !names.contains(output)) names[output] = fresh_value(prefix + output);
  names[""] = "";

  AttributeValues values;
  for (const auto& attribute : proto.attribute_proto()) values[attribute.name()] = &attribute;
  for (const auto& attribute : call.attribute()) values[attribute.name()] = &attribute;

  for (const auto& node : proto.node()) {
    expanded_bytes_ += node.ByteSizeLong();
    if (++expanded_ > kMaxExpandedNodes || expanded_bytes_ > kMaxExpandedBytes)
      fail(fmt::format("its functions expand to more than {} nodes, or {} MiB of them", kMaxExpandedNodes,
                       kMaxExpandedBytes >> 20));
    onnx::NodeProto& copy = copies_.emplace_back(node);
    rename_node(copy, names, prefix);
    bind_attributes(copy, values);
    expand_node(copy, function.opsets, out);
  }
  for (const auto& [from, to] : copies) {
    onnx::NodeProto& copy = copies_.emplace_back();
    copy.set_op_type("Identity");
    copy.set_name(prefix + "Identity_" + to);
    copy.add_input(from);
    copy.add_output(to);
    out.push_back({&copy, &function.opsets});
  }
  active_.erase(key);
}

namespace {

/// The function's nodes mean the same under the model's opsets.
bool fits(const onnx::FunctionProto& function, const Opsets& opsets) {
  for (const auto& import : function.opset_import()) {
    const std::string domain = domain_of(import.domain());
    const auto found = opsets.find(domain);
    if (found == opsets.end() || found->second == import.version()) continue;
    if (!domain.empty()) return false;
    const auto low = static_cast<int>(std::min<std::int64_t>(import.version(), found->second));
    const auto high = static_cast<int>(std::max<std::int64_t>(import.version(), found->second));
    for (const auto& node : function.node()) {
      if (!domain_of(node.domain()).empty()) continue;
      if (!onnx_means_the_same("", node.op_type(), low, high)) return false;
      for (const auto& attribute : node.attribute())
        if (attribute.has_g() || attribute.graphs_size() > 0) return false;
    }
  }
  return true;
}

void expand_graph(onnx::GraphProto& graph, FunctionInliner& inliner, const Opsets& opsets) {
  // The flat nodes refer to those of the graph.
  google::protobuf::RepeatedPtrField<onnx::NodeProto> nodes;
  for (const FlatNode& node : inliner.expand(graph.node(), opsets)) *nodes.Add() = *node.proto;
  *graph.mutable_node() = std::move(nodes);
  for (auto& node : *graph.mutable_node())
    for_each_body(node, [&](onnx::GraphProto& body) { expand_graph(body, inliner, opsets); });
}

void collect_domains(const onnx::GraphProto& graph, std::set<std::string>& domains) {
  for (const auto& node : graph.node()) {
    domains.insert(domain_of(node.domain()));
    for_each_body(node, [&](const onnx::GraphProto& body) { collect_domains(body, domains); });
  }
}

}  // namespace

int inline_functions(onnx::ModelProto& model, const std::string& source) {
  if (model.functions_size() == 0) return 0;
  Opsets opsets;
  for (const auto& import : model.opset_import()) opsets[domain_of(import.domain())] = import.version();
  std::set<Opsets::key_type> own;
  std::set<std::tuple<std::string, std::string>> names;
  for (const auto& function : model.functions()) {
    if (!fits(function, opsets)) return 0;
    own.insert(domain_of(function.domain()));
    names.insert({domain_of(function.domain()), function.name()});
  }
  for (const auto& function : model.functions())
    for (const auto& import : function.opset_import())
      if (opsets.emplace(domain_of(import.domain()), import.version()).second) *model.add_opset_import() = import;
  int calls = 0;
  for (const auto& node : model.graph().node()) calls += names.contains({domain_of(node.domain()), node.op_type()});
  FunctionInliner inliner(model, opsets, source);
  expand_graph(*model.mutable_graph(), inliner, opsets);
  model.clear_functions();
  std::set<std::string> used;
  collect_domains(model.graph(), used);
  for (int i = model.opset_import_size(); i-- > 0;)
    if (const std::string domain = domain_of(model.opset_import(i).domain());
        own.contains(domain) && !used.contains(domain))
      model.mutable_opset_import()->DeleteSubrange(i, 1);
  return calls;
}

}  // namespace ulpscope::onnx_model
