#include "engine/assign.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <tuple>
#include <vector>

#include "core/messages.h"
#include "engine/choose.h"
#include "engine/quantized_choices.h"
#include "engine/tactics.h"
#include "graph/stashed_outputs.h"
#include "ulpscope/error.h"

namespace ulpscope {
namespace {

bool constraints_hold(const BuildOptions& options) { return options.constraints != ConstraintMode::kNone; }

bool is_enabled(Precision precision, const BuildOptions& options) {
  return precision == Precision::kFP32 || options.enabled.has(precision) || options.on_request.has(precision);
}

/// The type that a typed file gives to a layer's arithmetic: that of its output, or of its first float input.
DataType declared_type(const Specialization& spec, const Layer& layer) {
  for (TensorId output : present(layer.outputs))
    if (is_floating(spec.type(output))) return spec.type(output);
  for (TensorId input : present(layer.inputs))
    if (is_floating(spec.type(input))) return spec.type(input);
  return DataType::kFloat32;
}

/// Why the request of a layer cannot be kept; empty when it can.
std::string refusal(const Specialization& spec, LayerId id, const Request& asked, const BuildOptions& options,
                    const QuantizedChoices& quantized) {
  const Layer& layer = spec.network->layer(id);
  const auto precision = asked.precision();
  if (!precision) {
    // A type that no arithmetic runs in is fine where the layer works on exactly that type.
    for (TensorId output : present(layer.outputs))
      if (spec.type(output) == asked.type()) return {};
    return fmt::format("no implementation computes in {}", asked.name());
  }
  const LayerForm& form = form_of(*precision);
  if (!is_enabled(*precision, options)) return fmt::format("{} is not enabled (add {})", asked.name(), form.flag());
  return form.is_float() ? std::string() : quantized.refusal(spec, id, *precision);
}

/// Throws under obey, warns otherwise.
void refuse(const Layer& layer, const Request& asked, const std::string& reason, const BuildOptions& options) {
  const std::string message =
      fmt::format("Layer '{}' ({}) was asked to run in {}, but {}", layer.name, layer.op->name, asked.name(), reason);
  if (options.constraints == ConstraintMode::kObey)
    throw error_of(ErrorCode::kBuild,
                   "[build] {}; --precision-constraints obey leaves no choice; try prefer, or enable the type",
                   message);
  log_warning(message + "; the engine chooses");
}

using Kept = IdMap<LayerId, std::optional<Precision>>;

Kept read_constraints(const Specialization& spec, const BuildOptions& options, const Requests* requested,
                      const QuantizedChoices& quantized) {
  const Network& network = *spec.network;
  Kept requests(network.layers.size());
  std::vector<std::string> ignored;
  for (const auto& [l, layer] : network.layers.items()) {
    const bool typed = std::ranges::any_of(layer.output_types, [](const auto& t) { return t.has_value(); });
    const std::optional<Request> asked = requested != nullptr ? (*requested)[l] : layer.precision;
    if (!asked && !typed) continue;
    if (!constraints_hold(options)) {
      ignored.push_back(asked ? fmt::format("{}:{}", layer.name, asked->name()) : layer.name);
      continue;
    }
    if ((layer.op->precision == PrecisionRule::kFixed && layer.op->kind != OpKind::kControl) || !asked) {
      if (asked)
        log_verbose("Layer '{}' ({}) has no float arithmetic: its precision has no effect", layer.name, layer.op->name);
      continue;
    }
    const std::string reason = refusal(spec, l, *asked, options, quantized);
    if (!reason.empty())
      refuse(layer, *asked, reason, options);
    else if (const auto precision = asked->precision())
      requests[l] = precision_in(layer, *precision);
  }
  if (!ignored.empty())
    log_warning(
        "Precisions were set for {} layer(s), but --precision-constraints is none, so they have no effect: {}. Use "
        "prefer or obey",
        ignored.size(), first_names(ignored));
  return requests;
}

/// The bias of a product that runs in int8 is one layer with it; elsewhere it takes the next higher precision.
void propagate_bias_precision(const Specialization& spec, const BuildOptions& options, const Kept& requests,
                              Precision next_higher, Assignment& assignment) {
  for (LayerId l : spec.network->layers.ids()) {
    const LayerId product = spec.product_of_bias(l);
    if (product == kNone || spec.folded[l] || !spec.numeric[l]) continue;
    const Layer& owner = spec.network->layer(product);
    const bool stored = constraints_hold(options) && owner.output_type(0);
    const bool quantized = is_quantized(assignment.precision[product]) && !stored;
    const std::optional<Precision> asked = requests[l];
    if (quantized && (!asked || is_quantized(*asked))) {
      assignment.precision[l] = assignment.precision[product];
      if (!asked) assignment.reason[l] = fmt::format("the bias of a product: '{}'", owner.name);
    } else if (is_quantized(assignment.precision[l])) {
      if (asked)
        refuse(spec.network->layer(l), *asked,
               fmt::format("it is the bias of '{}', which {}", owner.name,
                           stored ? "has an output type of its own" : "does not read elements"),
               options);
      assignment.precision[l] = next_higher;
      assignment.reason[l] = fmt::format("the bias of '{}', which does not read elements", owner.name);
    }
  }
}

/// From the lowest to the highest; quantized ones come in per layer.
std::vector<Precision> allowed_precisions(const BuildOptions& options) {
  std::vector<Precision> result = options.enabled.members();
  std::erase_if(result, [](Precision p) { return !is_float(p) || p == Precision::kFP32; });
  result.push_back(Precision::kFP32);
  std::ranges::stable_sort(result, {}, [](Precision p) { return form_of(p).rank; });
  return result;
}

/// What holds for the layers in a body, where the layer that runs it has this precision. Costs of bodies are not
/// modeled: unless the lowest precision is asked for, they keep fp32 and what the file says, but for what is requested.
/// Their tensors have no scales.
BuildOptions options_of_body(const BuildOptions& options, Precision precision) {
  BuildOptions result = options;
  result.scales.clear();
  result.enabled = {};
  for (const LayerForm& form : layer_forms()) {
    const Precision p = form.precision;
    const bool possible = p != Precision::kFP32 && is_enabled(p, options) && form.is_float();
    // No type in a file asks for tf32.
    const bool lowest = precision == p || (options.strongly_typed && form.type == DataType::kUndefined);
    result.on_request.set(p, possible);
    result.enabled.set(p, possible && options.assume_lowest && lowest);
  }
  return result;
}

/// Adds the layers in bodies. Those that nothing was asked for take what the layer that runs them was asked for.
void assign_bodies(const Specialization& spec, const BuildOptions& options, const Requests* requested,
                   const Kept& requests, Assignment& result) {
  const Network& network = *spec.network;
  result.precision.resize(network.num_all_layers(), Precision::kFP32);
  result.reason.resize(network.num_all_layers());
  const std::vector<Body> bodies = network.bodies();
  if (requested != nullptr && !bodies.empty()) result.asked_in_bodies.resize(network.num_all_layers());
  for (std::size_t b = 0; b < bodies.size(); ++b) {
    if (spec.bodies[b] == nullptr) continue;
    const Body& body = bodies[b];
    const Network& inner = *body.graph->network;
    Requests types(inner.num_all_layers());
    if (requested != nullptr) types = part_of(*requested, body, types.size());
    for (LayerId id : types.ids()) {
      const Layer& layer = inner.layer(id);
      if (requested == nullptr) types[id] = layer.precision;
      const std::optional<Precision> wanted = types[id] ? types[id]->precision() : std::nullopt;
      if (wanted && !is_float(*wanted) && constraints_hold(options)) {
        refuse(layer, *types[id],
               fmt::format("layers in the body of an If, Loop or Scan have no {} form", name_of(*wanted)), options);
        types[id].reset();
      }
      const bool computes = layer.op->precision == PrecisionRule::kCompute || layer.op->kind == OpKind::kControl;
      if (const auto asked = requests.empty() ? std::nullopt : requests[body.holder]; asked && !types[id] && computes)
        types[id] = is_float(*asked) ? *asked : Precision::kFP32;
    }
    const Assignment made =
        assign_precisions(*spec.bodies[b], options_of_body(options, result.precision[body.holder]), &types);
    for (LayerId id : types.ids()) {
      if (requested != nullptr) result.asked_in_bodies[body.outside(id)] = types[id];
      result.precision[body.outside(id)] = made.precision[id];
      result.reason[body.outside(id)] = made.reason[id];
    }
  }
}

Assignment assign_strongly_typed(const Specialization& spec, const BuildOptions& options) {
  const Network& network = *spec.network;
  for (const Precision p : options.enabled.members())
    if (form_of(p).type != DataType::kUndefined)
      throw invalid_argument("[build] a strongly typed network takes its types from the file: expected no {}",
                             form_of(p).flag());
  Assignment result;
  result.accumulation = options.accumulation;
  result.attention = options.attention;
  for (const Layer& layer : network.layers) {
    if (layer.precision)
      throw invalid_argument(
          "[build] layer '{}': a strongly typed network takes no layer precisions; write Cast nodes into the model",
          layer.name);
    result.precision.push_back(precision_from_type(declared_type(spec, layer)).value_or(Precision::kFP32));
    if (options.enabled.has(Precision::kTF32) && result.precision.back() == Precision::kFP32 &&
        layer.op->kind == OpKind::kContraction)
      result.precision.back() = Precision::kTF32;
  }
  result.reason.assign(network.layers.size(), "the type in the file");
  assign_bodies(spec, options, nullptr, {}, result);
  derive_storage(network, spec.inferred, false, true, result);
  return result;
}

/// The precision, as the only choice, of layers that have no float arithmetic of their own, and why; nothing for
/// others.
std::optional<std::pair<std::vector<Precision>, std::string>> without_choice(const Specialization& spec, LayerId id,
                                                                             std::optional<Precision> requested,
                                                                             const BuildOptions& options,
                                                                             Precision lowest) {
  const Layer& layer = spec.network->layer(id);
  const auto fixed = [](Precision p, const char* why) { return std::pair(std::vector{p}, std::string(why)); };
  // What layers of its bodies take that nothing else is asked for. Costs do not look into them.
  if (layer.op->kind == OpKind::kControl)
    return requested ? fixed(*requested, "for its bodies: requested")
                     : fixed(options.assume_lowest ? lowest : Precision::kFP32, "for its bodies");
  if (layer.op->precision == PrecisionRule::kMovement) return fixed(Precision::kFP32, "follows its input");
  if (layer.op->precision != PrecisionRule::kCompute) return fixed(Precision::kFP32, "no float arithmetic");
  if (spec.folded[id]) return fixed(Precision::kFP32, "known before anything runs: computed in fp32");
  const DataType declared = declared_type(spec, layer);
  if (!spec.numeric[id])
    return fixed(Precision::kFP32, is_floating(declared) && declared != DataType::kFloat64
                                       ? "computes shapes, lengths or indices: stays in fp32"
                                       : "no narrow float arithmetic");
  return std::nullopt;
}

/// Everything that is enabled and that a layer has a form in, and why, where that is known already: the lowest alone
/// where it is to be assumed. `elements`: its quantized forms; `missing`: what has no int8 scale.
std::pair<std::vector<Precision>, std::string> free_choice(const Network& network, LayerId id,
                                                           const BuildOptions& options,
                                                           std::span<const Precision> allowed,
                                                           std::vector<Precision> elements,
                                                           std::span<const TensorId> missing) {
  std::vector<Precision> choice = std::move(elements);
  std::ranges::copy_if(allowed, std::back_inserter(choice),
                       [&](Precision p) { return precision_in(network.layer(id), p) == p; });
  if (options.assume_lowest) {
    choice.resize(1);
    return {choice, missing.empty() ? "the lowest enabled precision"
                                    : fmt::format("no int8 scale for '{}': the next higher enabled precision",
                                                  network.tensor(missing.front()).name)};
  }
  return {choice, choice.size() == 1 ? "no other precision is enabled" : ""};
}

}  // namespace

DataType narrow_type_in_file(const Specialization& spec, LayerId id) {
  const Layer& layer = spec.network->layer(id);
  if (layer.op->precision != PrecisionRule::kCompute) return DataType::kUndefined;
  for (std::size_t o = 0; o < layer.outputs.size(); ++o) {
    if (layer.outputs[o] == kNone || is_stashed(layer, o)) continue;
    const DataType type = spec.type(layer.outputs[o]);
    if (type == DataType::kFloat16 || type == DataType::kBFloat16) return type;
  }
  return DataType::kUndefined;
}

Assignment assign_precisions(const Specialization& spec, const BuildOptions& options, const Requests* requested,
                             const QuantizedChoices* choices_of_build) {
  if (options.strongly_typed) return assign_strongly_typed(spec, options);
  const Network& network = *spec.network;
  std::optional<QuantizedChoices> own;
  if (choices_of_build == nullptr) own.emplace(spec, options);
  const QuantizedChoices& quantized = own ? *own : *choices_of_build;
  const Kept requests = read_constraints(spec, options, requested, quantized);
  const std::vector<Precision> allowed = allowed_precisions(options);
  const Precision next_higher = allowed.front() == Precision::kTF32 ? Precision::kFP32 : allowed.front();
  const TacticReplay nothing, &replay = options.tactic_replay ? *options.tactic_replay : nothing;
  Assignment result;
  result.precision.assign(network.layers.size(), Precision::kFP32);
  result.reason.assign(network.layers.size(), "");
  result.scale = quantized.scales();
  quantized.add_scale_choice(options, result);
  result.int8_output = storage_of(allowed.front());
  result.accumulation = options.accumulation;
  result.attention = options.attention;
  std::vector<TensorId> without_scale;
  IdMap<LayerId, std::vector<Precision>> choices(network.layers.size());
  for (const auto& [l, layer] : network.layers.items()) {
    auto& choice = choices[l];
    const DataType declared = declared_type(spec, layer);
    const std::vector<TensorId> missing = quantized.missing(spec, l);
    // Requests beside the network's change from trial to trial: they do not change the warning.
    if ((requested != nullptr || !requests[l]) && declared == DataType::kFloat32)
      without_scale.insert(without_scale.end(), missing.begin(), missing.end());
    if (const auto given = without_choice(spec, l, requests[l], options, allowed.front())) {
      std::tie(choice, result.reason[l]) = *given;
    } else if (requests[l]) {
      result.reason[l] = options.constraints == ConstraintMode::kObey ? "requested (obey)" : "requested (prefer)";
      choice = {*requests[l]};
    } else if (declared == DataType::kFloat16 || declared == DataType::kBFloat16) {
      result.reason[l] = "the type in the file";
      choice = {*precision_from_type(declared)};
    } else if (const auto replayed = replay.precision.find(layer.name); replayed != replay.precision.end()) {
      if (!is_enabled(replayed->second, options))
        throw error_of(ErrorCode::kBuild,
                       "[tactics] layer '{}': the replay file wants {}, which is not enabled (add {})", layer.name,
                       name_of(replayed->second), form_of(replayed->second).flag());
      result.reason[l] = "replayed tactic";
      choice = {replayed->second};
      // The file names the precision of a group; layers without such a form are the epilogue of one.
      if (!is_float(replayed->second) && !quantized.is_possible(spec, l, replayed->second)) choice = {next_higher};
    } else {
      std::tie(choice, result.reason[l]) = free_choice(network, l, options, allowed, quantized.possible(l), missing);
    }
    result.precision[l] = choice.front();
  }
  const bool open = std::ranges::any_of(choices, [](const auto& c) { return c.size() > 1; });
  if (open) choose_by_cost(spec, options, choices, result);
  if (options.enabled.has_quantized()) {
    quantized.warn(spec, std::move(without_scale));
    propagate_bias_precision(spec, options, requests, next_higher, result);
  }
  if (requested == nullptr) quantized.log_fallbacks(spec);
  assign_bodies(spec, options, requested, requests, result);
  derive_storage(network, spec.inferred, constraints_hold(options), false, result, requested);
  return result;
}

}  // namespace ulpscope
