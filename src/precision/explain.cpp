#include "precision/explain.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>

#include "backend/backend.h"
#include "core/parallel.h"
#include "precision/layer_explainer.h"
#include "precision/local_errors.h"

namespace ulpscope {
namespace {

/// Counts what explains layers that are in no body, sample by sample.
class LayerCounter {
 public:
  LayerCounter(Trials& trials, const Assignment& low, std::span<const LayerId> layers,
               std::span<const char> harmless_overflow)
      : trials_(trials),
        layers_(layers),
        first_(trials.specialization()),
        own_(layers.size()),
        squares_(trials.network(), low, layers, trials.options(), trials.weights(), LocalErrors::Yield::kSquares),
        elements_(trials.network(), low, layers, trials.options(), trials.weights()) {
    for (LayerId id : layers) {
      const bool harmless = !harmless_overflow.empty() && harmless_overflow[explainers_.size()] != 0;
      const LayerExplainer& explainer = explainers_.emplace_back(*first_, low, id, harmless);
      const Layer& layer = trials.network().layer(id);
      for (const auto* ids : {&layer.inputs, &layer.outputs})
        for (TensorId tensor : present(*ids))
          if (!first_->is_constant(tensor) && is_floating(first_->type(tensor)) &&
              index_.emplace(tensor, tensors_.size()).second)
            tensors_.push_back(tensor);
      for (std::size_t i = 0; i < layer.inputs.size(); ++i)
        if (const auto key = explainer.input_key(i)) counts_[*key];
      for (TensorId output : present(layer.outputs)) counts_[explainer.output_key(output)];
    }
    for (auto& each : counts_) counted_.push_back(&each);
  }

  /// Memory of one sample.
  std::size_t bytes() const {
    std::size_t bytes = kPerTask * (counted_.size() * sizeof(RangeCount) + layers_.size() * sizeof(LayerCount));
    const auto floats = [&](TensorId id) {
      return first_->shape(id) ? static_cast<std::size_t>(num_elements(*first_->shape(id))) * sizeof(float) : 0;
    };
    for (TensorId id : tensors_) bytes += 2 * floats(id);
    // Operands as elements, what these stand for, and sums per block: one at a time.
    std::size_t operand = 0;
    for (std::size_t i = 0; i < layers_.size(); ++i)
      for (std::size_t k = 0; k < 2; ++k)
        if (explainers_[i].has_elements(k))
          operand = std::max(operand, 4 * floats(trials_.network().layer(layers_[i]).inputs[k]));
    return bytes + operand;
  }

  /// A sample is counted while others run; what is counted of each is added in their order, whatever the threads.
  void count(std::size_t samples) {
    // A device runs one after the other: while one does, others are counted.
    const bool own_memory = find_backend(trials_.options().backend).has_own_memory();
    const auto share_of = [&](std::size_t count) {
      return share_threads(own_memory ? std::min(count, kOnDevice) : count, bytes(), trials_.working_memory());
    };
    const std::size_t most = kPerTask * static_cast<std::size_t>(share_of(samples).tasks);
    for (std::size_t begin = 0, end = 0; begin < samples; begin = end) {
      end = std::min(samples, begin + most);
      std::vector<SampleCounts> made(end - begin);
      run_tasks(begin, end, share_of(end - begin), [&](std::size_t s) { made[s - begin] = count_sample(s, run(s)); });
      for (const SampleCounts& sample : made) {
        for (std::size_t i = 0; i < counted_.size(); ++i) counted_[i]->second.add(sample.ranges[i]);
        for (std::size_t i = 0; i < layers_.size(); ++i) own_[i].add(sample.own[i]);
      }
    }
  }

  std::vector<Reason> reasons() {
    std::vector<Reason> reasons;
    for (std::size_t i = 0; i < explainers_.size(); ++i) {
      explainers_[i].take(counts_, own_[i]);
      reasons.push_back(explainers_[i].reason());
    }
    return reasons;
  }

 private:
  static constexpr std::size_t kPerTask = 4, kOnDevice = 3;

  struct SampleCounts {
    std::vector<RangeCount> ranges;  ///< Per `counted_`.
    std::vector<LayerCount> own;     ///< Per layer.
  };

