#include "calibration/calibration.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "backend/backend.h"
#include "calibration/sample_inputs.h"
#include "compare/data_loader.h"
#include "core/messages.h"
#include "core/parallel.h"
#include "engine/assign.h"
#include "engine/int8.h"
#include "graph/adjoint.h"
#include "graph/evaluate.h"
#include "ops/layer_writer.h"
#include "runtime/by_shapes.h"
#include "runtime/executable.h"
#include "ulpscope/error.h"

namespace ulpscope {
namespace {

std::string quoted_list(const std::vector<std::string>& names, std::size_t shown) {
  std::vector<std::string> quoted;
  for (std::size_t i = 0; i < std::min(names.size(), shown); ++i) quoted.push_back("'" + names[i] + "'");
  std::string text = fmt::format("{}", fmt::join(quoted, ", "));
  if (names.size() > shown) text += fmt::format(" and {} more", names.size() - shown);
  return text;
}

}  // namespace

Network with_outputs(const Network& network, std::vector<TensorId> outputs) {
  Network copy = network;
  for (Layer& layer : copy.layers) {
    layer.precision.reset();
    layer.output_types.clear();
  }
  copy.outputs = std::move(outputs);
  return copy;
}

std::vector<Tensor> physical_inputs(const TensorMap& sample, const std::vector<InputBinding>& bindings) {
  std::vector<Tensor> inputs;
  for (const NamedTensor& input : adapt_inputs(sample, bindings)) inputs.push_back(to_physical(input.tensor));
  return inputs;
}

namespace {

/// Hands out some tensors of the network, for inputs of any shapes.
class Probe {
 public:
  Probe(const Network& network, std::vector<TensorId> tensors, const BuildOptions& options,
        const std::vector<Shape>& shapes, const WeightCache& weights)
      : network_(with_outputs(network, std::move(tensors))), options_(options) {
    const auto spec = specialize(network_, shapes);
    executable_ = std::make_unique<Executable>(network_, assign_precisions(*spec, options_), options_, spec, weights);
  }

  const std::vector<TensorId>& tensors() const noexcept { return network_.outputs; }

  /// Of each of these inputs, side by side.
  std::vector<std::vector<Tensor>> run_all(std::span<const std::vector<Tensor>> inputs) const {
    std::vector<std::vector<Tensor>> results(inputs.size());
    ByShapes<const Plan> plans;
    for (const std::vector<Tensor>& each : inputs) plans.expect(shapes_of(each));
    run_tasks(0, inputs.size(), share_threads(inputs.size(), 0, 0), [&](std::size_t s) {
      const std::vector<Shape> shapes = shapes_of(inputs[s]);
      const auto make = [&] { return executable_->plan_for(shapes, executable_->assignment(), options_.fusion); };
      results[s] = naming_file(network_, [&] { return plans.use(shapes, make)->run(inputs[s]); });
    });
    return results;
  }

  /// In the order of `tensors`.
  std::vector<Tensor> run(std::span<const Tensor> inputs) {
    std::vector<Shape> shapes = shapes_of(inputs);
    if (plan_ == nullptr || shapes != shapes_) {
      plan_.reset();
      plan_ = executable_->plan_for(shapes, executable_->assignment(), options_.fusion);
      shapes_ = std::move(shapes);
    }
    return naming_file(network_, [&] { return plan_->run(inputs); });
  }

 private:
  const Network network_;
  const BuildOptions options_;
  std::unique_ptr<Executable> executable_;
  std::vector<Shape> shapes_;
  std::shared_ptr<const Plan> plan_;
};

class Calibrator {
 public:
  Calibrator(const Network& network, const CalibrationOptions& options, const WeightCache& weights)
      : network_(network), options_(options), weights_(weights) {
    build_.threads = options.threads;
    bindings_ = input_bindings(network);
  }

  void add(const TensorMap& sample, Calibration& result) {
    const std::vector<Tensor> inputs = physical_inputs(sample, bindings_);
    if (probes_.empty() && inputs_.empty()) {
      prepare(inputs);
      for (std::size_t i = 0; i < inputs.size(); ++i) result.first_shapes.emplace(bindings_[i].name, inputs[i].shape());
    }
    std::vector<Tensor> read;
    for (std::size_t i : inputs_) read.push_back(inputs[i]);
    count(0, read);
    std::size_t first = inputs_.size();
    for (const auto& probe : probes_) {
      count(first, probe->run(inputs));
      first += probe->tensors().size();
    }
  }

