#include "tools/layer_choice.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "compare/name_values.h"
#include "graph/name_match.h"
#include "precision/search.h"
#include "ulpscope/error.h"

namespace ulpscope::cli {
namespace {

/// What one word means, whether it has a precision or not.
std::vector<LayerId> matches(const Network& network, const std::string& word) {
  std::vector<LayerId> by_name, by_operator, by_pattern;
  const bool pattern = is_name_pattern(word);
  for (std::size_t l = 0; l < network.layers.size(); ++l) {
    const Layer& layer = network.layers[l];
    const auto id = static_cast<LayerId>(l);
    if (layer.name == word || std::ranges::find(layer.nodes, word) != layer.nodes.end()) by_name.push_back(id);
    if (layer.op->name == word) by_operator.push_back(id);
    const auto fits = [&](const std::string& name) { return matches_name_pattern(name, word); };
    if (pattern && (fits(layer.name) || fits(std::string(layer.op->name)) || std::ranges::any_of(layer.nodes, fits)))
      by_pattern.push_back(id);
  }
  return !by_name.empty() ? by_name : !by_operator.empty() ? by_operator : by_pattern;
}

[[noreturn]] void fail_unknown(const Network& network, std::string_view option, const std::string& word) {
  std::vector<std::string> names, operators;
  for (const Layer& layer : network.layers) {
    if (!has_precision(layer)) continue;
    names.push_back(layer.name);
    for (const std::string& node : layer.nodes)
      if (node != layer.name) names.push_back(node);
    if (std::ranges::find(operators, layer.op->name) == operators.end()) operators.emplace_back(layer.op->name);
  }
  names.insert(names.end(), operators.begin(), operators.end());
  throw Error(ErrorCode::kInvalidArgument,
              fmt::format("[options] {} '{}': expected a layer with float arithmetic, an operator type or a pattern "
                          "that matches one; there is none{}",
                          option, word, did_you_mean(word, names)));
}

/// What one word means among the layers that have a precision.
std::vector<LayerId> find(const Network& network, const std::string& word, std::string_view option) {
  std::vector<LayerId> all = matches(network, word), result;
  std::ranges::copy_if(all, std::back_inserter(result), [&](LayerId id) { return has_precision(network.layer(id)); });
  if (result.empty() && all.size() == 1 && network.layer(all.front()).name == word)
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("[options] {} '{}': expected a layer with float arithmetic; a {} has no precision of its "
                            "own and follows its inputs",
                            option, word, network.layer(all.front()).op->name));
  if (result.empty()) fail_unknown(network, option, word);
  return result;
}

}  // namespace

std::vector<LayerId> find_layers(const Network& network, const std::vector<std::string>& words,
                                 std::string_view option) {
  std::vector<LayerId> result;
  for (const std::string& word : words) std::ranges::copy(find(network, word, option), std::back_inserter(result));
  std::ranges::sort(result);
  result.erase(std::unique(result.begin(), result.end()), result.end());
  return result;
}

std::vector<std::optional<DataType>> requested_types(const Network& network, const PrecisionChoice& choice) {
  std::vector<std::optional<DataType>> result(network.layers.size());
  std::vector<char> keep(result.size(), 0), lower(result.size(), 0);
  for (const LayerId id : find_layers(network, choice.keep, "--keep")) keep[static_cast<std::size_t>(id)] = 1;
  for (const LayerId id : find_layers(network, choice.lower, "--lower")) lower[static_cast<std::size_t>(id)] = 1;
  for (std::size_t l = 0; l < result.size(); ++l) {
    if (keep[l] && lower[l])
      throw Error(
          ErrorCode::kInvalidArgument,
          fmt::format("[options] layer '{}' ({}): --keep and --lower both mean it; try naming it in one of them",
                      network.layers[l].name, network.layers[l].op->name));
    if (has_precision(network.layers[l]) && (keep[l] || (!choice.lower.empty() && !lower[l])))
      result[l] = DataType::kFloat32;
  }
  for (const std::string& text : choice.layer_precisions) {
    const auto [name, type_name] = split_name(text);
    const auto type = data_type_from_name(type_name);
    if (name.empty() || !type || (!is_floating(*type) && *type != DataType::kInt8))
      throw Error(
          ErrorCode::kInvalidArgument,
          fmt::format("[options] --layer-precisions '{}': expected <layer>:<float32, float16, bfloat16 or int8>",
                      text));
    // Lists of all layers name those, too, that have no precision of their own.
    const auto found = matches(network, name);
    if (found.empty()) fail_unknown(network, "--layer-precisions", name);
    for (const LayerId id : found) {
      const auto l = static_cast<std::size_t>(id);
      if ((keep[l] && *type != DataType::kFloat32) || (lower[l] && *type == DataType::kFloat32))
        throw Error(ErrorCode::kInvalidArgument,
                    fmt::format("[options] layer '{}': --{} and --layer-precisions '{}' disagree",
                                network.layers[l].name, keep[l] ? "keep" : "lower", text));
      if (has_precision(network.layers[l])) result[l] = *type;
    }
  }
  return result;
}

}  // namespace ulpscope::cli
