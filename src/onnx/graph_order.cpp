#include "onnx/graph_order.h"

#include <fmt/format.h>

#include <algorithm>
#include <queue>
#include <unordered_map>
#include <unordered_set>

namespace ulpscope::onnx_model {
namespace {

/// Names the nodes of one cycle. `waiting[i]`: the nodes before node i that are not placed, of which one has to wait.
std::string describe_cycle(const std::vector<FlatNode>& nodes, const std::vector<std::vector<std::size_t>>& needs,
                           const std::vector<bool>& placed) {
  std::size_t at = 0;
  while (placed[at]) ++at;
  std::vector<std::size_t> path;
  std::vector<bool> on_path(nodes.size(), false);
  while (!on_path[at]) {
    on_path[at] = true;
    path.push_back(at);
    at = *std::ranges::find_if(needs[at], [&](std::size_t n) { return !placed[n]; });
  }
  path.erase(path.begin(), std::ranges::find(path, at));
  std::string text;
  const std::size_t shown = std::min<std::size_t>(path.size(), 8);
  for (std::size_t i = 0; i < shown; ++i)
    text += fmt::format("{}'{}'", i == 0 ? "" : ", ", node_name(*nodes[path[i]].proto));
  if (shown < path.size()) text += fmt::format(" and {} more", path.size() - shown);
  return fmt::format("the graph has a cycle through node{} {}", path.size() == 1 ? "" : "s", text);
}

}  // namespace

std::vector<std::string> captured_values(const onnx::NodeProto& node) {
  std::vector<std::string> result;
  for_each_body(node, [&](const onnx::GraphProto& body) {
    for (std::string& name : free_values(body)) result.push_back(std::move(name));
  });
  return result;
}

std::vector<std::string> values_read(const onnx::NodeProto& node) {
  std::vector<std::string> result;
  for (const auto& input : node.input())
    if (!input.empty()) result.push_back(input);
  for (std::string& name : captured_values(node)) result.push_back(std::move(name));
  return result;
}

std::vector<std::string> free_values(const onnx::GraphProto& graph) {
  std::unordered_set<std::string> seen;
  for (const auto& input : graph.input()) seen.insert(input.name());
  for (const auto& initializer : graph.initializer()) seen.insert(initializer.name());
  for (const auto& node : graph.node()) seen.insert(node.output().begin(), node.output().end());
  std::vector<std::string> result;
  const auto use = [&](const std::string& name) {
    if (!name.empty() && seen.insert(name).second) result.push_back(name);
  };
  for (const auto& node : graph.node())
    for (const auto& name : values_read(node)) use(name);
  for (const auto& output : graph.output()) use(output.name());
  return result;
}

std::string sort_nodes(std::vector<FlatNode>& nodes, const std::function<bool(const std::string&)>& is_defined) {
  std::unordered_map<std::string, std::size_t> producer;
  for (std::size_t i = 0; i < nodes.size(); ++i)
    for (const auto& output : nodes[i].proto->output()) {
      if (output.empty()) continue;
      const auto [found, inserted] = producer.emplace(output, i);
      if (!inserted)
        return fmt::format("value '{}' is computed by node '{}' and by node '{}'", output,
                           node_name(*nodes[found->second].proto), node_name(*nodes[i].proto));
    }
  std::vector<std::vector<std::size_t>> needs(nodes.size()), feeds(nodes.size());
  std::vector<std::size_t> missing(nodes.size(), 0);
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    for (const auto& name : values_read(*nodes[i].proto)) {
      if (const auto found = producer.find(name); found != producer.end())
        needs[i].push_back(found->second);
      else if (!is_defined(name))
        return fmt::format("node '{}' ({}) reads '{}', which nothing computes", node_name(*nodes[i].proto),
                           nodes[i].proto->op_type(), name);
    }
    std::ranges::sort(needs[i]);
    needs[i].erase(std::unique(needs[i].begin(), needs[i].end()), needs[i].end());
    missing[i] = needs[i].size();
    for (std::size_t n : needs[i]) feeds[n].push_back(i);
  }
  std::priority_queue<std::size_t, std::vector<std::size_t>, std::greater<>> ready;
  for (std::size_t i = 0; i < nodes.size(); ++i)
    if (missing[i] == 0) ready.push(i);
  std::vector<FlatNode> sorted;
  std::vector<bool> placed(nodes.size(), false);
  sorted.reserve(nodes.size());
  while (!ready.empty()) {
    const std::size_t i = ready.top();
    ready.pop();
    placed[i] = true;
    sorted.push_back(nodes[i]);
    for (std::size_t n : feeds[i])
      if (--missing[n] == 0) ready.push(n);
  }
  if (sorted.size() != nodes.size()) return describe_cycle(nodes, needs, placed);
  nodes = std::move(sorted);
  return {};
}

}  // namespace ulpscope::onnx_model
