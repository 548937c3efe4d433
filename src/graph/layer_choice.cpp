#include "graph/layer_choice.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <optional>

#include "core/messages.h"
#include "core/text.h"
#include "graph/name_match.h"

namespace ulpscope {
namespace {

/// What one word means, whether it has a precision or not.
std::vector<LayerId> matches(const Network& network, const std::string& word) {
  std::vector<LayerId> by_name, by_operator, by_pattern;
  const bool pattern = is_name_pattern(word);
  for (LayerId id : network.all_layer_ids()) {
    const Layer& layer = network.layer(id);
    if (layer.name == word || std::ranges::find(layer.nodes, word) != layer.nodes.end()) by_name.push_back(id);
    if (layer.op->name == word) by_operator.push_back(id);
    const auto fits = [&](const std::string& name) { return matches_name_pattern(name, word); };
    if (pattern && (fits(layer.name) || fits(std::string(layer.op->name)) || std::ranges::any_of(layer.nodes, fits)))
      by_pattern.push_back(id);
  }
  return !by_name.empty() ? by_name : !by_operator.empty() ? by_operator : by_pattern;
}

[[noreturn]] void fail_unknown(const Network& network, std::string_view where, const std::string& word) {
  std::vector<std::string> names, operators;
  for (LayerId id : network.all_layer_ids()) {
    const Layer& layer = network.layer(id);
    if (!has_precision(layer)) continue;
    names.push_back(layer.name);
    for (const std::string& node : layer.nodes)
      if (node != layer.name) names.push_back(node);
    if (std::ranges::find(operators, layer.op->name) == operators.end()) operators.emplace_back(layer.op->name);
  }
  names.insert(names.end(), operators.begin(), operators.end());
  throw invalid_argument(
      "{} '{}': expected a layer with float arithmetic, an operator type or a pattern that matches one; there is "
      "none{}",
      where, word, did_you_mean(word, names));
}

/// Names of a list, the first ones of many.
std::string some_of(const std::vector<std::string>& names) {
  constexpr std::size_t kMostNames = 8;
  const std::size_t count = std::min(names.size(), kMostNames);
  std::string text =
      fmt::format("{}", fmt::join(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(count), ", "));
  return names.size() > count ? fmt::format("{} and {} others", text, names.size() - count) : text;
}

/// The layers with a precision that a layer stands for: itself, or those in its bodies.
std::vector<LayerId> with_precision(const Network& network, LayerId id) {
  if (has_precision(network.layer(id))) return {id};
  std::vector<LayerId> result;
  for (const Body& body : network.bodies()) {
    const Network& inner = *body.graph->network;
    if (body.holder == id) {
      for (LayerId inside : inner.all_layer_ids())
        if (has_precision(inner.layer(inside))) result.push_back(body.outside(inside));
    } else if (!network.layers.contains(id) && body.first <= id && body.inside(id).index() < inner.num_all_layers()) {
      for (LayerId inside : with_precision(inner, body.inside(id))) result.push_back(body.outside(inside));
    }
  }
  return result;
}

/// The types that are listed where every type may be named.
constexpr DataType kTensorTypes[] = {DataType::kFloat32,    DataType::kFloat16, DataType::kBFloat16,
                                     DataType::kFloat8E4M3, DataType::kInt8,    DataType::kInt32,
                                     DataType::kInt64,      DataType::kUInt8,   DataType::kBool};

}  // namespace

bool has_precision(const Layer& layer) noexcept { return layer.op->precision == PrecisionRule::kCompute; }

std::vector<LayerId> find_layers(const Network& network, const std::vector<std::string>& words,
                                 std::string_view option) {
  const std::string where = fmt::format("[options] {}", option);
  std::vector<LayerId> result;
  std::vector<std::string> idle;
  for (const std::string& word : words) {
    const std::vector<LayerId> named = matches(network, word);
    if (named.empty()) fail_unknown(network, where, word);
    const std::size_t before = result.size();
    for (const LayerId id : named) std::ranges::copy(with_precision(network, id), std::back_inserter(result));
    if (result.size() == before) idle.push_back(word);
  }
  if (!idle.empty())
    log_warning(
        "{}: {} name(s) have no effect: layers that have no float arithmetic, or only move values, have no precision "
        "of their own: {}",
        where, idle.size(), some_of(idle));
  std::ranges::sort(result);
  result.erase(std::unique(result.begin(), result.end()), result.end());
  return result;
}

namespace {

/// A word without a name, or with a type that is none of `known`.
[[noreturn]] void fail_type(std::string_view where, std::string_view named, const std::string& word, bool has_name,
                            bool is_type, const std::vector<std::string_view>& known) {
  throw invalid_argument(
      "{} '{}': expected <{}>:<type>, got {}; try one of the types {}", where, word, named,
      !has_name ? fmt::format("no name. Could not parse argument: {}", word)
                : fmt::format("the {}type '{}'", is_type ? "" : "unknown ", word.substr(word.rfind(':') + 1)),
      fmt::join(known, ", "));
}

/// NAME and TYPE, in small letters, of "NAME:TYPE"; no name where the word has none.
std::pair<std::string, std::string> split_word(const std::string& word) {
  const std::size_t colon = word.rfind(':');
  return {colon == std::string::npos ? "" : word.substr(0, colon), lower_case(word.substr(colon + 1))};
}

}  // namespace

std::vector<std::pair<std::string, DataType>> parse_types(const std::vector<std::string>& words, std::string_view where,
                                                          std::string_view named, std::span<const DataType> types) {
  std::vector<std::pair<std::string, DataType>> result;
  for (const std::string& word : words) {
    const auto [name, text] = split_word(word);
    const std::optional<DataType> type = data_type_from_name(text);
    if (name.empty() || !type || (!types.empty() && std::ranges::find(types, *type) == types.end())) {
      std::vector<std::string_view> known;
      for (const DataType each : types.empty() ? std::span<const DataType>(kTensorTypes) : types)
        known.push_back(name_of(each));
      fail_type(where, named, word, !name.empty(), type.has_value(), known);
    }
    result.emplace_back(name, *type);
  }
  return result;
}

std::vector<std::pair<LayerId, Request>> find_layer_precisions(const Network& network,
                                                               const std::vector<std::string>& words,
                                                               const LayerPrecisionRules& rules) {
  std::vector<std::pair<LayerId, Request>> result, by_name;
  for (const std::string& word : words) {
    const auto [name, text] = split_word(word);
    const std::optional<Request> request = request_named(text);
    const bool accepted =
        rules.accepts == nullptr || (request && request->precision() && rules.accepts(form_of(*request->precision())));
    if (name.empty() || !request || !accepted) {
      std::vector<std::string_view> known;
      for (const LayerForm& form : layer_forms())
        if (rules.accepts == nullptr || rules.accepts(form)) known.push_back(form.request());
      fail_type(rules.where, "layer", word, !name.empty(), request.has_value(), known);
    }
    if (const LayerId id = network.find_layer(name); id != kNone) {
      by_name.emplace_back(id, *request);
      continue;
    }
    const std::vector<LayerId> found = matches(network, name);
    // These mean layers that compute; what only moves values is meant by its own name.
    for (const LayerId id : found)
      if (!with_precision(network, id).empty()) result.emplace_back(id, *request);
    if (!found.empty()) continue;
    if (!rules.warn_unknown) fail_unknown(network, rules.where, name);
    std::vector<std::string> names;
    for (LayerId id : network.all_layer_ids()) names.push_back(network.layer(id).name);
    log_warning("{}: the network has no layer '{}'{}", rules.where, name, did_you_mean(name, names));
  }
  std::ranges::copy(by_name, std::back_inserter(result));
  return result;
}

Requests own_requests(const Network& network) {
  Requests result(network.num_all_layers());
  for (LayerId id : result.ids()) result[id] = network.layer(id).precision;
  return result;
}

void set_requests(Network& network, const Requests& requests) {
  network.own_bodies();
  for (LayerId id : requests.ids()) network.layer(id).precision = requests[id];
}

Requests requested_types(const Network& network, const std::vector<std::string>& keep,
                         const std::vector<std::string>& lower, const std::vector<std::string>& layer_precisions) {
  Requests result(network.num_all_layers());
  IdMap<LayerId, char> kept(result.size(), 0), lowered(result.size(), 0);
  for (const LayerId id : find_layers(network, keep, "--keep")) kept[id] = 1;
  const std::vector<LayerId> named = find_layers(network, lower, "--lower");
  for (const LayerId id : named) lowered[id] = !kept[id];
  if (!named.empty() && std::ranges::none_of(named, [&](LayerId id) { return lowered[id]; })) {
    const Layer& layer = network.layer(named.front());
    throw invalid_argument(
        "[options] layer '{}' ({}) matches both --keep and --lower, and nothing is left to lower; try naming it in one "
        "of them",
        layer.name, layer.op->name);
  }
  for (LayerId l : result.ids()) {
    if (has_precision(network.layer(l)) && (kept[l] || (!lower.empty() && !lowered[l]))) result[l] = Precision::kFP32;
  }
  std::vector<std::pair<LayerId, Request>> asked;
  for (const auto& [named, request] : find_layer_precisions(network, layer_precisions, {.accepts = is_any}))
    if (const std::vector<LayerId> meant = with_precision(network, named); meant.empty())
      asked.emplace_back(named, request);  // What only moves values stores them so.
    else
      for (LayerId l : meant) asked.emplace_back(l, request);
  for (const auto& [l, request] : asked) {
    const bool highest = request == Precision::kFP32;
    if ((kept[l] && !highest) || (lowered[l] && highest))
      throw invalid_argument("[options] layer '{}': --{} and --layer-precisions '{}' disagree", network.layer(l).name,
                             kept[l] ? "keep" : "lower", request.name());
    result[l] = request;
  }
  return result;
}

}  // namespace ulpscope