  void finish(Calibration& result) const {
    std::vector<float> scales(tensors_.size());
    parallel_each(scales.size(), [&](std::size_t t) {
      scales[t] = scale_from_threshold(calibrated_threshold(histograms_[t], options_.algorithm, options_.quantile));
    });
    const auto has_values = [](const MagnitudeHistogram& histogram) {
      return histogram.counted() + histogram.zeros() + histogram.masks() > 0;
    };
    if (!tensors_.empty() && std::ranges::none_of(histograms_, has_values))
      throw invalid_argument(
          "[calibrate] expected values to take scales from, got none that are finite in any tensor; try samples "
          "without NaN and without dimensions of 0");
    std::vector<std::string> not_finite;
    for (std::size_t t = 0; t < tensors_.size(); ++t) {
      const MagnitudeHistogram& histogram = histograms_[t];
      const std::string& name = network_.tensor(tensors_[t]).name;
      result.scales[name] = scales[t];
      if (histogram.non_finite() > 0) not_finite.push_back(name);
      if (histogram.masks() > 0)
        log_verbose("[calibrate] tensor '{}': {} value(s) beyond {:g} are masks that saturate in int8", name,
                    histogram.masks(), kMaskMagnitude);
    }
    if (!not_finite.empty())
      log_warning(
          "[calibrate] {} tensor(s) have values that are NaN or infinite, which no scale represents; their ranges are "
          "those of the other values: {}",
          not_finite.size(), quoted_list(not_finite, 10));
  }

 private:
  /// Chooses the tensors, and who hands them out, by the first sample.
  void prepare(std::span<const Tensor> inputs) {
    const std::vector<Shape> shapes = shapes_of(inputs);
    const Network plain = with_outputs(network_, network_.outputs);
    const auto spec = specialize(plain, shapes);
    std::vector<TensorId> computed;
    for (TensorId id : calibrated_tensors(*spec)) {
      const auto input = std::ranges::find(network_.inputs, id);
      if (input == network_.inputs.end()) {
        computed.push_back(id);
        continue;
      }
      inputs_.push_back(static_cast<std::size_t>(input - network_.inputs.begin()));
      tensors_.push_back(id);
    }
    tensors_.insert(tensors_.end(), computed.begin(), computed.end());
    const bool bins = options_.algorithm != CalibrationAlgorithm::kMinMax;
    histograms_.assign(tensors_.size(), MagnitudeHistogram(bins));

    std::vector<TensorId> chunk;
    std::size_t bytes = 0;
    const auto flush = [&] {
      if (!chunk.empty())
        probes_.push_back(std::make_unique<Probe>(network_, std::move(chunk), build_, shapes, weights_));
      chunk.clear();
      bytes = 0;
    };
    for (TensorId id : computed) {
      const auto& shape = spec->shape(id);
      const std::size_t size = shape ? static_cast<std::size_t>(num_elements(*shape)) * sizeof(float) : 0;
      if (bytes + size > options_.memory_limit) flush();
      chunk.push_back(id);
      bytes += size;
    }
    flush();
    log_verbose("[calibrate] {} tensors, {} run(s) per sample", tensors_.size(), probes_.size());
  }

  /// Tensors `first`, `first` + 1, ... have these values. Each histogram belongs to one thread.
  void count(std::size_t first, const std::vector<Tensor>& values) {
    std::vector<Tensor> floats;
    for (const Tensor& value : values)
      floats.push_back(value.type() == DataType::kFloat32 ? value : value.cast(DataType::kFloat32));
    parallel_each(floats.size(), [&](std::size_t i) { histograms_[first + i].add(floats[i].values<float>()); });
  }

