#include "onnx/opset_upgrade.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "onnx/functions.h"
#include "onnx/type_support.h"

namespace ulpscope::onnx_model {
namespace {

/// Softmax and its like flattened everything from `axis` on up to opset 12, and work along one axis since.
bool is_softmax(std::string_view op) { return op == "Softmax" || op == "LogSoftmax" || op == "Hardmax"; }

/// A list of integers that became an input.
struct MovedAttribute {
  std::string_view op;
  int since;
  const char* attribute;
};
constexpr std::array kMoved{
    MovedAttribute{"Squeeze", 13, "axes"},         MovedAttribute{"Unsqueeze", 13, "axes"},
    MovedAttribute{"ReduceSum", 13, "axes"},       MovedAttribute{"Split", 13, "split"},
    MovedAttribute{"ReduceL1", 18, "axes"},        MovedAttribute{"ReduceL2", 18, "axes"},
    MovedAttribute{"ReduceLogSum", 18, "axes"},    MovedAttribute{"ReduceLogSumExp", 18, "axes"},
    MovedAttribute{"ReduceMax", 18, "axes"},       MovedAttribute{"ReduceMean", 18, "axes"},
    MovedAttribute{"ReduceMin", 18, "axes"},       MovedAttribute{"ReduceProd", 18, "axes"},
    MovedAttribute{"ReduceSumSquare", 18, "axes"},
};

/// What changed between the two opsets, if it is nothing else.
const MovedAttribute* moved_attribute(std::string_view op, int from, int to) {
  for (const MovedAttribute& each : kMoved)
    if (each.op == op && from < each.since && each.since <= to && onnx_means_the_same("", op, from, each.since - 1) &&
        onnx_means_the_same("", op, each.since, to))
      return &each;
  return nullptr;
}

bool softmax_changes(const onnx::NodeProto& node, int from, int to) {
  return is_softmax(node.op_type()) && from < 13 && to >= 13;
}

std::int64_t softmax_axis(const onnx::NodeProto& node) {
  const auto* axis = find_attribute(node, "axis");
  return axis == nullptr ? 1 : axis->i();
}

bool has_padding(const onnx::NodeProto& node) {
  if (const auto* automatic = find_attribute(node, "auto_pad"); automatic != nullptr && automatic->s() != "NOTSET")
    return automatic->s() != "VALID";
  const auto* pads = find_attribute(node, "pads");
  return pads != nullptr && std::ranges::any_of(pads->ints(), [](std::int64_t pad) { return pad != 0; });
}

/// A last window of padding alone, which rounding up the size leaves, counts up to opset 21.
bool window_changes(const onnx::NodeProto& node, int from, int to) {
  if (node.op_type() != "AveragePool" || from >= 22 || to < 22) return false;
  const auto* ceil = find_attribute(node, "ceil_mode");
  return ceil != nullptr && ceil->i() != 0 && has_padding(node);
}

/// The definition of MeanVarianceNormalization lost its default axes, as far as onnx.checker sees.
bool needs_axes(const onnx::NodeProto& node, int from, int to) {
  return node.op_type() == "MeanVarianceNormalization" && from < 13 && to >= 13 &&
         find_attribute(node, "axes") == nullptr;
}

}  // namespace

std::string upgrade_obstacle(const onnx::NodeProto& node, int from, int to, const RankOf& rank_of) {
  if (!domain_of(node.domain()).empty()) return {};
  const std::string& op = node.op_type();
  if (softmax_changes(node, from, to)) {
    const int rank = node.input_size() > 0 ? rank_of(node.input(0)) : -1;
    const std::int64_t axis = softmax_axis(node);
    if (rank > 0 && (axis == -1 || axis == rank - 1)) return {};
    return fmt::format("{} '{}' (its axis {} is not the last one{})", op, node_name(node), axis,
                       rank < 0 ? ", as far as is known" : fmt::format(" of {}", rank));
  }
  if (window_changes(node, from, to)) return fmt::format("{} '{}' (it rounds sizes up)", op, node_name(node));
  // Only training changed.
  if (op == "BatchNormalization" && node.output_size() == 1 && from >= 9) return {};
  if (onnx_means_the_same("", op, from, to) || moved_attribute(op, from, to) != nullptr) return {};
  return fmt::format("{} '{}'", op, node_name(node));
}

void upgrade(
    onnx::NodeProto& node, int from, int to, const RankOf& rank_of,
    const std::function<std::string(const std::string& name, const std::vector<std::int64_t>&)>& add_integers) {
  if (!domain_of(node.domain()).empty()) return;
  const auto set_integer = [&](const char* name, std::int64_t value) {
    onnx::AttributeProto* attribute = nullptr;
    for (auto& each : *node.mutable_attribute())
      if (each.name() == name) attribute = &each;
    if (attribute == nullptr) attribute = node.add_attribute();
    attribute->set_name(name);
    attribute->set_type(onnx::AttributeProto::INT);
    attribute->set_i(value);
  };
  if (softmax_changes(node, from, to)) set_integer("axis", rank_of(node.input(0)) - 1);
  if (needs_axes(node, from, to)) {
    onnx::AttributeProto& axes = *node.add_attribute();
    axes.set_name("axes");
    axes.set_type(onnx::AttributeProto::INTS);
    for (const std::int64_t axis : {0, 2, 3}) axes.add_ints(axis);
  }
  if (const MovedAttribute* moved = moved_attribute(node.op_type(), from, to)) {
    for (int a = node.attribute_size(); a-- > 0;) {
      if (node.attribute(a).name() != moved->attribute) continue;
      const auto& integers = node.attribute(a).ints();
      const std::string input =
          add_integers(node_name(node) + "_" + moved->attribute, {integers.begin(), integers.end()});
      node.mutable_attribute()->DeleteSubrange(a, 1);
      while (node.input_size() < 2) node.add_input("");
      node.set_input(1, input);
    }
  }
  // Equal parts are asked for by their number since opset 18.
  if (node.op_type() == "Split" && from < 18 && to >= 18 && (node.input_size() < 2 || node.input(1).empty()))
    set_integer("num_outputs", node.output_size());
}

}  // namespace ulpscope::onnx_model
