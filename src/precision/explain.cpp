#include "precision/explain.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <map>

#include "core/rounding.h"
#include "engine/int8.h"
#include "precision/local_errors.h"

namespace ulpscope {
namespace {

/// Of float32, subnormals included.
constexpr int kSmallestExponent = -149, kLargestExponent = 127;

/// floor(log2 |x|) of a value that is finite and not 0.
int exponent_of(float value) {
  const std::uint32_t magnitude = std::bit_cast<std::uint32_t>(value) & 0x7fffffffu;
  const int biased = static_cast<int>(magnitude >> 23);
  return biased > 0 ? biased - 127 : std::bit_width(magnitude) - 150;
}

/// Magnitudes of one tensor against what a type can hold.
struct RangeCount {
  std::array<std::int64_t, kLargestExponent - kSmallestExponent + 1> exponents{};
  std::int64_t total = 0, beyond = 0, vanishing = 0, clipped = 0, coarse = 0, nonzero = 0;
  double largest = 0, smallest_vanishing = std::numeric_limits<double>::infinity();
  double sum = 0;
  double mean() const { return nonzero > 0 ? sum / static_cast<double>(nonzero) : 0; }
};

struct TypeRange {
  double largest, smallest_normal;
  int mantissa_bits;
};

TypeRange range_of(Precision precision) {
  switch (precision) {
    case Precision::kFP16:
      return {65504.0, 0x1p-14, 10};
    case Precision::kBF16:
      return {0x1.fep127, 0x1p-126, 7};
    case Precision::kTF32:
      return {0x1.ffcp127, 0x1p-126, 10};
    default:
      return {0x1.fffffep127, 0x1p-126, 23};
  }
}

/// `scale`: of int8, 0 for floats.
void count_range(const Tensor& values, Precision precision, float scale, RangeCount& count) {
  if (values.type() != DataType::kFloat32) return;
  const TypeRange range = range_of(precision);
  // Values from half a step above the largest on become infinite.
  const double overflow = range.largest * (1 + std::ldexp(1.0, -range.mantissa_bits - 2));
  for (float v : values.values<float>()) {
    const double x = std::abs(static_cast<double>(v));
    ++count.total;
    if (x == 0 || std::isnan(x)) continue;
    ++count.nonzero;
    count.largest = std::max(count.largest, x);
    if (std::isfinite(x)) {
      count.sum += x;
      ++count.exponents[static_cast<std::size_t>(exponent_of(v) - kSmallestExponent)];
    }
    if (scale > 0) {
      if (x > 127.5 * scale) ++count.clipped;
      if (x < 0.5 * scale) ++count.coarse;
    } else if (x >= overflow) {
      ++count.beyond;
    } else if (x < range.smallest_normal) {
      ++count.vanishing;
      count.smallest_vanishing = std::min(count.smallest_vanishing, x);
    }
  }
}

double step_at(double value, int mantissa_bits) {
  return value > 0 ? std::ldexp(1.0, std::ilogb(value) - mantissa_bits) : 0;
}

class Explainer {
 public:
  Explainer(const Specialization& spec, const Assignment& low, LayerId id)
      : spec_(spec), network_(*spec.network), layer_(network_.layer(id)), low_(low), id_(id) {
    inputs_.resize(layer_.inputs.size());
  }

  void add_input(std::size_t index, const Tensor& value) {
    const bool quantised = precision() == Precision::kINT8;
    const TensorId id = layer_.inputs[index];
    const float scale = quantised && !low_.scale.empty() ? low_.scale[static_cast<std::size_t>(id)] : 0.0f;
    if (quantised && scale == 0) return;
    count_range(value, precision(), scale, inputs_[index]);
  }
  void add_output(const Tensor& exact, const Tensor& error) {
    if (exact.type() != DataType::kFloat32) return;
    count_range(exact, precision(), 0, output_);
    const float* y = exact.data<float>();
    const float* d = error.data<float>();
    for (std::int64_t i = 0; i < exact.size(); ++i)
      if (std::isfinite(y[i]) && !std::isfinite(d[i])) {
        ++broken_;
        largest_broken_ = std::max(largest_broken_, std::abs(static_cast<double>(y[i])));
      }
  }

