#include "engine/quantized_choices.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "core/messages.h"
#include "engine/element_forms.h"
#include "engine/int8.h"
#include "formats/stored_elements.h"
#include "ulpscope/log.h"

namespace ulpscope {
namespace {

using Extreme = QuantizedChoices::Extreme;

constexpr std::string_view kNotFinite = "its weights hold infinities or NaN";
constexpr std::string_view kInBody = "bodies of control flow stay float";
/// The largest weight in int4 whose scale float16 holds.
constexpr float kLargestInBlocks = 7 * 65504.0f;

/// Per layer, what the constant weights of a product hold that elements do not stand for: no integer stands for
/// infinities or NaN, no scale fits an infinity, and no scale of two bytes the largest numbers.
IdMap<LayerId, Extreme> find_extremes(const Specialization& spec) {
  IdMap<LayerId, Extreme> result(spec.network->layers.size(), Extreme::kNone);
  for (const auto& [id, layer] : spec.network->layers.items()) {
    if (!is_product(layer.op->function) || layer.input(1) == kNone || !spec.is_constant(layer.inputs[1])) continue;
    const Tensor& weights = spec.value(layer.inputs[1]);
    if (weights.type() != DataType::kFloat32) continue;
    const auto any_beyond = [&](float largest) {
      return any_elements(weights, [largest](std::span<const float> values) {
        return !std::ranges::all_of(values, [largest](float x) { return std::fabs(x) <= largest; });
      });
    };
    if (!any_beyond(kLargestInBlocks)) continue;
    result[id] = any_beyond(std::numeric_limits<float>::max()) ? Extreme::kNotFinite : Extreme::kLarge;
  }
  return result;
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

QuantizedChoices::QuantizedChoices(const Specialization& spec, const BuildOptions& options)
    : enabled_(options.enabled.members()) {
  std::erase_if(enabled_, is_float);
  std::ranges::stable_sort(enabled_, {}, [](Precision p) { return form_of(p).rank; });
  if (!options.enabled.has_elements() && !options.on_request.has_elements()) return;
  const Network& network = *spec.network;
  scales_.assign(network.tensors.size(), 0.0f);
  for (const auto& [name, scale] : options.scales) {
    using Limits = std::numeric_limits<float>;
    if (!(scale == 0 || (scale >= Limits::min() && scale <= Limits::max() / 127)))
      throw invalid_argument(
          "[build] calibration, tensor '{}': expected a scale from {} to {} (the largest value / 127), got {}; "
          "calibrate again",
          name, Limits::min(), Limits::max() / 127, scale);
    // Names that the network does not have, and tensors that are all zero (scale 0), are no error: a cache may come
    // from a variant of the network.
    if (const TensorId id = network.find_tensor(name); id != kNone) scales_[id] = scale;
  }
  for (const auto& [l, layer] : network.layers.items()) {
    for (TensorId output : present(layer.outputs)) {
      float& scale = scales_[output];
      if (const auto q = dequantized(spec, output)) scale = q->is_integer() ? q->scale : q->scale * q->largest() / 127;
      if (scale == 0 && layer.op->moves_values && layer.inputs[0] != kNone) scale = scales_[layer.inputs[0]];
    }
  }
  if (std::ranges::all_of(scales_, [](float s) { return s == 0; })) scales_.clear();
  possible_.assign(network.layers.size(), {});
  extremes_ = find_extremes(spec);
  for (LayerId l : network.layers.ids())
    for (const Precision p : enabled_) possible_[l].set(p, is_possible(spec, l, p));
  channel_weights_ = find_channel_weights(spec, options);
}

void QuantizedChoices::add_scale_choice(const BuildOptions& options, Assignment& assignment) const {
  assignment.scale_choice = options.scale_choice;
  assignment.channel_weights = channel_weights_;
}

std::string QuantizedChoices::obstacle(const Specialization& spec, LayerId id, Precision precision) const {
  // First of all: no other block would help.
  const Extreme extreme = is_float(precision) || extremes_.empty() ? Extreme::kNone : extremes_[id];
  if (extreme == Extreme::kNotFinite) return std::string(kNotFinite);
  std::string result = form_obstacle(spec, id, precision);
  const auto& weights = form_of(precision).weight.encoding;
  if (result.empty() && extreme == Extreme::kLarge && weights && weights->scale == Format::kFloat16)
    return fmt::format("its weights lie beyond {:g}, the largest that scales of {} hold", kLargestInBlocks,
                       form_of(precision).name);
  return result;
}

bool QuantizedChoices::is_possible(const Specialization& spec, LayerId id, Precision precision) const {
  return obstacle(spec, id, precision).empty() && missing(spec, id, precision).empty();
}

std::vector<Precision> QuantizedChoices::possible(LayerId id) const {
  if (possible_.empty()) return {};
  std::vector<Precision> result = enabled_;
  std::erase_if(result, [&](Precision p) { return !possible_[id].has(p); });
  return result;
}

std::vector<TensorId> QuantizedChoices::missing(const Specialization& spec, LayerId id, Precision precision) const {
  std::vector<TensorId> result = calibrated_inputs(spec, id, precision);
  std::erase_if(result, [&](TensorId input) { return has_scale(input); });
  return result;
}

std::vector<TensorId> QuantizedChoices::missing(const Specialization& spec, LayerId id) const {
  for (const Precision p : enabled_)
    if (auto result = missing(spec, id, p); !result.empty()) return result;
  return {};
}

std::string QuantizedChoices::refusal(const Specialization& spec, LayerId id, Precision precision) const {
  const Layer& layer = spec.network->layer(id);
  // What moves values follows its input; what is known beforehand or computes shapes has no precision.
  if (layer.op->precision != PrecisionRule::kCompute || spec.folded[id] || !spec.numeric[id]) return {};
  if (is_possible(spec, id, precision)) return {};
  if (const LayerId product = spec.product_of_bias(id); product != kNone && is_quantized(precision))
    return refusal(spec, product, precision);
  if (const std::vector<TensorId> without = missing(spec, id, precision); !without.empty())
    return fmt::format("there are no scales for {} (give a calibration cache)", names_of(spec, without));
  return obstacle(spec, id, precision);
}

void QuantizedChoices::log_fallbacks(const Specialization& spec) const {
  if (enabled_.empty()) return;
  // Why most layers have no int8 is no news: its own messages tell of scales.
  const bool all_reasons = enabled_.front() != Precision::kINT8;
  std::map<std::pair<std::string_view, std::string>, std::vector<std::string>> layers_by_reason;
  for (const LayerPlace& place : all_layers(spec)) {
    const Layer& layer = place.layer();
    if (!is_product(layer.op->function) || place.folded() || !place.numeric()) continue;
    const bool in_body = place.holder != kNone;
    const std::string reason = in_body ? std::string(kInBody) : obstacle(spec, place.id, enabled_.front());
    if (reason.empty() || !(all_reasons || in_body || reason == kNotFinite || reason == kUnknownShapes)) continue;
    const std::vector<Precision> others = in_body ? std::vector<Precision>() : possible(place.id);
    layers_by_reason[{others.empty() ? "floats" : name_of(others.front()), reason}].push_back(layer.name);
  }
  for (const auto& [why, layers] : layers_by_reason)
    log_once(LogLevel::kInfo, "{}: {} layer(s) take {} instead, since {}: {}", name_of(enabled_.front()), layers.size(),
             why.first, why.second, first_names(layers));
}

void QuantizedChoices::warn(const Specialization& spec, std::vector<TensorId> without_scale) const {
  std::vector<std::string_view> names;
  for (const Precision p : enabled_)
    if (form_of(p).needs_calibration()) names.push_back(name_of(p));
  if (names.empty()) return;
  const std::string which = fmt::format("{}", fmt::join(names, ", "));
  if (scales_.empty()) {
    log_once(LogLevel::kWarning, "{}: no tensor has a scale, so layers keep the next higher enabled precision", which);
    return;
  }
  std::ranges::sort(without_scale);
  without_scale.erase(std::unique(without_scale.begin(), without_scale.end()), without_scale.end());
  if (without_scale.empty()) return;
  log_once(LogLevel::kWarning,
           "{}: {} tensor(s) have no scale, so the layers that read them keep the next higher enabled precision: {}. "
           "Calibrate again, or give --calibration-cache of this network",
           which, without_scale.size(), names_of(spec, without_scale));
}

}  // namespace ulpscope
