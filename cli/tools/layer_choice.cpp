#include "tools/layer_choice.h"

#include <fmt/format.h>

#include <algorithm>

#include "compare/name_values.h"
#include "graph/name_match.h"
#include "ulpscope/error.h"

namespace ulpscope::cli {
namespace {

std::vector<std::string> known_names(const Network& network) {
  std::vector<std::string> names;
  for (const Layer& layer : network.layers) {
    names.push_back(layer.name);
    for (const std::string& node : layer.nodes)
      if (node != layer.name) names.push_back(node);
  }
  for (const Layer& layer : network.layers)
    if (std::find(names.begin(), names.end(), layer.op->name) == names.end()) names.emplace_back(layer.op->name);
  return names;
}

/// Numbers of the layers that one word means.
std::vector<std::size_t> matches(const Network& network, const std::string& word) {
  std::vector<std::size_t> by_name, by_operator, by_pattern;
  const bool pattern = is_name_pattern(word);
  for (std::size_t l = 0; l < network.layers.size(); ++l) {
    const Layer& layer = network.layers[l];
    const bool named =
        layer.name == word || std::find(layer.nodes.begin(), layer.nodes.end(), word) != layer.nodes.end();
    if (named) by_name.push_back(l);
    if (layer.op->name == word) by_operator.push_back(l);
    if (pattern && (matches_name_pattern(layer.name, word) || matches_name_pattern(std::string(layer.op->name), word) ||
                    std::any_of(layer.nodes.begin(), layer.nodes.end(),
                                [&](const std::string& node) { return matches_name_pattern(node, word); })))
      by_pattern.push_back(l);
  }
  return !by_name.empty() ? by_name : !by_operator.empty() ? by_operator : by_pattern;
}

[[noreturn]] void fail_unknown(const Network& network, const std::string& option, const std::string& word) {
  const std::vector<std::string> names = known_names(network);
  throw Error(ErrorCode::kInvalidArgument,
              fmt::format("[options] {}: expected a layer, a node, an operator or a pattern that fits some, got '{}'{}",
                          option, word, did_you_mean(word, names)));
}

}  // namespace

std::vector<char> choose_layers(const Network& network, const std::string& option,
                                const std::vector<std::string>& words) {
  std::vector<char> chosen(network.layers.size(), 0);
  for (const std::string& word : words) {
    const auto found = matches(network, word);
    if (found.empty()) fail_unknown(network, option, word);
    for (std::size_t l : found) chosen[l] = 1;
  }
  return chosen;
}

std::vector<std::optional<DataType>> requested_types(const Network& network, const PrecisionChoice& choice) {
  std::vector<std::optional<DataType>> result(network.layers.size());
  const std::vector<char> keep = choose_layers(network, "--keep", choice.keep);
  const std::vector<char> lower = choose_layers(network, "--lower", choice.lower);
  for (std::size_t l = 0; l < result.size(); ++l) {
    if (keep[l] && lower[l])
      throw Error(
          ErrorCode::kInvalidArgument,
          fmt::format("[options] layer '{}' ({}): --keep and --lower both mean it; try naming it in one of them",
                      network.layers[l].name, network.layers[l].op->name));
    const bool computes = network.layers[l].op->precision == PrecisionRule::kCompute;
    if (computes && (keep[l] || (!choice.lower.empty() && !lower[l]))) result[l] = DataType::kFloat32;
  }
  for (const std::string& text : choice.layer_precisions) {
    const auto [name, type_name] = split_name(text);
    const auto type = data_type_from_name(type_name);
    if (name.empty() || !type || (!is_floating(*type) && *type != DataType::kInt8))
      throw Error(
          ErrorCode::kInvalidArgument,
          fmt::format("[options] --layer-precisions '{}': expected <layer>:<float32, float16, bfloat16 or int8>",
                      text));
    const auto found = matches(network, name);
    if (found.empty()) fail_unknown(network, "--layer-precisions", name);
    for (std::size_t l : found) {
      if ((keep[l] && *type != DataType::kFloat32) || (lower[l] && *type == DataType::kFloat32))
        throw Error(ErrorCode::kInvalidArgument,
                    fmt::format("[options] layer '{}': --{} and --layer-precisions '{}' disagree",
                                network.layers[l].name, keep[l] ? "keep" : "lower", text));
      if (network.layers[l].op->precision == PrecisionRule::kCompute) result[l] = *type;
    }
  }
  return result;
}

}  // namespace ulpscope::cli
