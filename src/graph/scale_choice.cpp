#include "graph/scale_choice.h"

#include <algorithm>
#include <string>

#include "core/messages.h"
#include "graph/network.h"

namespace ulpscope {

std::string_view name_of(WeightScales scales) noexcept {
  switch (scales) {
    case WeightScales::kAmax:
      return "amax";
    case WeightScales::kLeastSquares:
      return "least-squares";
    default:
      return "activations";
  }
}

std::string_view name_of(MxScaleRule rule) noexcept { return rule == MxScaleRule::kCeil ? "ceil" : "ocp"; }

WeightScales weight_scales_from_name(std::string_view name, std::string_view where) {
  for (const WeightScales each : {WeightScales::kAmax, WeightScales::kLeastSquares, WeightScales::kActivations})
    if (name == name_of(each)) return each;
  throw invalid_argument("{}: expected amax, least-squares or activations, got '{}'", where, name);
}

MxScaleRule mx_scale_rule_from_name(std::string_view name, std::string_view where) {
  for (const MxScaleRule each : {MxScaleRule::kCeil, MxScaleRule::kOcp})
    if (name == name_of(each)) return each;
  throw invalid_argument("{}: expected ceil or ocp, got '{}'", where, name);
}

bool have_chosen_scales(PrecisionSet precisions) noexcept {
  return std::ranges::any_of(layer_forms(), [&](const LayerForm& form) {
    return precisions.has(form.precision) && form.weight.encoding && has_chosen_scales(*form.weight.encoding);
  });
}

bool have_mx_scales(PrecisionSet precisions) noexcept {
  return std::ranges::any_of(layer_forms(), [&](const LayerForm& form) {
    return precisions.has(form.precision) && form.weight.encoding && has_mx_scales(*form.weight.encoding);
  });
}

void check_weight_scales(WeightScales asked, PrecisionSet enabled, std::string_view where) {
  if (asked == WeightScales::kAmax || have_chosen_scales(enabled)) return;
  throw invalid_argument(
      "{}: expected int4 or nvfp4 beside {}, got neither; the scales of other formats are those of the largest values. "
      "Try --int4 or --nvfp4, or amax",
      where, name_of(asked));
}

void set_dynamic_scale_rule(Network& network, MxScaleRule rule) {
  for (Layer& layer : network.layers)
    if (rule == MxScaleRule::kOcp && layer.op->name == "TRT_MXFP8DynamicQuantize")
      layer.attributes.set(std::string(kRoundsScalesDown), std::int64_t{1});
}

}  // namespace ulpscope
