#include "engine/tactics.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "core/messages.h"
#include "graph/layer_form.h"
#include "ops/common.h"
#include "ulpscope/error.h"

namespace ulpscope {
namespace {

using OrderedJson = nlohmann::ordered_json;

// Implementation numbers of our own: this base plus the precision. TensorRT's numbers are opaque, too.
constexpr std::int64_t kImplementationBase = 0x80000000LL;

struct GroupTensors {
  std::vector<TensorId> inputs, outputs;
};

/// What a group reads from others and what it hands to them.
GroupTensors tensors_of(const Specialization& spec, const Grouping& grouping, const Group& group) {
  const Network& network = *spec.network;
  GroupTensors result;
  std::set<TensorId> seen;
  for (LayerId id : group.layers) seen.insert(network.layer(id).outputs.begin(), network.layer(id).outputs.end());
  for (LayerId id : group.layers) {
    for (TensorId input : present(network.layer(id).inputs))
      if (!spec.is_constant(input) && seen.insert(input).second) result.inputs.push_back(input);
    for (TensorId output : present(network.layer(id).outputs))
      if (!grouping.internal[output]) result.outputs.push_back(output);
  }
  return result;
}

std::string inside_brackets(const std::string& text) {
  const std::size_t begin = text.find_first_not_of("([ "), end = text.find_last_not_of(")], ");
  return begin == std::string::npos || end == std::string::npos || end < begin ? ""
                                                                               : text.substr(begin, end + 1 - begin);
}

/// From a list, or from Polygraphy's older text "(4, 1)".
std::optional<Shape> strides_in(const OrderedJson& value) {
  if (value.is_array()) return value.get<Shape>();
  if (!value.is_string()) return std::nullopt;
  const auto text = OrderedJson::parse(fmt::format("[{}]", inside_brackets(value.get<std::string>())), nullptr, false);
  return text.is_discarded() ? std::nullopt : std::optional(text.get<Shape>());
}

/// The tensors of one side of an entry; Polygraphy up to 0.44 wrote each as [format, dtype, strides]. None where the
/// file does not say, or says it in a form that nobody has written yet.
std::vector<TacticReplay::TensorForm> forms_in(const OrderedJson& entry, const char* side) {
  constexpr std::string_view kPrefix = "DataType.", kRowMajor = "TensorFormat.LINEAR";
  if (!entry.contains(side) || !entry[side].is_array()) return {};
  std::vector<TacticReplay::TensorForm> result;
  for (const OrderedJson& info : entry[side]) {
    TacticReplay::TensorForm form;
    if (info.is_object() && info.contains("dtype")) {
      const auto is = [&](const char* key, const OrderedJson& usual) {
        return !info.contains(key) || info[key].is_null() || info[key] == usual;
      };
      form.type = info["dtype"].get<std::string>();
      form.row_major = is("vectorized_dim", -1) && is("components_per_element", 1) && is("tensor_format", kRowMajor);
      if (info.contains("strides")) form.strides = strides_in(info["strides"]);
    } else if (info.is_array() && info.size() == 3) {
      form = {info[1].get<std::string>(), strides_in(info[2]), info[0] == kRowMajor || info[0] == 0};
    }
    if (!form.type.starts_with(kPrefix)) return {};
    form.type.erase(0, kPrefix.size());
    result.push_back(std::move(form));
  }
  return result;
}

/// A text under a key; empty where there is none.
std::string text_in(const OrderedJson& object, const char* key, const std::string& where) {
  if (!object.contains(key)) return {};
  if (!object[key].is_string())
    throw invalid_file("[tactics] {}: expected a text as '{}', got {}", where, key, object[key].dump());
  return object[key].get<std::string>();
}

std::vector<TacticReplay::Step> steps_in(const OrderedJson& entry, const std::string& name) {
  std::vector<TacticReplay::Step> steps;
  if (!entry.contains("steps")) return steps;
  const std::string where = fmt::format("entry '{}'", name);
  for (const OrderedJson& step : entry["steps"]) {
    const bool whole = step.is_object() && step.contains("computes") && step.contains("algorithm");
    if (!whole)
      throw invalid_file("[tactics] {}: expected steps with 'computes' and 'algorithm', got {}", where, step.dump());
    steps.push_back({text_in(step, "computes", where), text_in(step, "algorithm", where)});
  }
  return steps;
}

/// Row-major; none where the shape is not known before a run.
std::optional<Shape> strides_of(const Specialization& spec, TensorId id) {
  const auto& shape = spec.shape(id);
  return shape ? std::optional(ops::strides_of(*shape)) : std::nullopt;
}

bool has_fixed_inputs(const Network& network) {
  return std::ranges::all_of(network.inputs, [&](TensorId id) {
    const auto& shape = network.tensor(id).shape;
    return shape && std::ranges::all_of(*shape, [](std::int64_t size) { return size >= 0; });
  });
}

OrderedJson tensor_info(const Specialization& spec, const Assignment& assignment, TensorId id) {
  OrderedJson info;
  info["dtype"] = fmt::format("DataType.{}", tensorrt_name_of(assignment.storage[id]));
  info["strides"] = strides_of(spec, id).value_or(Shape{});
  info["vectorized_dim"] = -1;
  info["components_per_element"] = 1;
  info["polygraphy_class"] = "TensorInfo";
  return info;
}

}  // namespace

std::string tactics_to_json(const Specialization& spec, const Assignment& assignment, const Grouping& grouping,
                            std::string_view backend, const PlanTactics& tactics) {
  const Network& network = *spec.network;
  std::vector<OrderedJson> steps(grouping.groups.size(), OrderedJson::array());
  for (const StepTactic& step : tactics.steps)
    if (const int index = step.layer == kNone ? kNone : grouping.group_of[step.layer]; index != kNone)
      steps[static_cast<std::size_t>(index)].push_back({{"computes", step.computes}, {"algorithm", step.algorithm}});
  OrderedJson replay = OrderedJson::object();
  for (std::size_t g = 0; g < grouping.groups.size(); ++g) {
    const Group& group = grouping.groups[g];
    const GroupTensors tensors = tensors_of(spec, grouping, group);
    OrderedJson inputs = OrderedJson::array(), outputs = OrderedJson::array();
    for (TensorId input : tensors.inputs) inputs.push_back(tensor_info(spec, assignment, input));
    for (TensorId output : tensors.outputs) outputs.push_back(tensor_info(spec, assignment, output));
    OrderedJson entry;
    const Precision precision = assignment.precision[group.layers.front()];
    entry["implementation"] = kImplementationBase + static_cast<std::int64_t>(precision);
    entry["tactic"] = 0;
    entry["inputs"] = std::move(inputs);
    entry["outputs"] = std::move(outputs);
    if (!steps[g].empty()) entry["steps"] = std::move(steps[g]);
    entry["polygraphy_class"] = "Algorithm";
    replay[group_name(network, group)] = std::move(entry);
  }
  OrderedJson file;
  file["replay"] = std::move(replay);
  file["polygraphy_class"] = "TacticReplayData";
  file["backend"] = backend;
  if (!tactics.device.empty()) file["device"] = tactics.device;
  return file.dump(4, ' ', false, OrderedJson::error_handler_t::replace);
}

TacticReplay tactics_from_json(const std::string& text) {
  TacticReplay result;
  try {
    const OrderedJson file = OrderedJson::parse(text);
    if (!file.is_object() || !file.contains("replay") || !file["replay"].is_object())
      throw invalid_file("[tactics] not a tactic replay: expected an object with the key 'replay'");
    result.backend = text_in(file, "backend", "the file");
    result.device = text_in(file, "device", "the file");
    for (const auto& [name, entry] : file["replay"].items()) {
      if (!entry.is_object() || !entry.contains("implementation") || !entry["implementation"].is_number_integer())
        throw invalid_file(
            "[tactics] entry '{}': expected an object with 'implementation', 'tactic', 'inputs' and 'outputs'", name);
      const auto implementation = entry["implementation"].get<std::int64_t>();
      const std::int64_t tactic = entry.value("tactic", std::int64_t{0});
      if (implementation < kImplementationBase || implementation > kImplementationBase + std::ssize(layer_forms()) - 1)
        throw error_of(ErrorCode::kBuild,
                       "[tactics] layer '{}': the builder does not offer implementation {}; the file was written by "
                       "another builder (TensorRT, say)",
                       name, entry["implementation"].dump());
      if (tactic != 0)
        throw error_of(ErrorCode::kBuild,
                       "[tactics] layer '{}': the builder does not offer tactic {}, only tactic 0 of each "
                       "implementation; try --save-tactics again",
                       name, tactic);
      result.groups[name] = {forms_in(entry, "inputs"), forms_in(entry, "outputs"), steps_in(entry, name)};
      for (std::size_t begin = 0; begin <= name.size();) {
        std::size_t end = name.find(" + ", begin);
        if (end == std::string::npos) end = name.size();
        result.precision[name.substr(begin, end - begin)] =
            static_cast<Precision>(implementation - kImplementationBase);
        begin = end + 3;
      }
    }
  } catch (const nlohmann::json::exception& e) {
    throw invalid_file("[tactics] not a tactic replay: {}", e.what());
  }
  return result;
}

void check_backend(const TacticReplay& replay, std::string_view backend) {
  if (!replay.backend.empty() && replay.backend != backend)
    throw error_of(ErrorCode::kBuild,
                   "[tactics] the builder does not offer the tactics of the replay: they were chosen on the backend "
                   "'{}', this build is for '{}'. Try --backend {}, or --save-tactics again",
                   replay.backend, backend, replay.backend);
}

void check_replay(const TacticReplay& replay, const Specialization& spec, const Assignment& assignment,
                  const Grouping& grouping) {
  const bool fixed = has_fixed_inputs(*spec.network);
  for (const Group& group : grouping.groups) {
    const std::string name = group_name(*spec.network, group);
    const auto found = replay.groups.find(name);
    if (found == replay.groups.end()) {
      log_warning("The tactic replay has no entry for layer '{}': it takes the default", name);
      continue;
    }
    const auto refuse = [&](const char* what, const std::string& there, const std::string& here) {
      throw error_of(ErrorCode::kBuild,
                     "[tactics] layer '{}': the tactic in the replay was not offered by the builder: its {} are {} "
                     "there, {} here. Has the network or the builder configuration changed since the file was written? "
                     "Try --save-tactics again",
                     name, what, there, here);
    };
    const auto check = [&](const char* what, const std::vector<TacticReplay::TensorForm>& wanted,
                           const std::vector<TensorId>& ids) {
      if (wanted.empty()) return;
      std::vector<std::string> there, here;
      for (const TacticReplay::TensorForm& form : wanted) there.push_back(form.type);
      for (TensorId id : ids) here.emplace_back(tensorrt_name_of(assignment.storage[id]));
      if (there != here)
        refuse(what, fmt::format("[{}]", fmt::join(there, ", ")), fmt::format("[{}]", fmt::join(here, ", ")));
      for (std::size_t i = 0; i < ids.size(); ++i) {
        const TacticReplay::TensorForm& form = wanted[i];
        if (!form.row_major) refuse(what, "in vectors of elements or in another format", "in row-major order");
        const auto strides = strides_of(spec, ids[i]);
        if (fixed && form.strides && strides && *form.strides != *strides)
          refuse(what, "of strides " + to_string(*form.strides), to_string(*strides));
      }
    };
    const GroupTensors tensors = tensors_of(spec, grouping, group);
    check("inputs", found->second.inputs, tensors.inputs);
    check("outputs", found->second.outputs, tensors.outputs);
  }
}

}  // namespace ulpscope
