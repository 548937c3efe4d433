#include "engine/tactics.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <set>

#include "ulpscope/error.h"

namespace ulpscope {
namespace {

using OrderedJson = nlohmann::ordered_json;

// Implementation numbers of our own: this base plus the precision. TensorRT's numbers are opaque, too.
constexpr std::int64_t kImplementationBase = 0x80000000LL;

OrderedJson tensor_info(const Specialization& spec, const Assignment& assignment, TensorId id) {
  OrderedJson info;
  info["dtype"] = fmt::format("DataType.{}", tensorrt_name_of(assignment.storage[id]));
  OrderedJson strides = OrderedJson::array();
  if (const auto& shape = spec.shape(id)) {
    std::int64_t step = 1;
    for (std::size_t d = shape->size(); d-- > 0;) {
      strides.insert(strides.begin(), step);
      step *= (*shape)[d];
    }
  }
  info["strides"] = strides;
  info["vectorized_dim"] = -1;
  info["components_per_element"] = 1;
  info["polygraphy_class"] = "TensorInfo";
  return info;
}

}  // namespace

std::string tactics_to_json(const Specialization& spec, const Assignment& assignment, const Grouping& grouping) {
  const Network& network = *spec.network;
  OrderedJson replay = OrderedJson::object();
  for (const Group& group : grouping.groups) {
    std::set<TensorId> made;
    for (LayerId id : group.layers)
      for (TensorId output : network.layer(id).outputs) made.insert(output);
    OrderedJson inputs = OrderedJson::array(), outputs = OrderedJson::array();
    std::set<TensorId> seen;
    for (LayerId id : group.layers)
      for (TensorId input : present(network.layer(id).inputs))
        if (!made.contains(input) && !spec.is_constant(input) && seen.insert(input).second)
          inputs.push_back(tensor_info(spec, assignment, input));
    for (LayerId id : group.layers)
      for (TensorId output : present(network.layer(id).outputs))
        if (!grouping.internal[output]) outputs.push_back(tensor_info(spec, assignment, output));
    OrderedJson entry;
    const Precision precision = assignment.precision[group.layers.front()];
    entry["implementation"] = kImplementationBase + static_cast<std::int64_t>(precision);
    entry["tactic"] = 0;
    entry["inputs"] = std::move(inputs);
    entry["outputs"] = std::move(outputs);
    entry["polygraphy_class"] = "Algorithm";
    replay[group_name(network, group)] = std::move(entry);
  }
  OrderedJson file;
  file["replay"] = std::move(replay);
  file["polygraphy_class"] = "TacticReplayData";
  return file.dump(4, ' ', false, OrderedJson::error_handler_t::replace);
}

TacticReplay tactics_from_json(const std::string& text) {
  TacticReplay result;
  try {
    const OrderedJson file = OrderedJson::parse(text);
    if (!file.is_object() || !file.contains("replay") || !file["replay"].is_object())
      throw Error(ErrorCode::kInvalidFile, "[tactics] not a tactic replay: expected an object with the key 'replay'");
    for (const auto& [name, entry] : file["replay"].items()) {
      if (!entry.is_object() || !entry.contains("implementation") || !entry["implementation"].is_number_integer())
        throw Error(
            ErrorCode::kInvalidFile,
            fmt::format(
                "[tactics] entry '{}': expected an object with 'implementation', 'tactic', 'inputs' and 'outputs'",
                name));
      const auto implementation = entry["implementation"].get<std::int64_t>();
      if (implementation < kImplementationBase ||
          implementation > kImplementationBase + static_cast<std::int64_t>(Precision::kINT8))
        throw Error(ErrorCode::kBuild, fmt::format("[tactics] layer '{}': the builder does not offer implementation "
                                                   "{}; the file was written by another builder (TensorRT, say)",
                                                   name, entry["implementation"].dump()));
      result.groups[name] = true;
      for (std::size_t begin = 0; begin <= name.size();) {
        std::size_t end = name.find(" + ", begin);
        if (end == std::string::npos) end = name.size();
        result.precision[name.substr(begin, end - begin)] =
            static_cast<Precision>(implementation - kImplementationBase);
        begin = end + 3;
      }
    }
  } catch (const nlohmann::json::exception& e) {
    throw Error(ErrorCode::kInvalidFile, fmt::format("[tactics] not a tactic replay: {}", e.what()));
  }
  return result;
}

}  // namespace ulpscope