  /// Errors are brought here only where some are not finite.
  LocalErrors::Result run(std::size_t s) {
    LocalErrors::Result result = squares_.run(trials_.inputs(s), tensors_);
    const auto is_finite = [](const LocalError& error) {
      return std::isfinite(error.error.cast(DataType::kFloat64).data<double>()[0]);
    };
    if (!std::ranges::all_of(result.errors, is_finite)) return elements_.run(trials_.inputs(s), tensors_);
    result.errors.clear();
    return result;
  }

  SampleCounts count_sample(std::size_t s, const LocalErrors::Result& result) const {
    SampleCounts made{std::vector<RangeCount>(counted_.size()), std::vector<LayerCount>(layers_.size())};
    const auto spec = trials_.specialization(s);
    const auto value_of = [&](TensorId tensor) {
      if (tensor == kNone) return Tensor();
      if (spec->is_constant(tensor)) return spec->value(tensor);
      const auto found = index_.find(tensor);
      return found != index_.end() ? result.values[found->second] : Tensor();
    };
    // Each count, and each layer, belongs to one thread.
    parallel_each(counted_.size(), [&](std::size_t i) {
      const auto [tensor, precision, scale] = counted_[i]->first;
      if (s > 0 && spec->is_constant(tensor)) return;
      if (const Tensor value = value_of(tensor)) count_range(value, precision, scale, made.ranges[i]);
    });
    const auto add = [&](const LayerExplainer& explainer, LayerId id, LayerCount& count) {
      const Layer& layer = trials_.network().layer(id);
      const Tensor output = value_of(layer.outputs[0]);
      if (explainer.is_sum() && output) {
        const Tensor a = value_of(layer.inputs[0]), b = value_of(layer.inputs[1]);
        if (a && b) count_sums(a, b, output, explainer.precision(), count.sums);
      }
      for (std::size_t i = 0; i < count.operands.size(); ++i)
        if (explainer.has_elements(i))
          if (const Tensor value = value_of(layer.inputs[i])) explainer.add_elements(i, value.in_memory(), count);
      for (const LocalError& error : result.errors)
        if (error.layer == id && index_.contains(error.tensor)) count.add_broken(value_of(error.tensor), error.error);
    };
    parallel_each(layers_.size(), [&](std::size_t i) { add(explainers_[i], layers_[i], made.own[i]); });
    return made;
  }

  Trials& trials_;
  const std::span<const LayerId> layers_;
  const std::shared_ptr<const Specialization> first_;
  std::vector<TensorId> tensors_;
  std::map<TensorId, std::size_t> index_;
  std::vector<LayerExplainer> explainers_;
  std::map<RangeKey, RangeCount> counts_;
  std::vector<std::pair<const RangeKey, RangeCount>*> counted_;
  std::vector<LayerCount> own_;
  LocalErrors squares_, elements_;
};

/// Of layers that are in no body.
std::vector<Reason> explain_outside(Trials& trials, const Assignment& low, std::span<const LayerId> layers,
                                    std::size_t samples, std::span<const char> harmless_overflow) {
  if (layers.empty()) return {};
  LayerCounter counter(trials, low, layers, harmless_overflow);
  // Where there is too little memory for the tensors of all layers, some layers after the others: what is counted of
  // one does not depend on the rest.
  const std::size_t budget = trials.memory_limit() != 0 ? trials.memory_limit() / 2 : trials.working_memory();
  if (counter.bytes() > budget && layers.size() > 1) {
    std::vector<Reason> reasons;
    const std::size_t half = layers.size() / 2;
    const auto harmless = [&](std::size_t begin, std::size_t count) {
      return harmless_overflow.empty() ? harmless_overflow : harmless_overflow.subspan(begin, count);
    };
    for (const auto& [begin, count] : {std::pair{std::size_t{0}, half}, {half, layers.size() - half}})
      std::ranges::move(explain_outside(trials, low, layers.subspan(begin, count), samples, harmless(begin, count)),
                        std::back_inserter(reasons));
    return reasons;
  }
  counter.count(samples);
  return counter.reasons();
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
