// What an answer was built with, as options of a model.
#include <fmt/ranges.h>

#include <algorithm>

#include "core/messages.h"
#include "ulpscope/answer.h"
#include "ulpscope/model.h"

namespace ulpscope {

ModelOptions options_for(const AnswerFile& answer) {
  const BuildRecord& build = answer.build;
  if (!build.changes.empty())
    throw unsupported(
        "[answer] '{}': expected an answer about the network of a file, got one that {} {} changed; try the program: "
        "ulpscope run {}",
        answer.path.string(), build.changes.front().option, fmt::join(build.changes.front().values, " "), answer.model);
  ModelOptions options;
  options.precisions.clear();
  for (const std::string& name : answer.precisions)
    if (const auto precision = precision_named(name)) options.precisions.push_back(*precision);
  options.fusion = answer.fusion;
  options.accumulation = answer.accumulation;
  options.attention = answer.attention;
  if (!answer.weight_scales.empty()) options.weight_scales = answer.weight_scales;
  if (!answer.mx_scale_rule.empty()) options.mx_scale_rule = answer.mx_scale_rule;
  options.cost_model = !build.assume_lowest;
  if (!build.target.empty()) options.target = build.target;
  options.external_data_dir = build.external_data_dir;
  options.clamp_constants = build.clamp_constants;
  const auto& kept = answer.answer.kept;
  for (const auto& [name, type] : build.layer_precisions)
    if (std::ranges::find(kept, name, &KeptLayer::name) == kept.end()) options.layer_precisions[name] = type;
  return options;
}

}  // namespace ulpscope
