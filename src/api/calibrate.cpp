#include "ulpscope/calibrate.h"

#include <algorithm>
#include <limits>

#include "api/loaded_model.h"
#include "calibration/calibration.h"
#include "compare/metrics.h"
#include "core/counted.h"
#include "core/messages.h"
#include "graph/layer_choice.h"
#include "precision/criterion.h"
#include "precision/trials.h"
#include "runtime/memory_limit.h"

namespace ulpscope {

Calibration calibrate(Model& model, const CalibrationSource& next, const CalibrationOptions& options,
                      const CalibrationProgress& progress) {
  LoadedModel& loaded = ModelAccess::loaded(model);
  CalibrationOptions with_threads = options;
  with_threads.threads = loaded.build.threads;
  const std::size_t limit = loaded.build.memory_limit;
  if (limit != 0) {
    with_threads.memory_limit = std::min(options.memory_limit, limit / 2);
    loaded.weights.set_limits({limit, limit, limit});
  }
  begin_limited(*loaded.network, limit);
  const SampleSource source = [&]() -> std::optional<TensorMap> {
    const auto sample = next();
    if (!sample) return std::nullopt;
    TensorMap tensors;
    for (const auto& [name, tensor] : *sample) tensors.push_back({name, tensor});
    return tensors;
  };
  Calibration made = calibrate(loaded.network, with_threads, source, progress, loaded.weights);
  end_limited(limit, "a sample, the values that are counted of it, and what a run holds took", "smaller samples");
  log_info("Calibrated {} tensors with {} by {}", made.scales.size(), counted(made.samples, "sample"),
           cache_name_of(options.algorithm));
  if (loaded.build.profiles.empty())
    for (const auto& [name, shape] : made.first_shapes) loaded.build.typical_shapes.emplace(name, shape);
  loaded.build.scales = made.scales;
  return made;
}

Calibration calibrate(Model& model, std::span<const TensorsByName> samples, const CalibrationOptions& options) {
  std::size_t next = 0;
  return calibrate(
      model, [&] { return next < samples.size() ? std::optional(samples[next++]) : std::nullopt; }, options);
}

void measure_activations(Model& model, std::span<const TensorsByName> samples) {
  LoadedModel& loaded = ModelAccess::loaded(model);
  BuildOptions& build = loaded.build;
  if (!have_chosen_scales(build.enabled) ||
      loaded.weight_scales.value_or(WeightScales::kActivations) != WeightScales::kActivations)
    return;
  if (samples.empty())
    throw invalid_argument(
        "[calibrate] weight_scales: expected at least one sample to measure activations on, got none; try "
        "--calibration-inputs, or --weight-scales amax");
  CalibrationOptions options;
  options.threads = build.threads;
  const std::size_t limit = build.memory_limit;
  if (limit != 0) {
    options.memory_limit = std::min(options.memory_limit, limit / 2);
    loaded.weights.set_limits({limit, limit, limit});
  }
  build.mean_squares = input_mean_squares(*loaded.network, build.enabled, fitted_samples(*loaded.network, samples),
                                          options, loaded.weights);
  build.scale_choice.weights = WeightScales::kActivations;
  log_info("Scales of weights in 4 bits are chosen by activations: the mean squares of what {} product(s) read in {}",
           build.mean_squares.size(), counted(std::ssize(samples), "sample"));
}

double calibration_error(const Model& model, std::span<const TensorsByName> samples) {
  const LoadedModel& loaded = ModelAccess::loaded(model);
  if (!loaded.build.enabled.has_quantized())
    throw invalid_argument("[calibrate] expected a model that is read for int8, got one without");
  const std::vector<TensorMap> fitted = fitted_samples(*loaded.network, samples);
  if (fitted.empty())
    throw invalid_argument("[calibrate] expected at least one sample to measure the error on, got none");
  BuildOptions build = loaded.build;
  build.assume_lowest = true;
  Trials trials(loaded.network, build, fitted, loaded.weights);
  trials.set_memory_limit(build.memory_limit);
  const std::vector<TensorMap> exact = trials.run(trials.full_precision(), /*keep=*/false);
  if (!has_elements(exact)) return std::numeric_limits<double>::quiet_NaN();
  const std::vector<TensorMap> low = trials.run(trials.assign(own_requests(*loaded.network)), /*keep=*/false);
  return make_metric_criterion(MetricKind::kRelativeL2, 1.0, {}, /*infinities_equal=*/true)->judge(exact, low).used;
}

bool brings_scales(const Model& model) {
  return std::ranges::any_of(ModelAccess::loaded(model).network->layers, [](const Layer& layer) {
    return layer.op->function == Function::kQuantize || layer.op->function == Function::kDequantize;
  });
}

void use_calibration(Model& model, const CalibrationCache& cache, const std::string& source) {
  LoadedModel& loaded = ModelAccess::loaded(model);
  check_scales(cache, *loaded.network, wanted_tensors(*loaded.network, loaded.build), source);
  loaded.build.scales = cache.scales;
}

}  // namespace ulpscope
