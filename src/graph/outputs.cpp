#include "graph/outputs.h"

#include <fmt/format.h>

#include "core/messages.h"
#include "graph/name_match.h"

namespace ulpscope {
namespace {

std::string where(const Network& network) { return fmt::format("[outputs] network '{}'", network.name); }

/// Everything that layers compute; without `all`, no constants and no shapes.
std::vector<std::string> computed_names(const Network& network, bool all) {
  std::vector<std::string> names;
  for (const Layer& layer : network.layers) {
    if (!all && (layer.op->kind == OpKind::kConstant || layer.op->reads_shape_only)) continue;
    for (TensorId id : present(layer.outputs)) names.push_back(network.tensor(id).name);
  }
  return names;
}

std::vector<std::string> all_names(const Network& network) {
  std::vector<std::string> names = computed_names(network, true);
  for (TensorId id : network.inputs) names.push_back(network.tensor(id).name);
  return names;
}

}  // namespace

bool is_mark_all(std::span<const std::string> names) {
  return names.size() == 2 && names[0] == "mark" && names[1] == "all";
}

void mark_outputs(Network& network, std::span<const std::string> names) {
  const bool everything = is_mark_all(names) || (names.size() == 1 && names[0] == "*");
  const std::vector<std::string> selected =
      everything ? computed_names(network, false) : expand_names(names, all_names(network), where(network));
  if (selected.empty()) throw invalid_argument("{}: no outputs are selected", where(network));
  network.outputs.clear();
  for (const std::string& name : selected) network.outputs.push_back(network.find_tensor(name));
}

void unmark_outputs(Network& network, std::span<const std::string> names) {
  for (const std::string& name : expand_names(names, all_names(network), where(network)))
    std::erase(network.outputs, network.find_tensor(name));
  if (network.outputs.empty()) throw invalid_argument("{}: no outputs are left", where(network));
}

}  // namespace ulpscope
