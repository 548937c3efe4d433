#include "tools/calibrate.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "compare/data_loader.h"
#include "compare/json_files.h"
#include "console.h"
#include "engine/int8.h"
#include "interrupt.h"
#include "precision/answer_json.h"
#include "precision/repair.h"
#include "ulpscope/error.h"
#include "ulpscope/log.h"

namespace ulpscope::cli {
namespace {

/// Files are read one after another: one is in memory at a time.
class LoadedSamples {
 public:
  explicit LoadedSamples(std::vector<std::string> paths) : paths_(std::move(paths)) {}

  std::optional<TensorMap> operator()() {
    while (next_ == samples_.size()) {
      if (path_ == paths_.size()) return std::nullopt;
      log_info("Loading input data for calibration from " + paths_[path_]);
      samples_ = load_inputs(paths_[path_++]);
      next_ = 0;
    }
    return std::move(samples_[next_++]);
  }

 private:
  std::vector<std::string> paths_;
  std::size_t path_ = 0, next_ = 0;
  std::vector<TensorMap> samples_;
};

bool has_quantize_layers(const Network& network) {
  return std::ranges::any_of(network.layers, [](const Layer& layer) {
    return layer.op->name == "QuantizeLinear" || layer.op->name == "DequantizeLinear";
  });
}

/// What dynamic inputs are calibrated with: the last profile's, as Polygraphy does.
std::vector<std::pair<std::string, Shape>> calibration_shapes(const BuildOptions& build) {
  std::vector<std::pair<std::string, Shape>> shapes;
  if (!build.profiles.empty())
    for (const auto& [name, shape] : build.profiles.back().opt) shapes.emplace_back(name, shape);
  return shapes;
}

/// The tensors that int8 layers read, for the shapes that the engine is built for; none if it does not work for them
/// (the build says why).
std::vector<TensorId> wanted_tensors(const Network& network, const BuildOptions& build) {
  std::vector<Shape> shapes;
  for (TensorId id : network.inputs) {
    const TensorInfo& info = network.tensor(id);
    Shape shape = info.shape.value_or(Shape{});
    if (const auto typical = build.typical_shapes.find(info.name); typical != build.typical_shapes.end())
      shape = typical->second;
    if (!build.profiles.empty())
      if (const auto opt = build.profiles.front().opt.find(info.name); opt != build.profiles.front().opt.end())
        shape = opt->second;
    std::ranges::replace(shape, -1, 1);
    shapes.push_back(std::move(shape));
  }
  try {
    return int8_tensors(*specialize(network, std::move(shapes)));
  } catch (const Error&) {
    return {};
  }
}

void use_cache(const CalibrationCache& cache, const std::string& path, const TrtConfigArgs& config,
               const Network& network, BuildOptions& build) {
  log_info(fmt::format("Loading calibration cache from {}; nothing is calibrated", path));
  const std::string_view asked = cache_name_of(calibration_options(config).algorithm);
  if (config.calib_base_cls && cache.algorithm != asked)
    log_warning(
        fmt::format("[calibration cache] '{}' was made by {}, --calib-base-cls asks for {}; its scales are taken. "
                    "Remove the file to calibrate again",
                    path, cache.algorithm, asked));
  else if (cache.algorithm != asked)
    log_info(fmt::format("The cache was made by {}", cache.algorithm));
  check_scales(cache, network, wanted_tensors(network, build), path);
  build.scales = cache.scales;
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
  throw Error(
      ErrorCode::kIo,
      fmt::format("[options] --calibration-cache '{}': cannot write to it, since '{}' is {}; try another path",
                  path.string(), folder.string(), is_folder ? "a folder that cannot be written to" : "no folder"));
}

void calibrate_now(const NetworkArgs& args, ScriptHost& host, LoadedNetwork& loaded) {
  const TrtConfigArgs& config = args.config;
  const DataLoaderArgs& data = args.data;
  BuildOptions& build = loaded.build;
  if (config.calibration_cache) check_writable(*config.calibration_cache);
  if (data.generates())
    log_warning(
        "Int8 Calibration is using randomly generated input data.\n"
        "This could negatively impact accuracy if the inference-time input data is dissimilar "
        "to the randomly generated calibration data.\n"
        "You may want to consider providing real data via the --data-loader-script option.");
  CalibrationOptions options = calibration_options(config);
  options.threads = build.threads;
  const std::string total = data.generates() ? fmt::format(" of {}", data.iterations.value_or(1)) : std::string();
  Progress progress;
  const Calibration made = calibrate(
      loaded.network, options, sample_source(data, args.model, host, *loaded.network, calibration_shapes(build)),
      [&](std::size_t sample) {
        check_interrupted();
        progress.show(fmt::format("calibrating, sample {}{}", sample + 1, total));
      },
      loaded.weights);
  log_info(fmt::format("Calibrated {} tensors with {} sample(s) by {}", made.scales.size(), made.samples,
                       cache_name_of(options.algorithm)));
  if (build.profiles.empty())
    for (const auto& [name, shape] : made.first_shapes) build.typical_shapes.emplace(name, shape);
  build.scales = made.scales;
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

}  // namespace

CalibrationOptions calibration_options(const TrtConfigArgs& config) {
  CalibrationOptions options;
  if (config.calib_base_cls) options.algorithm = calibration_algorithm_from_name(*config.calib_base_cls);
  if (config.quantile) {
    options.quantile = *config.quantile;
    if (!(options.quantile > 0 && options.quantile <= 1))
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("[options] --quantile: expected a number above 0 and at most 1, such as {}, got {}",
                              kDefaultQuantile, options.quantile));
    if (options.algorithm != CalibrationAlgorithm::kLegacy)
      log_warning("[options] --quantile has no effect: it is for --calib-base-cls IInt8LegacyCalibrator");
  }
  return options;
}

SampleSource sample_source(const DataLoaderArgs& data, const ModelArgs& model, ScriptHost& host, const Network& network,
                           std::vector<std::pair<std::string, Shape>> shapes) {
  if (data.script) {
    std::shared_ptr<ScriptDataLoader> loader = host.open_data_loader(ScriptName::parse(*data.script, "load_data"));
    return [loader] { return loader->next(); };
  }
  if (!data.load_inputs.empty()) {
    auto samples = std::make_shared<LoadedSamples>(data.load_inputs);
    return [samples] { return (*samples)(); };
  }
  DataLoaderOptions generate;
  generate.seed = data.seed.value_or(1);
  generate.iterations = data.iterations.value_or(1);
  generate.val_range = data.ranges();
  generate.input_shapes = model.shapes();
  generate.default_shapes = std::move(shapes);
  std::vector<InputBinding> bindings;
  for (TensorId id : network.inputs) {
    const TensorInfo& info = network.tensor(id);
    bindings.push_back({info.name, info.type, info.shape.value_or(Shape{})});
  }
  return [generate, bindings, next = std::int64_t{0}]() mutable -> std::optional<TensorMap> {
    if (next >= generate.iterations) return std::nullopt;
    return generate_inputs(generate, bindings, next++);
  };
}

namespace {

void choose_scales(const NetworkArgs& args, ScriptHost& host, LoadedNetwork& loaded) {
  const TrtConfigArgs& config = args.config;
  BuildOptions& build = loaded.build;
  if (!build.int8) {
    if (config.calib_base_cls || config.quantile)
      log_warning(
          "Some int8 calibrator options were set, but int8 precision is not enabled. Calibration options will be "
          "ignored. Please set --int8 to enable calibration.");
    return;
  }
  if (build.strongly_typed || !build.scales.empty()) return;
  calibration_options(config);  // Names and numbers are checked before anything takes time.
  if (config.calibration_cache) {
    if (const auto cache = find_calibration_cache(*config.calibration_cache))
      return use_cache(*cache, *config.calibration_cache, config, *loaded.network, build);
    std::error_code ignored;
    if (std::filesystem::exists(*config.calibration_cache, ignored))
      log_warning("Calibration cache was provided, but is empty. Will regenerate scales by running calibration.");
  } else if (has_quantize_layers(*loaded.network)) {
    log_info("The network has QuantizeLinear or DequantizeLinear layers, so it brings its scales: no calibration");
    return;
  }
  calibrate_now(args, host, loaded);
}

}  // namespace

void add_scales(const NetworkArgs& args, ScriptHost& host, LoadedNetwork& loaded) {
  choose_scales(args, host, loaded);
  if (!args.network.repairs) return;
  // Calibration, and its cache, are of the network as it was.
  const AnswerFile answer = read_answer(*args.network.repairs);
  apply_repairs(*loaded.network, loaded.build.scales, answer.answer.repairs);
}

}  // namespace ulpscope::cli
