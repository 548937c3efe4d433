#include "precision/explain.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <tuple>

#include "backend/backend.h"
#include "core/parallel.h"
#include "engine/element_forms.h"
#include "engine/int8.h"
#include "ops/forms.h"
#include "precision/local_errors.h"
#include "precision/value_counts.h"
#include "precision/weight_loss.h"

namespace ulpscope {
namespace {

/// What a tensor is counted against; the scale of int8, 0 for floats.
using RangeKey = std::tuple<TensorId, Precision, float>;

/// Of a layer by itself.
struct LayerCount {
  SumCount sums;
  /// What is finite and becomes infinite or NaN in low precision, and the largest of it.
  std::int64_t broken = 0;
  double largest_broken = 0;

  /// `error`: low - exact.
  void add_broken(const Tensor& exact, const Tensor& error) {
    if (exact.type() != DataType::kFloat32) return;
    const float* y = exact.data<float>();
    const float* d = error.data<float>();
    for (std::int64_t i = 0; i < exact.size(); ++i)
      if (std::isfinite(y[i]) && !std::isfinite(d[i])) {
        ++broken;
        largest_broken = std::max(largest_broken, std::abs(static_cast<double>(y[i])));
      }
  }
  void add(const LayerCount& other) {
    sums.add(other.sums);
    broken += other.broken;
    largest_broken = std::max(largest_broken, other.largest_broken);
  }
};

class Explainer {
 public:
  /// `harmless_overflow`: it is known not to matter.
  Explainer(const Specialization& spec, const Assignment& low, LayerId id, bool harmless_overflow)
      : spec_(spec),
        network_(*spec.network),
        layer_(network_.layer(id)),
        low_(low),
        id_(id),
        harmless_overflow_(harmless_overflow) {
    inputs_.resize(layer_.inputs.size());
  }

  bool is_sum() const {
    return (layer_.op->function == Function::kAdd || layer_.op->function == Function::kSub) && is_float(precision());
  }
  void add_sum(const Tensor& a, const Tensor& b, const Tensor& out, LayerCount& count) const {
    count_sums(a, b, out, precision(), count.sums);
  }

  /// What is to be counted of an input and of the outputs; nothing of what is not quantized.
  std::optional<RangeKey> input_key(std::size_t index) const {
    const TensorId id = layer_.inputs[index];
    const bool quantized = is_quantized(precision());
    const float scale = quantized && !low_.scale.empty() ? low_.scale[id] : 0.0f;
    if (id == kNone || (quantized && scale == 0)) return std::nullopt;
    return RangeKey{id, precision(), scale};
  }
  RangeKey output_key(TensorId output) const { return {output, precision(), 0}; }
  void take(const std::map<RangeKey, RangeCount>& counts, const LayerCount& own) {
    const auto add = [&](const RangeKey& key, RangeCount& to) {
      if (const auto found = counts.find(key); found != counts.end()) to.add(found->second);
    };
    for (std::size_t i = 0; i < inputs_.size(); ++i)
      if (const auto key = input_key(i)) add(*key, inputs_[i]);
    for (const TensorId output : present(layer_.outputs)) add(output_key(output), output_);
    own_.add(own);
  }

