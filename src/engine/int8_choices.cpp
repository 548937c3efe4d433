#include "engine/int8_choices.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "engine/int8.h"
#include "ulpscope/error.h"
#include "ulpscope/log.h"

namespace ulpscope {
namespace {

/// Every element of the output is an element of input 0.
bool only_moves(const Layer& layer) {
  static constexpr std::array<std::string_view, 15> kNames{
      "Reshape", "Transpose", "Squeeze", "Unsqueeze",    "Flatten",      "Identity", "Expand",        "Tile",
      "Slice",   "Split",     "Gather",  "DepthToSpace", "SpaceToDepth", "GatherND", "GatherElements"};
  return layer.op->precision == PrecisionRule::kMovement && std::ranges::find(kNames, layer.op->name) != kNames.end();
}

std::string names_of(const Specialization& spec, const std::vector<TensorId>& ids) {
  std::vector<std::string> names;
  for (TensorId id : ids) names.push_back(spec.network->tensor(id).name);
  return first_names(names);
}

}  // namespace

std::string first_names(const std::vector<std::string>& names) {
  constexpr std::size_t kShown = 10;
  const std::vector<std::string> shown(names.begin(),
                                       names.begin() + static_cast<std::ptrdiff_t>(std::min(names.size(), kShown)));
  std::string text = fmt::format("{}", fmt::join(shown, ", "));
  if (names.size() > kShown) text += fmt::format(" and {} more", names.size() - kShown);
  return text;
}

Int8Choices::Int8Choices(const Specialization& spec, const BuildOptions& options)
    : enabled_(options.enabled.has_quantized()) {
  if (!enabled_) return;
  const Network& network = *spec.network;
  scales_.assign(network.tensors.size(), 0.0f);
  for (const auto& [name, scale] : options.scales) {
    if (!std::isfinite(scale) || scale < 0)
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("[build] int8 scale of tensor '{}': expected a positive number, got {}; calibrate again",
                              name, scale));
    // Names that the network does not have, and tensors that are all zero (scale 0), are no error: a cache may come
    // from a variant of the network.
    if (const TensorId id = network.find_tensor(name); id != kNone) scales_[id] = scale;
  }
  for (const auto& [l, layer] : network.layers.items()) {
    for (TensorId output : present(layer.outputs)) {
      float& scale = scales_[output];
      if (const auto quantization = dequantized(spec, output)) scale = quantization->scale;
      if (scale == 0 && only_moves(layer) && layer.inputs[0] != kNone) scale = scales_[layer.inputs[0]];
    }
  }
  if (std::ranges::all_of(scales_, [](float s) { return s == 0; })) scales_.clear();
  possible_.assign(network.layers.size(), 0);
  for (LayerId l : network.layers.ids()) possible_[l] = has_int8_form(spec, l) && missing(spec, l).empty();
}

std::vector<TensorId> Int8Choices::missing(const Specialization& spec, LayerId id) const {
  if (!enabled_) return {};
  std::vector<TensorId> result = quantized_inputs(spec, id);
  std::erase_if(result, [&](TensorId input) { return has_scale(input); });
  return result;
}

std::string Int8Choices::refusal(const Specialization& spec, LayerId id) const {
  const Layer& layer = spec.network->layer(id);
  // What moves values follows its input; what is known beforehand or computes shapes has no precision.
  if (possible(id) || layer.op->precision != PrecisionRule::kCompute || spec.folded[id] || !spec.numeric[id]) return {};
  if (const LayerId product = spec.product_of_bias(id); product != kNone) return refusal(spec, product);
  if (const std::vector<TensorId> without = missing(spec, id); !without.empty())
    return fmt::format("there are no scales for {} (give a calibration cache)", names_of(spec, without));
  return "it has no int8 form";
}

void Int8Choices::warn(const Specialization& spec, std::vector<TensorId> without_scale) const {
  if (scales_.empty()) {
    log_once(LogLevel::kWarning, "int8: no tensor has a scale, so layers keep the next higher enabled precision");
    return;
  }
  std::ranges::sort(without_scale);
  without_scale.erase(std::unique(without_scale.begin(), without_scale.end()), without_scale.end());
  if (without_scale.empty()) return;
  log_once(LogLevel::kWarning,
           fmt::format("int8: {} tensor(s) have no scale, so the layers that read them keep the next higher enabled "
                       "precision: {}. Calibrate again, or give --calibration-cache of this network",
                       without_scale.size(), names_of(spec, without_scale)));
}

}  // namespace ulpscope
