#include "engine/choose.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/messages.h"
#include "engine/cost.h"
#include "ulpscope/log.h"

namespace ulpscope {

namespace {

bool has_quantized(const std::vector<Precision>& choices) { return std::ranges::any_of(choices, is_quantized); }

}  // namespace

Grouping fuse_uniformly(const Specialization& spec, const BuildOptions& options, Assignment assignment) {
  std::ranges::fill(assignment.precision, Precision::kFP32);
  derive_storage(*spec.network, spec.inferred, options.constraints != ConstraintMode::kNone, false, assignment);
  return fuse(spec, assignment, options.fusion);
}

void add_int8_followers(const Grouping& grouping, IdMap<LayerId, std::vector<Precision>>& choices) {
  for (const Group& group : grouping.groups) {
    if (group.kind != GroupKind::kContraction || !has_quantized(choices[group.layers[0]])) continue;
    // A follower that is stored in another type than the next higher one breaks the group.
    const std::vector<Precision>& head = choices[group.layers[0]];
    const DataType next_higher = storage_of(head.size() > 1 ? head[1] : Precision::kFP32);
    for (LayerId id : group.layers)
      if (auto& choice = choices[id]; !has_quantized(choice) && storage_of(choice.front()) == next_higher)
        choice.insert(choice.begin(), *std::ranges::find_if(head, is_quantized));
  }
}

void choose_by_cost(const Specialization& spec, const BuildOptions& options,
                    const IdMap<LayerId, std::vector<Precision>>& choices, Assignment& assignment) {
  Target target = find_target(options.target);
  // Who builds an engine gets what TensorRT builds: by rates, where its kernels fuse more than ours. What was measured
  // with the model itself counts; a search, which asks what is fastest, counts by kernels.
  target.kernels = nullptr;
  auto available = choices;
  for (auto& choice : available) {
    if (choice.size() < 2) continue;
    for (Precision p : choice)
      if (!target.has(p))
        log_once(LogLevel::kWarning, "{} has no {} arithmetic: no layer takes it", target.name, name_of(p));
    std::erase_if(choice, [&](Precision p) { return !target.has(p); });
  }
  const Grouping grouping = fuse_uniformly(spec, options, assignment);
  auto costed = available;
  add_int8_followers(grouping, costed);
  CostProblem problem = make_cost_problem(spec, grouping, target, costed);
  // Who calibrates wants int8: quantizing is counted as fused into its neighbors, by its bytes. A pass of its own per
  // boundary, as the launch cost of a target has it, would leave small networks in float32 whatever their scales.
  if (std::ranges::any_of(available, has_quantized))
    for (CostProblem::Value& value : problem.values) value.pass_us -= target.launch_us;
  const std::vector<int> chosen = minimize(problem);
  std::vector<int> high;
  for (const auto& node : problem.nodes) high.push_back(static_cast<int>(node.choices.size()) - 1);
  const double best = problem.energy(chosen), all_high = problem.energy(high);
  for (std::size_t n = 0; n < problem.nodes.size(); ++n) {
    const auto& node = problem.nodes[n];
    const LayerId layer = node.layer;
    const Precision precision = node.choices[chosen[n]];
    assignment.precision[layer] = precision;
    if (is_quantized(precision) && !has_quantized(available[layer])) {
      assignment.precision[layer] = available[layer].front();
      assignment.reason[layer] = fmt::format("in the epilogue of an {} product", name_of(precision));
      continue;
    }
    if (node.choices.size() < 2) {
      if (assignment.reason[layer].empty()) assignment.reason[layer] = "no other precision is enabled";
      continue;
    }
    const double gain = node.cost.back() - *std::ranges::min_element(node.cost);
    assignment.reason[layer] =
        precision == node.choices.back()
            ? fmt::format(
                  "cheapest for the network on {}: a lower precision would save {:.2f} us here, less than its "
                  "reformats cost",
                  target.name, gain)
            : fmt::format("cheapest for the network on {}: {:.2f} us instead of {:.2f} us", target.name,
                          node.cost[chosen[n]], node.cost.back());
  }
  log_verbose("Estimated time on {}: {:.2f} us as chosen, {:.2f} us with every free layer in its highest precision",
              target.name, best, all_high);
}

}  // namespace ulpscope