  Reason reason() const {
    Reason result = is_float(precision())                ? float_reason()
                    : is_beyond_scales()                 ? saturation()
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

 private:
  Precision precision() const { return low_.precision[id_]; }
  const std::string& name(TensorId id) const { return network_.tensor(id).name; }
  const std::string& output_name() const { return name(layer_.outputs[0]); }
  const RangeCount* count_of(const std::string& tensor) const {
    for (std::size_t i = 0; i < inputs_.size(); ++i)
      if (layer_.inputs[i] != kNone && inputs_[i].total > 0 && name(layer_.inputs[i]) == tensor) return &inputs_[i];
    return tensor == output_name() ? &output_ : nullptr;
  }
  std::string_view type() const { return name_of(precision()); }

  /// The input whose clipping costs more than the steps do, and the most of all; none: the number of inputs.
  std::size_t most_clipped() const {
    std::size_t at = inputs_.size();
    for (std::size_t i = 0; i < inputs_.size(); ++i)
      if (inputs_[i].outside_error > inputs_[i].inside_error &&
          (at == inputs_.size() || inputs_[i].outside_error > inputs_[at].outside_error))
        at = i;
    return at;
  }
  bool is_beyond_scales() const { return most_clipped() < inputs_.size(); }

  Reason saturation() const {
    Reason result;
    const std::size_t at = most_clipped();
    const RangeCount& worst = inputs_[at];
    const double limit = 127.0 * static_cast<double>(low_.scale[layer_.inputs[at]]);
    result.kind = ReasonKind::kSaturation;
    fill(result, layer_.inputs[at], worst.clipped, worst.total, worst.largest);
    result.text =
        fmt::format("saturation: {} of {} values of '{}' lie beyond the scale's range of {:.4g} (up to {:.4g})",
                    worst.clipped, worst.total, result.tensor, limit, worst.largest);
    return result;
  }

  /// Of products in other formats than int8: what becomes of their constant weights, which are known.
  Reason format_reason() const {
    Reason result;
    result.kind = ReasonKind::kRounding;
    result.tensor = output_name();
    const TensorId weights = layer_.inputs[1];
    const bool coded = form_of(precision()).is_of_weights();
    result.text = fmt::format("rounding of its {} to {}", coded ? "weights" : "inputs and weights", type());
    if (!spec_.is_constant(weights)) return result;
    const Encoding encoding = encoding_of(spec_, layer_, precision(), 1, low_.int8_output, low_.scale_choice);
    const ScaleLayout layout = scale_layout(spec_, layer_, 1, encoding);
    const Tensor values = spec_.value(weights).in_memory();
    ScaleRules rules;
    const SharedChannelWeights weighted = channel_weights_of(spec_, layer_, 1, encoding, low_);
    if (weighted != nullptr) rules.weights = weighted->mean_squares;
    const int channels = static_cast<int>(weight_channel_axis(spec_, layer_));
    const int rank = static_cast<int>(values.rank()), summed = ops::is_convolution(layer_) ? 1 - channels
                                                               : channels == rank - 1      ? rank - 2
                                                                                           : rank - 1;
    std::vector<int> sharing{summed};
    if (encoding.granularity == Granularity::kTensor) sharing.push_back(channels);
    const WeightLoss loss = weight_loss(values, quantize(encoding, layout, values, rules), encoding, layout, sharing);
    result.tensor = name(weights);
    result.text += fmt::format(": the weights '{}' lose {:.2g} % (rms)", result.tensor, 100 * loss.relative);
    result.text += explain_loss(loss, values.size(), result);
    return result;
  }

  Reason int8_reason() const {
    Reason result;
    const RangeCount* coarse = nullptr;
    std::size_t where = 0;
    for (std::size_t i = 0; i < inputs_.size(); ++i)
      if (inputs_[i].nonzero > 0 && (coarse == nullptr || share(inputs_[i].coarse, inputs_[i].nonzero) >
                                                              share(coarse->coarse, coarse->nonzero))) {
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

  Reason float_reason() const {
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
                            output_.beyond, output_.total, result.tensor, type(), output_.largest, type(),
                            range.largest)
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

  /// A tenth of the values lose bits for being small, and that is most of what rounding costs: small values beside
  /// large ones, as behind a softmax, are no reason.
  static bool vanishes(const RangeCount& count) {
    constexpr double kMany = 0.1;
    return share(count.vanishing, count.nonzero) >= kMany && count.outside_error > 0 &&
           count.outside_error >= count.inside_error;
  }

  /// Of a layer whose outputs are no floats.
  Reason comparison(const TypeRange& range) const {
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

  /// Large operands with a small result, or a small operand that the steps at the other's magnitude swallow.
  Reason cancellation(const TypeRange& range) const {
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

  /// An operand that is 0 wherever it does not swallow the other: an attention mask means to lose what it covers.
  bool is_mask(std::size_t operand) const {
    const std::int64_t absent = own_.sums.absent[operand], swallows = own_.sums.swallows[operand];
    return swallows > 0 && absent > 0 && absent + swallows >= own_.sums.total - own_.sums.total / 100;
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
  const bool harmless_overflow_;
  LayerCount own_;
  std::vector<RangeCount> inputs_;
  RangeCount output_;
};

/// Of layers that are in no body.
std::vector<Reason> explain_outside(Trials& trials, const Assignment& low, std::span<const LayerId> layers,
                                    std::size_t samples, std::span<const char> harmless_overflow) {
  if (layers.empty()) return {};
  const auto first = trials.specialization();
  const Network& network = trials.network();
  std::vector<TensorId> tensors;
  std::map<TensorId, std::size_t> index;
  std::vector<Explainer> explainers;
  std::map<RangeKey, RangeCount> counts;
  for (LayerId id : layers) {
    const bool harmless = !harmless_overflow.empty() && harmless_overflow[explainers.size()] != 0;
    const Explainer& explainer = explainers.emplace_back(*first, low, id, harmless);
    const Layer& layer = network.layer(id);
    for (const auto* ids : {&layer.inputs, &layer.outputs})
      for (TensorId tensor : present(*ids))
        if (!first->is_constant(tensor) && is_floating(first->type(tensor)) &&
            index.emplace(tensor, tensors.size()).second)
          tensors.push_back(tensor);
    for (std::size_t i = 0; i < layer.inputs.size(); ++i)
      if (const auto key = explainer.input_key(i)) counts[*key];
    for (TensorId output : present(layer.outputs)) counts[explainer.output_key(output)];
  }
  std::vector<std::pair<const RangeKey, RangeCount>*> counted;
  for (auto& each : counts) counted.push_back(&each);
  std::vector<LayerCount> own(layers.size());
  struct SampleCounts {
    std::vector<RangeCount> ranges;  ///< Per `counted`.
    std::vector<LayerCount> own;     ///< Per layer.
  };
  const auto count_sample = [&](std::size_t s, const LocalErrors::Result& result) {
    SampleCounts made{std::vector<RangeCount>(counted.size()), std::vector<LayerCount>(layers.size())};
    const auto spec = trials.specialization(s);
    const auto value_of = [&](TensorId tensor) {
      if (tensor == kNone) return Tensor();
      if (spec->is_constant(tensor)) return spec->value(tensor);
      const auto found = index.find(tensor);
      return found != index.end() ? result.values[found->second] : Tensor();
    };
    // Each count, and each layer, belongs to one thread.
    parallel_for(std::ssize(counted), 1, [&](std::int64_t begin, std::int64_t end) {
      for (auto i = static_cast<std::size_t>(begin); i < static_cast<std::size_t>(end); ++i) {
        const auto [tensor, precision, scale] = counted[i]->first;
        if (s > 0 && spec->is_constant(tensor)) continue;
        if (const Tensor value = value_of(tensor)) count_range(value, precision, scale, made.ranges[i]);
      }
    });
    const auto add = [&](const Explainer& explainer, LayerId id, LayerCount& count) {
      const Layer& layer = network.layer(id);
      const Tensor output = value_of(layer.outputs[0]);
      if (explainer.is_sum() && output) {
        const Tensor a = value_of(layer.inputs[0]), b = value_of(layer.inputs[1]);
        if (a && b) explainer.add_sum(a, b, output, count);
      }
      for (const LocalError& error : result.errors)
        if (error.layer == id && index.contains(error.tensor)) count.add_broken(value_of(error.tensor), error.error);
    };
    parallel_for(std::ssize(layers), 1, [&](std::int64_t begin, std::int64_t end) {
      for (auto i = static_cast<std::size_t>(begin); i < static_cast<std::size_t>(end); ++i)
        add(explainers[i], layers[i], made.own[i]);
    });
    return made;
  };
  // Errors are brought here only where some are not finite.
  LocalErrors squares(network, low, layers, trials.options(), trials.weights(), LocalErrors::Yield::kSquares);
  LocalErrors elements(network, low, layers, trials.options(), trials.weights());
  const auto run = [&](std::size_t s) {
    LocalErrors::Result result = squares.run(trials.inputs(s), tensors);
    const auto is_finite = [](const LocalError& error) {
      return std::isfinite(error.error.cast(DataType::kFloat64).data<double>()[0]);
    };
    if (!std::ranges::all_of(result.errors, is_finite)) return elements.run(trials.inputs(s), tensors);
    result.errors.clear();
    return result;
  };
  // A sample is counted while others run; what is counted of each is added in their order, whatever the threads.
  constexpr std::size_t kPerTask = 4, kOnDevice = 3;
  std::size_t bytes = kPerTask * (counted.size() * sizeof(RangeCount) + layers.size() * sizeof(LayerCount));
  for (TensorId id : tensors)
    if (first->shape(id)) bytes += 2 * static_cast<std::size_t>(num_elements(*first->shape(id))) * sizeof(float);
  // A device runs one after the other: while one does, others are counted.
  const bool own_memory = find_backend(trials.options().backend).has_own_memory();
  // Where there is too little memory for the tensors of all layers, some layers after the others: what is counted of
  // one does not depend on the rest.
  const std::size_t budget = trials.memory_limit() != 0 ? trials.memory_limit() / 2 : trials.working_memory();
  if (bytes > budget && layers.size() > 1) {
    std::vector<Reason> reasons;
    const std::size_t half = layers.size() / 2;
    const auto harmless = [&](std::size_t begin, std::size_t count) {
      return harmless_overflow.empty() ? harmless_overflow : harmless_overflow.subspan(begin, count);
    };
    for (const auto& [begin, count] : {std::pair{std::size_t{0}, half}, {half, layers.size() - half}})
      std::ranges::move(explain_layers(trials, low, layers.subspan(begin, count), samples, harmless(begin, count)),
                        std::back_inserter(reasons));
    return reasons;
  }
  const auto share_of = [&](std::size_t count) {
    return share_threads(own_memory ? std::min(count, kOnDevice) : count, bytes, trials.working_memory());
  };
  const std::size_t most = kPerTask * static_cast<std::size_t>(share_of(samples).tasks);
  for (std::size_t begin = 0, end = 0; begin < samples; begin = end) {
    end = std::min(samples, begin + most);
    std::vector<SampleCounts> made(end - begin);
    run_tasks(begin, end, share_of(end - begin), [&](std::size_t s) { made[s - begin] = count_sample(s, run(s)); });
    for (const SampleCounts& sample : made) {
      for (std::size_t i = 0; i < counted.size(); ++i) counted[i]->second.add(sample.ranges[i]);
      for (std::size_t i = 0; i < layers.size(); ++i) own[i].add(sample.own[i]);
    }
  }
  for (std::size_t i = 0; i < explainers.size(); ++i) explainers[i].take(counts, own[i]);
  std::vector<Reason> reasons;
  for (const Explainer& explainer : explainers) reasons.push_back(explainer.reason());
  return reasons;
}

/// Values inside of a body are no network outputs: what is known is what a trial said.
Reason reason_inside(const Network& network, LayerId id, Precision low) {
  Reason result;
  result.kind = ReasonKind::kMeasured;
  result.low = low;
  result.text = fmt::format("it is inside of a body of '{}'; a trial says what it costs in {}",
                            network.layer(network.holder_of(id)).name, name_of(low));
  return result;
}

}  // namespace

std::vector<Reason> explain_layers(Trials& trials, const Assignment& low, std::span<const LayerId> layers,
                                   std::size_t samples, std::span<const char> harmless_overflow) {
  const Network& network = trials.network();
  std::vector<LayerId> outside;
  std::vector<char> harmless;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    if (!network.layers.contains(layers[i])) continue;
    outside.push_back(layers[i]);
    if (!harmless_overflow.empty()) harmless.push_back(harmless_overflow[i]);
  }
  const std::vector<Reason> explained = explain_outside(trials, low, outside, samples, harmless);
  auto next = explained.begin();
  std::vector<Reason> result;
  for (LayerId id : layers)
    result.push_back(network.layers.contains(id) ? *next++ : reason_inside(network, id, low.precision[id]));
  return result;
}

}  // namespace ulpscope
