// What the importer does about operators that are not ulpscope's.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <ranges>

#include "core/messages.h"
#include "onnx/graph_order.h"
#include "onnx/importer.h"
#include "ulpscope/error.h"

namespace ulpscope::onnx_model {

std::string Importer::UnknownOperator::full_name() const { return domain.empty() ? name : domain + "." + name; }

void Importer::warn_of_foreign_layers() const {
  constexpr std::size_t kMostNames = 8;
  std::vector<std::string> names;
  for (const UnknownOperator& op : foreign_)
    if (names.size() < kMostNames) names.push_back(fmt::format("'{}' ({})", op.node, op.full_name()));
  if (foreign_.size() > kMostNames) names.push_back(fmt::format("{} others", foreign_.size() - kMostNames));
  log_warning(
      "[import] {}: {} layer{} in ONNX Runtime, in float32 whatever is asked for, since ulpscope does not have the "
      "operators: {}",
      file_.source, foreign_.size(), foreign_.size() == 1 ? " runs" : "s run", fmt::join(names, ", "));
}

void Importer::report_unknown_operators() const {
  std::set<std::string> others;
  for (const auto& op : unknown_) others.insert(op.full_name());
  others.erase(unknown_.front().full_name());
  std::string message =
      fmt::format("operator '{}' (domain '{}') of node '{}' is not supported", unknown_.front().name,
                  unknown_.front().domain.empty() ? "ai.onnx" : unknown_.front().domain, unknown_.front().node);
  if (!others.empty())
    message += fmt::format("; {} other operator{} not supported either: {}", others.size(),
                           others.size() == 1 ? " is" : "s are", fmt::join(others, ", "));
  message += "; what is ahead of it can be run: try --trt-outputs with names of tensors there";
  fail(ErrorCode::kUnsupported, message);
}

namespace {

/// Of sorted nodes, those that the values in `needed` need; adds what these read. `left_out` gets the others.
std::vector<FlatNode> needed_nodes(const std::vector<FlatNode>& nodes, std::unordered_set<std::string>& needed,
                                   std::vector<FlatNode>& left_out) {
  std::vector<FlatNode> kept;
  for (const FlatNode& node : nodes | std::views::reverse) {
    if (std::ranges::none_of(node.proto->output(), [&](const auto& name) { return needed.contains(name); })) {
      left_out.push_back(node);
      continue;
    }
    for (const std::string& name : values_read(*node.proto)) needed.insert(name);
    kept.push_back(node);
  }
  std::ranges::reverse(kept);
  return kept;
}

}  // namespace

/// Leaves what these outputs need; outputs of the others that nobody needs may be strings.
void Importer::leave_out_others(const std::vector<std::string>& outputs, std::vector<FlatNode>& nodes) {
  std::unordered_set<std::string> needed(outputs.begin(), outputs.end());
  std::vector<FlatNode> others;
  nodes = needed_nodes(nodes, needed, others);
  for (FlatNode& node : nodes) {
    if (find_op(node) != nullptr) continue;
    const auto is_idle = [&](const std::string& name) { return !name.empty() && !needed.contains(name); };
    if (std::ranges::none_of(node.proto->output(), is_idle)) continue;
    onnx::NodeProto& copy = copies_.emplace_back(*node.proto);
    for (std::string& name : *copy.mutable_output())
      if (is_idle(name)) name.clear();
    node.proto = &copy;
  }
}

/// Leaves only the sorted nodes that the wanted outputs need if others have unknown operators, and returns these
/// outputs; nothing where all stays.
std::vector<std::string> Importer::leave_out_unknown(std::vector<FlatNode>& nodes) const {
  std::unordered_set<std::string> needed(wanted_.begin(), wanted_.end()), computed;
  for (const FlatNode& node : nodes) computed.insert(node.proto->output().begin(), node.proto->output().end());
  if (wanted_.empty() || !std::ranges::all_of(wanted_, [&](const auto& name) { return computed.contains(name); }))
    return {};
  std::vector<FlatNode> left_out;
  std::vector<FlatNode> kept = needed_nodes(nodes, needed, left_out);
  std::set<std::string> unknown;
  for (const FlatNode& node : left_out)
    if (find_op(node) == nullptr) unknown.insert(node.proto->op_type());
  if (unknown.empty()) return {};
  log_warning(
      "[import] {}: {} of {} nodes are left out: no wanted output needs them, and operators among them are not "
      "supported: {}",
      file_.source, nodes.size() - kept.size(), nodes.size(), fmt::join(unknown, ", "));
  nodes = std::move(kept);
  return wanted_;
}

}  // namespace ulpscope::onnx_model