  Reason reason() const {
    Reason result = precision() == Precision::kINT8 ? int8_reason() : float_reason();
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

 private:
  Precision precision() const { return low_.precision[static_cast<std::size_t>(id_)]; }
  const std::string& name(TensorId id) const { return network_.tensor(id).name; }
  const std::string& output_name() const { return name(layer_.outputs[0]); }
  const RangeCount* count_of(const std::string& tensor) const {
    for (std::size_t i = 0; i < inputs_.size(); ++i)
      if (layer_.inputs[i] != kNone && inputs_[i].total > 0 && name(layer_.inputs[i]) == tensor) return &inputs_[i];
    return tensor == output_name() ? &output_ : nullptr;
  }
  std::string_view type() const { return name_of(precision()); }

  Reason int8_reason() const {
    Reason result;
    const RangeCount* worst = nullptr;
    std::size_t at = 0;
    for (std::size_t i = 0; i < inputs_.size(); ++i)
      if (inputs_[i].clipped > 0 && (worst == nullptr || inputs_[i].clipped > worst->clipped)) {
        worst = &inputs_[i];
        at = i;
      }
    if (worst != nullptr) {
      const double limit = 127.0 * static_cast<double>(low_.scale[static_cast<std::size_t>(layer_.inputs[at])]);
      result.kind = ReasonKind::kSaturation;
      fill(result, layer_.inputs[at], worst->clipped, worst->total, worst->largest);
      result.text =
          fmt::format("saturation: {} of {} values of '{}' lie beyond the scale's range of {:.4g} (up to {:.4g})",
                      worst->clipped, worst->total, result.tensor, limit, worst->largest);
      // A few outliers that are clipped matter less than steps that swallow most of the values.
      if (static_cast<double>(worst->clipped) * 100 > static_cast<double>(worst->total)) return result;
    }
    const RangeCount* coarse = nullptr;
    std::size_t where = 0;
    for (std::size_t i = 0; i < inputs_.size(); ++i)
      if (inputs_[i].nonzero > 0 && (coarse == nullptr || share(inputs_[i].coarse, inputs_[i].nonzero) >
                                                              share(coarse->coarse, coarse->nonzero))) {
        coarse = &inputs_[i];
        where = i;
      }
    if (coarse != nullptr && share(coarse->coarse, coarse->nonzero) >= 0.25) {
      const float scale = low_.scale[static_cast<std::size_t>(layer_.inputs[where])];
      result.kind = ReasonKind::kResolution;
      fill(result, layer_.inputs[where], coarse->coarse, coarse->nonzero, coarse->largest);
      result.text = fmt::format(
          "resolution: {} of {} values of '{}' are smaller than half a step of {:.4g} and become 0 (the range goes up "
          "to {:.4g})",
          coarse->coarse, coarse->nonzero, result.tensor, scale, coarse->largest);
      return result;
    }
    if (worst != nullptr) return result;
    result.kind = ReasonKind::kRounding;
    result.tensor = output_name();
    result.text = fmt::format("rounding of its inputs and weights to int8 steps");
    return result;
  }

  Reason float_reason() const {
    Reason result;
    const TypeRange range = range_of(precision());
    // Inputs first: what a producer already lost is not this layer's own.
    for (std::size_t i = 0; i < inputs_.size(); ++i) {
      if (inputs_[i].beyond == 0) continue;
      result.kind = ReasonKind::kOverflow;
      fill(result, layer_.inputs[i], inputs_[i].beyond, inputs_[i].total, inputs_[i].largest);
      result.text = fmt::format(
          "overflow: {} of {} values of its input '{}' lie beyond {} (up to {:.4g}, largest of {}: {:g})",
          inputs_[i].beyond, inputs_[i].total, result.tensor, type(), inputs_[i].largest, type(), range.largest);
      return result;
    }
    if (output_.beyond > 0 || broken_ > 0) {
      result.kind = ReasonKind::kOverflow;
      fill(result, layer_.outputs[0], std::max(output_.beyond, broken_), output_.total,
           std::max(output_.largest, largest_broken_));
      result.text =
          output_.beyond > 0
              ? fmt::format("overflow: {} of {} values of '{}' lie beyond {} (up to {:.4g}, largest of {}: {:g})",
                            output_.beyond, output_.total, result.tensor, type(), output_.largest, type(),
                            range.largest)
              : fmt::format("overflow inside: {} of {} values of '{}' become infinite or NaN in {}", broken_,
                            output_.total, result.tensor, type());
      return result;
    }
    // A tenth of the values in a place where they lose bits.
    constexpr double kMany = 0.1;
    for (std::size_t i = 0; i < inputs_.size(); ++i) {
      if (share(inputs_[i].vanishing, inputs_[i].nonzero) < kMany) continue;
      return underflow(layer_.inputs[i], inputs_[i]);
    }
    if (share(output_.vanishing, output_.nonzero) >= kMany) return underflow(layer_.outputs[0], output_);
    if (layer_.op->name == "Add" || layer_.op->name == "Sub") {
      const Reason found = cancellation(range);
      if (!found.text.empty()) return found;
    }
    result.kind = ReasonKind::kRounding;
    fill(result, layer_.outputs[0], output_.total, output_.total, output_.largest);
    result.text = fmt::format("rounding to {}: steps of {:.3g} at its typical output of {:.3g}", type(),
                              step_at(output_.mean(), range.mantissa_bits), output_.mean());
    return result;
  }

  Reason underflow(TensorId tensor, const RangeCount& count) const {
    Reason result;
    result.kind = ReasonKind::kUnderflow;
    fill(result, tensor, count.vanishing, count.nonzero, count.smallest_vanishing);
    result.text = fmt::format(
        "underflow: {} of {} values of '{}' lie below the smallest normal {} ({:.4g}), down to {:.3g}, and lose bits "
        "or "
        "vanish",
        count.vanishing, count.nonzero, result.tensor, type(), range_of(precision()).smallest_normal,
        count.smallest_vanishing);
    return result;
  }

  /// Large operands with a small result, or a small operand that the steps at the other's magnitude swallow.
  Reason cancellation(const TypeRange& range) const {
    Reason result;
    if (inputs_.size() < 2 || inputs_[0].nonzero == 0 || inputs_[1].nonzero == 0) return result;
    const std::size_t large = inputs_[0].mean() >= inputs_[1].mean() ? 0 : 1;
    const double most = inputs_[large].mean(), least = inputs_[1 - large].mean(), out = output_.mean();
    const double step = step_at(most, range.mantissa_bits);
    constexpr double kCancels = 16, kSwallows = 0.125;
    if (out > 0 && most > kCancels * out) {
      result.text =
          fmt::format("cancellation: its operands lie around {:.5g}, where {} steps by {:g}; their {} is about {:.3g}",
                      most, type(), step, layer_.op->name == "Sub" ? "difference" : "sum", out);
    } else if (least < step / kSwallows && most > kCancels * least) {
      result.text = fmt::format(
          "cancellation: its values lie around {:.5g}, where {} steps by {:g}; what is added (about {:.3g}) is lost",
          most, type(), step, least);
    } else {
      return result;
    }
    result.kind = ReasonKind::kCancellation;
    fill(result, layer_.inputs[large], inputs_[large].total, inputs_[large].total, inputs_[large].largest);
    return result;
  }

  void fill(Reason& reason, TensorId tensor, std::int64_t count, std::int64_t total, double largest) const {
    reason.tensor = name(tensor);
    reason.count = count;
    reason.total = total;
    reason.largest = largest;
  }
  static double share(std::int64_t part, std::int64_t all) {
    return all > 0 ? static_cast<double>(part) / static_cast<double>(all) : 0;
  }

  const Specialization& spec_;
  const Network& network_;
  const Layer& layer_;
  const Assignment& low_;
  const LayerId id_;
  std::vector<RangeCount> inputs_;
  RangeCount output_;
  std::int64_t broken_ = 0;
  double largest_broken_ = 0;
};

}  // namespace

std::vector<Reason> explain_layers(Trials& trials, const Assignment& low, std::span<const LayerId> layers,
                                   std::size_t samples) {
  if (layers.empty()) return {};
  const auto first = trials.specialization();
  const Network& network = trials.network();
  std::vector<TensorId> tensors;
  std::map<TensorId, std::size_t> index;
  std::vector<Explainer> explainers;
  std::map<LayerId, std::size_t> explainer_of;
  for (LayerId id : layers) {
    explainer_of[id] = explainers.size();
    explainers.emplace_back(*first, low, id);
    for (const auto* ids : {&network.layer(id).inputs, &network.layer(id).outputs})
      for (TensorId tensor : *ids)
        if (tensor != kNone && !first->is_constant(tensor) && is_floating(first->type(tensor)) &&
            index.emplace(tensor, tensors.size()).second)
          tensors.push_back(tensor);
  }
  LocalErrors local(network, low, layers, trials.options(), trials.weights());
  for (std::size_t s = 0; s < samples; ++s) {
    const LocalErrors::Result result = local.run(trials.inputs(s), tensors);
    const auto spec = trials.specialization(s);
    for (LayerId id : layers)
      for (std::size_t i = 0; i < network.layer(id).inputs.size(); ++i) {
        const TensorId tensor = network.layer(id).inputs[i];
        if (tensor == kNone) continue;
        Explainer& explainer = explainers[explainer_of[id]];
        if (const auto found = index.find(tensor); found != index.end())
          explainer.add_input(i, result.values[found->second]);
        else if (s == 0 && spec->is_constant(tensor) && spec->type(tensor) == DataType::kFloat32)
          explainer.add_input(i, spec->value(tensor));
      }
    for (const LocalError& error : result.errors)
      if (const auto found = index.find(error.tensor); found != index.end())
        explainers[explainer_of[error.layer]].add_output(result.values[found->second], error.error);
  }
  std::vector<Reason> reasons;
  for (const Explainer& explainer : explainers) reasons.push_back(explainer.reason());
  return reasons;
}

}  // namespace ulpscope
