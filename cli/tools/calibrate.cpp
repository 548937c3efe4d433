#include "tools/calibrate.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>

#include "api/loaded_model.h"
#include "calibration/calibration_cache.h"
#include "calibration/calibrators.h"
#include "compare/data_loader.h"
#include "console.h"
#include "core/messages.h"
#include "interrupt.h"
#include "precision/repair.h"
#include "tools/network_setup.h"
#include "ulpscope/answer.h"
#include "ulpscope/calibrate.h"
#include "ulpscope/error.h"
#include "ulpscope/log.h"

namespace ulpscope::cli {
namespace {

/// What dynamic inputs are calibrated with: the last profile's, as Polygraphy does.
std::vector<std::pair<std::string, Shape>> calibration_shapes(const BuildOptions& build) {
  std::vector<std::pair<std::string, Shape>> shapes;
  if (!build.profiles.empty())
    for (const auto& [name, shape] : build.profiles.back().opt) shapes.emplace_back(name, shape);
  return shapes;
}

/// Formats of floats hold small values beside large ones: no clipping pays.
bool has_calibrated_floats(PrecisionSet precisions) {
  return std::ranges::any_of(precisions.members(), [](Precision p) {
    return form_of(p).needs_calibration() && format_of(form_of(p).activation.encoding->format).is_float;
  });
}

/// --calib-base-cls and --quantile. Throws Error for names and numbers that make no sense.
CalibrationOptions calibration_options(const TrtConfigArgs& config) {
  CalibrationOptions options;
  if (config.calib_base_cls)
    options.algorithm = calibration_algorithm_from_name(*config.calib_base_cls);
  else if (has_calibrated_floats(config.precisions()))
    options.algorithm = CalibrationAlgorithm::kMinMax;
  if (config.quantile) {
    options.quantile = *config.quantile;
    if (!(options.quantile > 0 && options.quantile <= 1))
      throw invalid_argument("[options] --quantile: expected a number above 0 and at most 1, such as {}, got {}",
                             kDefaultQuantile, options.quantile);
    if (options.algorithm != CalibrationAlgorithm::kLegacy)
      log_warning("[options] --quantile has no effect: it is for --calib-base-cls IInt8LegacyCalibrator");
  }
  return options;
}

/// --calibration-inputs, else what the network runs on.
DataLoaderArgs calibration_data(const NetworkArgs& args) {
  DataLoaderArgs data = args.data;
  if (args.config.calibration_inputs.empty()) return data;
  data.load_inputs = args.config.calibration_inputs;
  data.script.reset();
  return data;
}

/// The samples that the options give, one at a time. `data` outlives it.
CalibrationSource calibration_source(const NetworkArgs& args, const DataLoaderArgs& data, ScriptHost& host,
                                     const LoadedModel& model) {
  InputSource next = data.generates()
                         ? generated_inputs(args.model, data, input_bindings(*model.network),
                                            calibration_shapes(model.build), /*iterations=*/1)
                         : loaded_inputs(data, host, input_bindings(*model.network), "input data for calibration");
  return [next = std::move(next)]() -> std::optional<TensorsByName> {
    const auto sample = next();
    return sample ? std::optional(by_name(*sample)) : std::nullopt;
  };
}

void use_cache(const CalibrationCache& cache, const std::string& path, const TrtConfigArgs& config, Model& model) {
  log_info("Loading calibration cache from {}; nothing is calibrated", path);
  const std::string_view asked = cache_name_of(calibration_options(config).algorithm);
  if (config.calib_base_cls && cache.algorithm != asked)
    log_warning(
        "[calibration cache] '{}' was made by {}, --calib-base-cls asks for {}; its scales are taken. Remove the file "
        "to calibrate again",
        path, cache.algorithm, asked);
  else if (cache.algorithm != asked)
    log_info("The cache was made by {}", cache.algorithm);
  use_calibration(model, cache, path);
}

/// Before anything takes time. What else may go wrong comes up when the file is written.
void check_writable(const std::filesystem::path& path) {
  std::error_code ignored;
  std::filesystem::path folder = path.has_parent_path() ? path.parent_path() : std::filesystem::path(".");
  while (!std::filesystem::exists(folder, ignored) && folder.has_parent_path() && folder.parent_path() != folder)
    folder = folder.parent_path();
  if (!std::filesystem::exists(folder, ignored)) return;
  const bool is_folder = std::filesystem::is_directory(folder, ignored);
  if (is_folder && ::access(folder.c_str(), W_OK | X_OK) == 0) return;
  throw error_of(ErrorCode::kIo,
                 "[options] --calibration-cache '{}': cannot write to it, since '{}' is {}; try another path",
                 path.string(), folder.string(), is_folder ? "a folder that cannot be written to" : "no folder");
}

void calibrate_now(const NetworkArgs& args, ScriptHost& host, Model& model) {
  const TrtConfigArgs& config = args.config;
  const DataLoaderArgs data = calibration_data(args);
  if (config.calibration_cache) check_writable(*config.calibration_cache);
  if (data.generates())
    log_warning(
        "Int8 Calibration is using randomly generated input data.\n"
        "This could negatively impact accuracy if the inference-time input data is dissimilar "
        "to the randomly generated calibration data.\n"
        "You may want to consider providing real data via the --data-loader-script option.");
  const CalibrationOptions options = calibration_options(config);
  const std::string total = data.generates() ? fmt::format(" of {}", data.iterations.value_or(1)) : std::string();
  Progress progress;
  const auto start = std::chrono::steady_clock::now();
  const CalibrationSource all = calibration_source(args, data, host, ModelAccess::loaded(model));
  std::size_t taken = 0;
  const CalibrationSource in_time = [&]() -> std::optional<TensorsByName> {
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    if (taken > 0 && args.calibration_seconds > 0 && seconds >= args.calibration_seconds) {
      log_warning(
          "[calibration] stops at sample {} for the time limit; try a longer --time-limit, or --calibration-cache of "
          "an earlier run",
          taken);
      return std::nullopt;
    }
    ++taken;
    return all();
  };
  const Calibration made = calibrate(model, in_time, options, [&](std::size_t sample) {
    check_interrupted();
    progress.show(fmt::format("calibrating, sample {}{}", sample + 1, total));
  });
  if (!config.calibration_cache) return;
  if (made.scales.empty()) {
    log_warning("The network has no float tensors, so there is nothing to calibrate and no cache to write");
    return;
  }
  log_info("Saving calibration cache to " + *config.calibration_cache);
  CalibrationCache cache;
  cache.algorithm = cache_name_of(options.algorithm);
  cache.scales = made.scales;
  const WritingFile writing;
  write_calibration_cache(*config.calibration_cache, cache);
}

void choose_scales(const NetworkArgs& args, ScriptHost& host, Model& model) {
  const TrtConfigArgs& config = args.config;
  const BuildOptions& build = ModelAccess::loaded(model).build;
  const bool is_calibrated = build.enabled.needs_calibration();
  if (!config.calibration_inputs.empty() && !is_calibrated && !have_chosen_scales(build.enabled)) {
    if (!build.enabled.has_elements())
      throw invalid_argument(
          "[options] --calibration-inputs: expected a format that is calibrated beside it; try --int8, --fp8, --nvfp4 "
          "or --int4");
    log_warning(
        "[options] --calibration-inputs has no effect: the formats asked for take their scales from the values "
        "themselves");
  }
  if (!is_calibrated) {
    if ((config.calib_base_cls || config.quantile) && build.enabled.has_elements())
      log_warning("[options] {} has no effect: the formats asked for take their scales from the values themselves",
                  config.calib_base_cls ? "--calib-base-cls" : "--quantile");
    else if (config.calib_base_cls || config.quantile)
      log_warning(
          "Some int8 calibrator options were set, but int8 precision is not enabled. Calibration options will be "
          "ignored. Please set --int8 to enable calibration.");
    return;
  }
  if (build.strongly_typed || !build.scales.empty()) return;
  calibration_options(config);  // Names and numbers are checked before anything takes time.
  if (config.calibration_cache) {
    if (const auto cache = find_calibration_cache(*config.calibration_cache))
      return use_cache(*cache, *config.calibration_cache, config, model);
    std::error_code ignored;
    if (std::filesystem::exists(*config.calibration_cache, ignored))
      log_warning("Calibration cache was provided, but is empty. Will regenerate scales by running calibration.");
  } else if (brings_scales(model)) {
    log_info("The network has QuantizeLinear or DequantizeLinear layers, so it brings its scales: no calibration");
    return;
  }
  calibrate_now(args, host, model);
}

void choose_weight_scales(const NetworkArgs& args, ScriptHost& host, Model& model) {
  const TrtConfigArgs& config = args.config;
  LoadedModel& loaded = ModelAccess::loaded(model);
  BuildOptions& build = loaded.build;
  constexpr char kOption[] = "[options] --weight-scales";
  if (config.weight_scales && config.weight_scales->ends_with(".json")) {
    const MxScaleRule rule = build.scale_choice.mx;
    take_scale_choice(read_answer(*config.weight_scales), kOption, build);
    build.scale_choice.mx = rule;
    loaded.weight_scales = build.scale_choice.weights;
    check_weight_scales(*loaded.weight_scales, build.enabled, kOption);
    return;
  }
  if (config.weight_scales) {
    loaded.weight_scales = weight_scales_from_name(*config.weight_scales, kOption);
    check_weight_scales(*loaded.weight_scales, build.enabled, kOption);
    if (loaded.weight_scales != WeightScales::kActivations) build.scale_choice.weights = *loaded.weight_scales;
  }
  if (!have_chosen_scales(build.enabled) || build.strongly_typed) return;
  const bool asked = loaded.weight_scales == WeightScales::kActivations;
  if (loaded.weight_scales && !asked) return;
  const DataLoaderArgs data = calibration_data(args);
  if (config.calibration_inputs.empty() && args.measures_elsewhere) return;
  if (data.generates() && !asked)
    return log_once(LogLevel::kInfo,
                    "Scales of weights in 4 bits are those of the largest weights (amax), since no inputs were given; "
                    "by activations they err less: try --load-inputs or --calibration-inputs");
  if (data.generates())
    log_warning(
        "[options] --weight-scales activations: the inputs are random numbers, since none were given, and say little "
        "about real activations; try --calibration-inputs");
  std::vector<TensorsByName> samples;
  const CalibrationSource next = calibration_source(args, data, host, loaded);
  while (const auto sample = next()) samples.push_back(*sample);
  check_interrupted();
  Progress progress;
  progress.show("measuring activations");
  measure_activations(model, samples);
}

}  // namespace

void add_scales(const NetworkArgs& args, ScriptHost& host, Model& model) {
  choose_scales(args, host, model);
  choose_weight_scales(args, host, model);
  if (!args.network.repairs) return;
  // Calibration, and its cache, are of the network as it was.
  LoadedModel& loaded = ModelAccess::loaded(model);
  apply_repairs(*loaded.network, loaded.build.scales, read_answer(*args.network.repairs).answer.repairs);
  args.network.apply_layer_precisions(*loaded.network);
}

}  // namespace ulpscope::cli
