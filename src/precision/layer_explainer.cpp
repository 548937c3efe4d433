#include "precision/layer_explainer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>

#include "engine/element_forms.h"
#include "engine/int8.h"
#include "ops/forms.h"

namespace ulpscope {
namespace {

double share(std::int64_t part, std::int64_t all) {
  return all > 0 ? static_cast<double>(part) / static_cast<double>(all) : 0;
}

/// Whether a tenth of the values lose bits because they are small, and most of what rounding costs is that: a few small
/// values beside large ones, as behind a softmax, are no reason.
bool vanishes(const RangeCount& count) {
  constexpr double kMany = 0.1;
  return share(count.vanishing, count.nonzero) >= kMany && count.outside_error > 0 &&
         count.outside_error >= count.inside_error;
}

}  // namespace

LayerExplainer::LayerExplainer(const Specialization& spec, const Assignment& low, LayerId id, bool harmless_overflow)
    : spec_(spec),
      network_(*spec.network),
      layer_(network_.layer(id)),
      low_(low),
      id_(id),
      harmless_overflow_(harmless_overflow) {
  inputs_.resize(layer_.inputs.size());
}

std::optional<RangeKey> LayerExplainer::input_key(std::size_t index) const {
  const TensorId id = layer_.inputs[index];
  const bool quantized = is_quantized(precision());
  const float scale = quantized && !low_.scale.empty() ? low_.scale[id] : 0.0f;
  if (id == kNone || (quantized && scale == 0)) return std::nullopt;
  return RangeKey{id, precision(), scale};
}

void LayerExplainer::take(const std::map<RangeKey, RangeCount>& counts, const LayerCount& own) {
  const auto add = [&](const RangeKey& key, RangeCount& to) {
    if (const auto found = counts.find(key); found != counts.end()) to.add(found->second);
  };
  for (std::size_t i = 0; i < inputs_.size(); ++i)
    if (const auto key = input_key(i)) add(*key, inputs_[i]);
  for (const TensorId output : present(layer_.outputs)) add(output_key(output), output_);
  own_.add(own);
}

Reason LayerExplainer::reason() const {
  Reason result = is_float(precision())                ? float_reason()
                  : most_clipped() < inputs_.size()    ? saturation()
                  : form_of(precision()).products_only ? format_reason()
                                                       : int8_reason();
  result.low = precision();
  if (const RangeCount* count = count_of(result.tensor)) {
    const auto is_counted = [](std::int64_t n) { return n > 0; };
    const auto first = std::ranges::find_if(count->exponents, is_counted);
    const auto last = std::find_if(count->exponents.rbegin(), count->exponents.rend(), is_counted).base();
    if (first < last) {
      result.first_exponent = kSmallestExponent + static_cast<int>(first - count->exponents.begin());
      result.exponents.assign(first, last);
    }
  }
  return result;
}

const RangeCount* LayerExplainer::count_of(const std::string& tensor) const {
  for (std::size_t i = 0; i < inputs_.size(); ++i)
    if (layer_.inputs[i] != kNone && inputs_[i].total > 0 && name(layer_.inputs[i]) == tensor) return &inputs_[i];
  return tensor == output_name() ? &output_ : nullptr;
}

std::size_t LayerExplainer::most_clipped() const {
  std::size_t at = inputs_.size();
  for (std::size_t i = 0; i < inputs_.size(); ++i)
    if (inputs_[i].outside_error > inputs_[i].inside_error &&
        (at == inputs_.size() || inputs_[i].outside_error > inputs_[at].outside_error))
      at = i;
  return at;
}

Reason LayerExplainer::saturation() const {
  Reason result;
  const std::size_t at = most_clipped();
  const RangeCount& worst = inputs_[at];
  const double limit = 127.0 * static_cast<double>(low_.scale[layer_.inputs[at]]);
  result.kind = ReasonKind::kSaturation;
  fill(result, layer_.inputs[at], worst.clipped, worst.total, worst.largest);
  result.text = fmt::format("saturation: {} of {} values of '{}' lie beyond the scale's range of {:.4g} (up to {:.4g})",
                            worst.clipped, worst.total, result.tensor, limit, worst.largest);
  return result;
}

bool LayerExplainer::has_elements(std::size_t operand) const {
  return form_of(precision()).products_only && is_quantized(precision()) && operand < layer_.inputs.size() &&
         layer_.inputs[operand] != kNone && !spec_.is_constant(layer_.inputs[operand]);
}

Encoding LayerExplainer::encoding(std::size_t operand) const {
  return encoding_of(spec_, layer_, precision(), operand, low_.int8_output, low_.scale_choice);
}

std::vector<int> LayerExplainer::sharing(std::size_t operand, const Encoding& encoding) const {
  const bool convolution = ops::is_convolution(layer_), constant = spec_.is_constant(layer_.inputs[operand]);
  const int channels = constant ? static_cast<int>(weight_channel_axis(spec_, layer_)) : 0;
  std::vector<int> result{!convolution ? summed_axis(spec_, layer_, operand) : constant ? 1 - channels : 1};
  if (constant && encoding.granularity == Granularity::kTensor) result.push_back(channels);
  return result;
}

void LayerExplainer::add_elements(std::size_t operand, const Tensor& values, LayerCount& count) const {
  if (values.type() != DataType::kFloat32 || values.size() == 0) return;
  const Encoding by = encoding(operand);
  const float scale = activation_scale(spec_, layer_.inputs[operand], by, low_.scale);
  const bool blocks = by.granularity == Granularity::kBlock;
  if (!blocks && !(scale > 0)) return;
  const ScaleLayout layout = blocks ? ScaleLayout(by, values.shape()) : ScaleLayout();
  Quantized stored;
  if (blocks) {
    stored = quantize(by, layout, values, {.second = scale > 0 ? scale : 1.0f, .keep_small = false});
  } else {
    stored = {Tensor(DataType::kFloat32, values.shape()), Tensor::of<float>({1}, {scale})};
    quantize_activation(by, layout, values, scale, stored.elements.data<float>(), false);
  }
  count.operands[operand].add(operand_loss(values, stored, by, layout, sharing(operand, by)));
}

OperandLoss LayerExplainer::weight_loss() const {
  const Encoding by = encoding(1);
  const ScaleLayout layout = scale_layout(spec_, layer_, 1, by);
  const Tensor values = spec_.value(layer_.inputs[1]).in_memory();
  ScaleRules rules;
  const SharedChannelWeights weighted = channel_weights_of(spec_, layer_, 1, by, low_);
  if (weighted != nullptr) rules.weights = weighted->mean_squares;
  return operand_loss(values, quantize(by, layout, values, rules), by, layout, sharing(1, by));
}

Reason LayerExplainer::format_reason() const {
  struct Operand {
    TensorId id;
    OperandLoss loss;
    Reason reason;
    std::string cause;
  };
  std::vector<Operand> operands;
  const bool weights = spec_.is_constant(layer_.inputs[1]);
  if (weights) operands.push_back({layer_.inputs[1], weight_loss()});
  for (std::size_t i = 0; i < own_.operands.size(); ++i)
    if (own_.operands[i].values > 0) operands.push_back({layer_.inputs[i], own_.operands[i]});
  for (Operand& operand : operands) operand.cause = explain_loss(operand.loss, operand.reason);
  // What has a cause goes first, then what loses most.
  std::ranges::stable_sort(operands, std::greater(), [](const Operand& operand) {
    return std::pair(!operand.cause.empty(), operand.loss.relative());
  });
  Reason result = operands.empty() ? Reason() : operands[0].reason;
  result.tensor = operands.empty() ? output_name() : name(operands[0].id);
  result.text = fmt::format("rounding of its {} to {}",
                            !weights                    ? "inputs"
                            : is_quantized(precision()) ? "inputs and weights"
                                                        : "weights",
                            type());
  std::string_view before = ": ";
  for (const Operand& operand : operands) {
    result.text +=
        fmt::format("{}{} '{}' {} {:.2g} % (rms)", before, spec_.is_constant(operand.id) ? "the weights" : "its input",
                    name(operand.id), spec_.is_constant(operand.id) ? "lose" : "loses", 100 * operand.loss.relative());
    before = ", ";
  }
  for (const Operand& operand : operands)
    if (!operand.cause.empty())
      result.text +=
          (operands.size() > 1 ? fmt::format("; in '{}', ", name(operand.id)) : std::string("; ")) + operand.cause;
  return result;
}

Reason LayerExplainer::int8_reason() const {
  Reason result;
  const RangeCount* coarse = nullptr;
  std::size_t where = 0;
  for (std::size_t i = 0; i < inputs_.size(); ++i)
    if (inputs_[i].nonzero > 0 &&
        (coarse == nullptr || share(inputs_[i].coarse, inputs_[i].nonzero) > share(coarse->coarse, coarse->nonzero))) {
      coarse = &inputs_[i];
      where = i;
    }
  if (coarse != nullptr && share(coarse->coarse, coarse->nonzero) >= 0.25) {
    const float scale = low_.scale[layer_.inputs[where]];
    result.kind = ReasonKind::kResolution;
    fill(result, layer_.inputs[where], coarse->coarse, coarse->nonzero, coarse->largest);
    result.text = fmt::format(
        "resolution: {} of {} values of '{}' are smaller than half a step of {:.4g} and become 0 (the range goes up "
        "to {:.4g})",
        coarse->coarse, coarse->nonzero, result.tensor, scale, coarse->largest);
    return result;
  }
  result.kind = ReasonKind::kRounding;
  result.tensor = output_name();
  result.text = "rounding of its inputs and weights to int8 steps";
  if (coarse == nullptr) return result;
  fill(result, layer_.inputs[where], coarse->total, coarse->total, coarse->largest);
  result.text += fmt::format(": steps of {:.3g} at the typical {:.3g} of '{}'", low_.scale[layer_.inputs[where]],
                             coarse->mean(), result.tensor);
  return result;
}

Reason LayerExplainer::float_reason() const {
  Reason result;
  const TypeRange range = range_of(precision());
  // Inputs first: what a producer already lost is not this layer's own.
  for (std::size_t i = 0; i < inputs_.size(); ++i) {
    if (inputs_[i].beyond == 0 || harmless_overflow_) continue;
    result.kind = ReasonKind::kOverflow;
    fill(result, layer_.inputs[i], inputs_[i].beyond, inputs_[i].total, inputs_[i].largest);
    result.text = fmt::format(
        "overflow: {} of {} values of its input '{}' lie beyond {} (up to {:.4g}, largest of {}: {:g})",
        inputs_[i].beyond, inputs_[i].total, result.tensor, type(), inputs_[i].largest, type(), range.largest);
    return result;
  }
  if ((output_.beyond > 0 || own_.broken > 0) && !harmless_overflow_) {
    result.kind = ReasonKind::kOverflow;
    fill(result, layer_.outputs[0], output_.beyond > 0 ? output_.beyond : own_.broken, output_.total,
         std::max(output_.largest, own_.largest_broken));
    result.text =
        output_.beyond > 0
            ? fmt::format("overflow: {} of {} values of '{}' lie beyond {} (up to {:.4g}, largest of {}: {:g})",
                          output_.beyond, output_.total, result.tensor, type(), output_.largest, type(), range.largest)
            : fmt::format("overflow inside: {} of {} values of '{}' become infinite or NaN in {}", own_.broken,
                          output_.total, result.tensor, type());
    return result;
  }
  for (std::size_t i = 0; i < inputs_.size(); ++i)
    if (vanishes(inputs_[i])) return underflow(layer_.inputs[i], inputs_[i]);
  if (vanishes(output_)) return underflow(layer_.outputs[0], output_);
  if (is_sum()) {
    const Reason found = cancellation(range);
    if (!found.text.empty()) return found;
  }
  result.kind = ReasonKind::kRounding;
  if (output_.total == 0) return comparison(range);
  fill(result, layer_.outputs[0], output_.total, output_.total, output_.largest);
  result.text = fmt::format("rounding to {}: steps of {:.3g} at its typical output of {:.3g}", type(),
                            step_at(output_.mean(), range.mantissa_bits), output_.mean());
  return result;
}

Reason LayerExplainer::underflow(TensorId tensor, const RangeCount& count) const {
  Reason result;
  result.kind = ReasonKind::kUnderflow;
  fill(result, tensor, count.vanishing, count.nonzero, count.smallest_vanishing);
  result.text = fmt::format(
      "underflow: {} of {} values of '{}' lie below the smallest normal {} ({:.4g}), down to {:.3g}, and lose bits "
      "or vanish",
      count.vanishing, count.nonzero, result.tensor, type(), range_of(precision()).smallest_normal,
      count.smallest_vanishing);
  return result;
}

Reason LayerExplainer::comparison(const TypeRange& range) const {
  Reason result;
  result.kind = ReasonKind::kRounding;
  result.tensor = output_name();
  result.text = fmt::format("rounding of its inputs to {}", type());
  std::size_t most = inputs_.size();
  for (std::size_t i = 0; i < inputs_.size(); ++i)
    if (inputs_[i].nonzero > 0 && (most == inputs_.size() || inputs_[i].mean() > inputs_[most].mean())) most = i;
  if (most == inputs_.size()) return result;
  fill(result, layer_.inputs[most], inputs_[most].total, inputs_[most].total, inputs_[most].largest);
  result.text += fmt::format(": steps of {:.3g} at the typical {:.3g} of '{}'",
                             step_at(inputs_[most].mean(), range.mantissa_bits), inputs_[most].mean(), result.tensor);
  return result;
}

Reason LayerExplainer::cancellation(const TypeRange& range) const {
  Reason result;
  constexpr double kMany = 0.25;
  const auto mean = [](double sum, std::int64_t count) { return sum / static_cast<double>(count); };
  const SumCount::Kind& cancelled = own_.sums.cancelled;
  const SumCount::Kind& swallowed = own_.sums.swallowed;
  const std::size_t large = inputs_[0].mean() >= inputs_[1].mean() ? 0 : 1;
  std::int64_t count = 0;
  if (share(cancelled.count, own_.sums.total) >= kMany) {
    count = cancelled.count;
    const double most = mean(cancelled.large, count);
    result.text =
        fmt::format("cancellation: its operands lie around {:.5g}, where {} steps by {:g}; their {} is about {:.3g}",
                    most, type(), step_at(most, range.mantissa_bits),
                    layer_.op->function == Function::kSub ? "difference" : "sum", mean(cancelled.small, count));
  } else if (share(swallowed.count, own_.sums.total) >= kMany && !is_mask(0) && !is_mask(1)) {
    count = swallowed.count;
    const double most = mean(swallowed.large, count);
    result.text = fmt::format(
        "cancellation: its values lie around {:.5g}, where {} steps by {:g}; what is added (about {:.3g}) is lost",
        most, type(), step_at(most, range.mantissa_bits), mean(swallowed.small, count));
  } else {
    return result;
  }
  result.kind = ReasonKind::kCancellation;
  fill(result, layer_.inputs[large], count, own_.sums.total, inputs_[large].largest);
  return result;
}

bool LayerExplainer::is_mask(std::size_t operand) const {
  const std::int64_t absent = own_.sums.absent[operand], swallows = own_.sums.swallows[operand];
  return swallows > 0 && absent > 0 && absent + swallows >= own_.sums.total - own_.sums.total / 100;
}

void LayerExplainer::fill(Reason& reason, TensorId tensor, std::int64_t count, std::int64_t total,
                          double largest) const {
  reason.tensor = name(tensor);
  reason.count = count;
  reason.total = total;
  reason.largest = largest;
}

}  // namespace ulpscope