  const Network& network_;
  const CalibrationOptions options_;
  const WeightCache weights_;
  BuildOptions build_;
  std::vector<InputBinding> bindings_;
  std::vector<TensorId> tensors_;    ///< Inputs of the network first, then those of the probes.
  std::vector<std::size_t> inputs_;  ///< Which inputs are among them.
  std::vector<std::unique_ptr<Probe>> probes_;
  std::vector<MagnitudeHistogram> histograms_;
};

}  // namespace

std::vector<TensorId> calibrated_tensors(const Specialization& spec) {
  const Network& network = *spec.network;
  std::vector<TensorId> result;
  const auto add = [&](TensorId id) {
    if (id != kNone && is_floating(spec.type(id)) && !spec.is_constant(id)) result.push_back(id);
  };
  for (TensorId id : network.inputs) add(id);
  for (const Layer& layer : network.layers)
    for (TensorId id : layer.outputs) add(id);
  return result;
}

Calibration calibrate(const std::shared_ptr<const Network>& network, const CalibrationOptions& options,
                      const SampleSource& next, const CalibrationProgress& progress, const WeightCache& weights) {
  if (!(options.quantile > 0 && options.quantile <= 1))
    throw invalid_argument("[calibrate] quantile: expected a number above 0 and at most 1, got {}", options.quantile);
  set_num_threads(options.threads);
  Calibrator calibrator(*network, options, weights);
  Calibration result;
  for (;; ++result.samples) {
    const std::optional<TensorMap> sample = next();
    if (!sample) break;
    if (progress) progress(result.samples);
    try {
      calibrator.add(*sample, result);
    } catch (const Error& e) {
      throw error_of(e.code(), "[calibrate] sample {}: {}", result.samples, e.what());
    }
  }
  if (result.samples == 0)
    throw invalid_argument(
        "[calibrate] expected at least one sample to calibrate with, got none; try --load-inputs, or another data "
        "loader");
  calibrator.finish(result);
  return result;
}

void visit_values(const Network& network, std::span<const TensorId> tensors, std::span<const TensorMap> samples,
                  const CalibrationOptions& options, const WeightCache& weights, const ValueVisitor& visit) {
  if (samples.empty()) throw invalid_argument("[calibrate] expected at least one sample for the ranges, got none");
  set_num_threads(options.threads);
  BuildOptions build;
  build.threads = options.threads;
  const std::vector<InputBinding> bindings = input_bindings(network);
  std::vector<std::vector<Tensor>> inputs;
  for (const TensorMap& sample : samples) inputs.push_back(physical_inputs(sample, bindings));
  const auto spec = specialize(network, shapes_of(inputs[0]));
  for (std::size_t first = 0; first < tensors.size();) {
    std::vector<TensorId> chunk;
    std::size_t bytes = 0, last = first;
    while (last < tensors.size() && (chunk.empty() || bytes <= options.memory_limit)) {
      const auto& shape = spec->shape(tensors[last]);
      bytes += shape ? static_cast<std::size_t>(num_elements(*shape)) * sizeof(float) : 0;
      chunk.push_back(tensors[last++]);
    }
    const Probe probe(network, chunk, build, spec->input_shapes, weights);
    const ThreadShare share = share_threads(inputs.size(), bytes, options.memory_limit);
    for (std::size_t s = 0; s < inputs.size(); s += static_cast<std::size_t>(share.tasks)) {
      const auto some =
          std::span(inputs).subspan(s, std::min(inputs.size() - s, static_cast<std::size_t>(share.tasks)));
      const std::vector<std::vector<Tensor>> values = probe.run_all(some);
      // In the order of the samples; each tensor belongs to one thread.
      parallel_each(chunk.size(), [&](std::size_t t) {
        for (const std::vector<Tensor>& of_sample : values) {
          const Tensor& value = of_sample[t];
          visit(first + t, value.type() == DataType::kFloat32 ? value : value.cast(DataType::kFloat32));
        }
      });
    }
    first = last;
  }
}

namespace {

/// The network with the counts of these tensors as its only output, one behind the other. Each is counted where it is
/// made, and need not stay.
Network with_counts(const Network& network, std::span<const TensorId> tensors) {
  Network made = with_outputs(network, {});
  const auto add_tensor = [&](std::string name) {
    TensorInfo info;
    info.name = made.free_name(name);
    info.type = DataType::kInt32;
    return made.add_tensor(std::move(info));
  };
  std::map<LayerId, std::vector<Layer>> behind;  // kNone: of inputs.
  std::vector<TensorId> counts;
  for (std::size_t t = 0; t < tensors.size(); ++t) {
    Layer layer;
    layer.name = made.free_name(fmt::format("counts {}", t));
    layer.op = &ops::row_magnitudes();
    layer.opset = 1;
    layer.inputs = {tensors[t]};
    layer.outputs = {add_tensor(layer.name)};
    counts.push_back(layer.outputs[0]);
    behind[made.tensor(tensors[t]).producer].push_back(std::move(layer));
  }
  IdMap<LayerId, Layer> ordered(std::move(behind[kNone]));
  for (const LayerId l : made.layers.ids()) {
    ordered.push_back(std::move(made.layers[l]));
    if (const auto found = behind.find(l); found != behind.end())
      std::ranges::move(found->second, std::back_inserter(ordered));
  }
  made.layers = std::move(ordered);
  made.rebuild_index();
  const TensorId whole = LayerWriter(made, AdjointContext::kAdjointOpset).concat(counts, 0, made.free_name("counts"));
  made.tensor(whole).type = DataType::kInt32;
  made.outputs = {whole};
  made.check();
  return made;
}

}  // namespace

void visit_counts(const Network& network, std::span<const TensorId> tensors, std::span<const TensorMap> samples,
                  const CalibrationOptions& options, const WeightCache& weights, const std::string& backend,
                  const CountVisitor& visit) {
  if (samples.empty()) throw invalid_argument("[calibrate] expected at least one sample for the ranges, got none");
  set_num_threads(options.threads);
  BuildOptions build;
  build.threads = options.threads;
  build.backend = backend;
  const std::vector<InputBinding> bindings = input_bindings(network);
  const Network counting = with_counts(network, tensors);
  std::optional<Probe> probe;
  for (const TensorMap& sample : samples) {
    const std::vector<Tensor> inputs = physical_inputs(sample, bindings);
    if (!probe) probe.emplace(counting, counting.outputs, build, shapes_of(inputs), weights);
    const std::vector<Tensor> outputs = probe->run(inputs);
    const auto counts = outputs[0].values<std::int32_t>();
    for (std::size_t t = 0; t < tensors.size(); ++t)
      visit(t, counts.subspan(t * ops::RowMagnitudes::kSize, ops::RowMagnitudes::kSize));
  }
}

std::vector<RowRange> row_ranges(const Network& network, std::span<const TensorId> tensors,
                                 std::span<const TensorMap> samples, const CalibrationOptions& options,
                                 const WeightCache& weights, const std::string& backend) {
  std::vector<RowRange> result(tensors.size());
  if (find_backend(backend).has_own_memory())
    visit_counts(network, tensors, samples, options, weights, backend,
                 [&](std::size_t t, std::span<const std::int32_t> counts) { result[t].add(counts); });
  else
    visit_values(network, tensors, samples, options, weights,
                 [&](std::size_t t, const Tensor& value) { result[t].add(value); });
  return result;
}

std::vector<TensorId> wanted_tensors(const Network& network, const BuildOptions& build) {
  std::vector<Shape> shapes;
  for (TensorId id : network.inputs) {
    const TensorInfo& info = network.tensor(id);
    std::optional<Shape> shape = info.shape;
    if (const auto typical = build.typical_shapes.find(info.name); typical != build.typical_shapes.end())
      shape = typical->second;
    if (!build.profiles.empty())
      if (const auto opt = build.profiles.front().opt.find(info.name); opt != build.profiles.front().opt.end())
        shape = opt->second;
    if (!shape) return {};
    std::ranges::replace(*shape, -1, 1);
    shapes.push_back(std::move(*shape));
  }
  try {
    return int8_tensors(*specialize(network, std::move(shapes)));
  } catch (const Error&) {
    return {};
  }
}

void check_scales(const CalibrationCache& cache, const Network& network, std::span<const TensorId> wanted,
                  const std::string& source) {
  std::vector<std::string> unknown;
  for (const auto& [name, scale] : cache.scales)
    if (network.find_tensor(name) == kNone) unknown.push_back(name);
  if (unknown.size() == cache.scales.size()) {
    std::vector<std::string> names;
    for (TensorId id : network.inputs) names.push_back(network.tensor(id).name);
    for (const Layer& layer : network.layers)
      for (TensorId id : present(layer.outputs))
        if (layer.op->kind != OpKind::kConstant) names.push_back(network.tensor(id).name);
    throw invalid_file(
        "[calibration cache] '{}': expected scales of tensors of this network, such as {}; got {}; try the cache of "
        "this model, or the name of a new file to calibrate into",
        source, quoted_list(names, 5),
        unknown.empty() ? "none at all" : "those of another model: " + quoted_list(unknown, 5));
  }
  if (!unknown.empty())
    log_verbose("[calibration cache] '{}': {} name(s) are none of this network: {}", source, unknown.size(),
                quoted_list(unknown, 10));
  std::vector<std::string> missing;
  for (TensorId id : wanted)
    if (!cache.scales.contains(network.tensor(id).name)) missing.push_back(network.tensor(id).name);
  if (!missing.empty())
    log_warning(
        "[calibration cache] '{}' has no scale for {} tensor(s), so layers that would read them in int8 keep a higher "
        "precision: {}",
        source, missing.size(), quoted_list(missing, 10));
}

}  // namespace ulpscope
