// Model-local functions, replaced by their bodies.
#pragma once

#include <deque>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "onnx-ml.pb.h"

namespace ulpscope::onnx_model {

/// Version per domain; "" is ai.onnx.
using Opsets = std::map<std::string, std::int64_t>;

/// "" for both spellings of the default domain.
std::string domain_of(const std::string& domain);

inline bool is_constant_node(const onnx::NodeProto& node) {
  return node.op_type() == "Constant" && domain_of(node.domain()).empty();
}

/// Null where the node has none of that name.
inline const onnx::AttributeProto* find_attribute(const onnx::NodeProto& node, std::string_view name) {
  for (const auto& attribute : node.attribute())
    if (attribute.name() == name) return &attribute;
  return nullptr;
}

/// Calls `visit` with every graph that the node's attributes hold, in their order.
template <typename Visit>
void for_each_body(const onnx::NodeProto& node, const Visit& visit) {
  for (const onnx::AttributeProto& attribute : node.attribute()) {
    if (attribute.has_g()) visit(attribute.g());
    for (const onnx::GraphProto& body : attribute.graphs()) visit(body);
  }
}
template <typename Visit>
void for_each_body(onnx::NodeProto& node, const Visit& visit) {
  for (onnx::AttributeProto& attribute : *node.mutable_attribute()) {
    if (attribute.has_g()) visit(*attribute.mutable_g());
    for (onnx::GraphProto& body : *attribute.mutable_graphs()) visit(body);
  }
}

/// The node's name, else `node_of_<first output>`: text for files and people, with what is no UTF-8 replaced.
std::string node_name(const onnx::NodeProto& node);

using Names = std::unordered_map<std::string, std::string>;
/// Renames what a sub-graph takes from around it; what it defines itself keeps its name. Its nodes, and those of its
/// own sub-graphs, get the prefix.
void rename_graph(onnx::GraphProto& graph, Names names, const std::string& prefix = {});
/// Renames what a node reads and writes, and what its sub-graphs take from around them. It gets the prefix, as they do.
void rename_node(onnx::NodeProto& node, const Names& names, const std::string& prefix);

/// A node of a graph after inlining, with the opsets that its operator is looked up in.
struct FlatNode {
  const onnx::NodeProto* proto;
  const Opsets* opsets;
};

/// Expands calls of model-local functions. Keeps the copies that it makes alive.
class FunctionInliner {
 public:
  FunctionInliner(const onnx::ModelProto& model, const Opsets& model_opsets, std::string source);

  /// The nodes with every call replaced, recursively. Values and nodes of a body are named `<calling node>/<name>`.
  /// Throws Error(kInvalidFile) for functions that call themselves and for expansions without measure.
  std::vector<FlatNode> expand(const google::protobuf::RepeatedPtrField<onnx::NodeProto>& nodes, const Opsets& opsets);

 private:
  using Key = std::tuple<std::string, std::string, std::string>;
  struct Function {
    const onnx::FunctionProto* proto;
    Opsets opsets;
  };
  void expand_node(const onnx::NodeProto& node, const Opsets& opsets, std::vector<FlatNode>& out);
  void inline_call(const onnx::NodeProto& call, const Key& key, const Function& function, std::vector<FlatNode>& out);
  std::string fresh_value(const std::string& wanted);
  [[noreturn]] void fail(const std::string& message) const;

  std::string source_;
  std::map<Key, Function> functions_;
  std::set<Key> active_;
  std::deque<onnx::NodeProto> copies_;
  std::unordered_set<std::string> values_;  ///< Every value name of the model; only filled when there are functions.
  std::unordered_map<std::string, int> suffixes_;  ///< Per value that was wanted more than once: the next to try.
  std::size_t expanded_ = 0, expanded_bytes_ = 0;
};

/// Puts the bodies of model-local functions in place of their calls, in every graph, under the names that an import
/// gives them; the functions go. Nothing happens where a function needs other opsets than the model has. Returns how
/// many calls of the main graph there were.
int inline_functions(onnx::ModelProto& model, const std::string& source);

}  // namespace ulpscope::onnx_model
