#include "tools/network_setup.h"

#include <algorithm>
#include <cstdio>
#include <map>

#include "compare/array_files.h"
#include "console.h"
#include "core/messages.h"
#include "engine/specialization.h"
#include "graph/outputs.h"
#include "interrupt.h"
#include "onnx/import.h"
#include "onnx/quantization_check.h"
#include "ops/forms.h"
#include "precision/repair.h"
#include "runners/foreign_operators.h"
#include "ulpscope/error.h"

namespace ulpscope::cli {
namespace {

/// Shapes of the data that will be run: what dynamic dimensions are chosen for.
std::map<std::string, Shape> typical_shapes(const NetworkArgs& options, const Network& network) {
  std::map<std::string, Shape> result;
  const bool dynamic = std::ranges::any_of(network.inputs, [&](TensorId id) {
    const auto& shape = network.tensor(id).shape;
    return !shape || std::ranges::find(*shape, -1) != shape->end();
  });
  if (!dynamic) return result;
  for (const auto& [name, shape] : options.model.shapes())
    if (std::ranges::none_of(shape, [](std::int64_t dim) { return dim < 0; })) result.emplace(name, shape);
  if (options.data.load_inputs.empty()) return result;
  const auto feeds = load_samples(options.data.load_inputs.front(), input_bindings(network));
  if (!feeds.empty())
    for (const auto& [name, tensor] : feeds.front()) result.insert_or_assign(name, tensor.shape());
  return result;
}

}  // namespace

std::unique_ptr<ScriptHost> make_script_host(const OnnxLoadArgs& onnx, const PythonLimitArgs& limits) {
  ScriptHost::Callbacks callbacks;
  callbacks.import_path = [&onnx](const std::filesystem::path& path) {
    return import_onnx(path, registry_with_onnxruntime(), onnx.import_options());
  };
  callbacks.import_bytes = [&onnx](std::span<const std::byte> bytes) {
    return import_onnx(bytes, "the bytes that the script passed", registry_with_onnxruntime(), onnx.import_options());
  };
  callbacks.ops = &registry_with_onnxruntime();
  WorkerOptions worker = default_worker_options();
  worker.interrupted = interrupted;
  if (log_is_on_stderr())
    worker.output = [](bool, std::string_view text) { std::fwrite(text.data(), 1, text.size(), stderr); };
  worker.call_limit = limits.call_limit();
  worker.description_limit = limits.description_limit();
  set_default_worker_options(worker);
  return std::make_unique<ScriptHost>(std::move(callbacks), worker);
}

Model load_network(const NetworkArgs& args, ScriptHost& host) {
  Progress progress;
  progress.show("reading the model");
  auto result = std::make_shared<LoadedModel>();
  result->name = *args.model.model;
  result->path = args.model.path();
  result->host = std::shared_ptr<ScriptHost>(std::shared_ptr<void>(), &host);
  if (args.onnx.external_data_dir) result->external_data = *args.onnx.external_data_dir;
  BuildOptions& build = result->build = args.config.build_options(args.model);
  result->start = std::make_shared<EarlyStart>(find_backend(build.backend));
  std::shared_ptr<Network>& network = result->network;
  if (args.model.type() == ModelType::kOnnx) {
    ImportOptions options = args.onnx.import_options();
    options.outputs = args.network.outputs.empty() ? args.onnx.outputs : args.network.outputs;
    network = import_onnx(args.model.path(), registry_with_onnxruntime(), options);
    if (std::ranges::any_of(network->layers, [](const Layer& layer) { return ops::is_dequantize(layer); }))
      warn_of_scales(args.model.path(), options);
  } else {
    ScriptNetwork made = host.load_network(ScriptName::parse(*args.model.model, "load_network"));
    build.strongly_typed = build.strongly_typed || made.strongly_typed;
    network = made.network;
  }
  for (const std::string& script : args.network.postprocess_scripts)
    network = host.postprocess_network(ScriptName::parse(script, "postprocess"), *network);
  if (!args.network.outputs.empty()) mark_outputs(*network, args.network.outputs);
  args.network.mark_outputs_by_type(*network);
  if (!args.network.exclude_outputs.empty()) unmark_outputs(*network, args.network.exclude_outputs);
  result->record.clamp_constants = args.network.clamp_constants;
  result->clamps = clamp_constants(*network, args.network.clamp_constants);
  // Those of layers that repairs add come behind them (add_scales).
  if (!args.network.repairs) args.network.apply_layer_precisions(*network);
  args.network.apply_tensor_types(*network);
  const TrtConfigArgs& config = args.config;
  if (config.config_script)
    build = host.load_config(ScriptName::parse(*config.config_script, "load_config"), *network, build);
  if (config.config_postprocess_script)
    build = host.postprocess_config(ScriptName::parse(*config.config_postprocess_script, "postprocess_config"),
                                    *network, build);
  if (config.mx_scale_rule)
    build.scale_choice.mx = mx_scale_rule_from_name(*config.mx_scale_rule, "[options] --mx-scale-rule");
  set_dynamic_scale_rule(*network, build.scale_choice.mx);
  if (build.profiles.empty()) build.typical_shapes = typical_shapes(args, *network);
  check_interrupted();
  return ModelAccess::handle(std::move(result));
}

std::vector<std::pair<std::string, Shape>> profile_shapes(const TrtConfigArgs& config, const ModelArgs& model) {
  std::vector<std::pair<std::string, Shape>> shapes;
  const BuildOptions build = config.build_options(model);
  if (!build.profiles.empty())
    for (const auto& [name, shape] : build.profiles.front().min) shapes.emplace_back(name, shape);
  return shapes;
}

std::vector<std::pair<std::string, Shape>> fitting_shapes(const Network& network, const ModelArgs& model) {
  const auto given = model.shapes();
  std::optional<Error> first;
  for (const std::int64_t size : {1, 8, 32, 64, 128, 224, 256}) {
    std::vector<std::pair<std::string, Shape>> result;
    std::vector<Shape> shapes;
    for (const TensorId id : network.inputs) {
      const TensorInfo& info = network.tensor(id);
      const auto named = std::ranges::find(given, info.name, &std::pair<std::string, Shape>::first);
      if (!info.shape && named == given.end()) return {};
      Shape& shape = shapes.emplace_back(named != given.end() ? named->second : *info.shape);
      if (std::ranges::none_of(shape, [](std::int64_t d) { return d < 0; })) continue;
      for (std::size_t d = 0; d < shape.size(); ++d)
        if (shape[d] < 0) shape[d] = d == 0 ? 1 : size;
      result.emplace_back(info.name, shape);
    }
    if (result.empty()) return {};
    try {
      static_cast<void>(specialize(network, shapes));
      return result;
    } catch (const Error& error) {
      if (!first) first = error;
    }
  }
  throw error_of(first->code(),
                 "{}\nDynamic dimensions were tried as 1, 8, 32, 64, 128, 224 and 256; try --input-shapes "
                 "NAME:[1,3,48,192], or --load-inputs FILE",
                 first->what());
}

InputSource loaded_inputs(const DataLoaderArgs& data, ScriptHost& host, const std::vector<InputBinding>& bindings,
                          const std::string& what) {
  if (data.script) {
    std::shared_ptr<ScriptDataLoader> loader = host.open_data_loader(ScriptName::parse(*data.script, "load_data"));
    return [loader, bindings, script = *data.script, iteration = 0]() mutable {
      check_interrupted();
      auto sample = loader->next();
      if (sample) check_present(*sample, bindings, fmt::format("'{}', iteration {}", script, iteration++));
      return sample;
    };
  }
  return [paths = data.load_inputs, bindings, what, path = std::size_t{0}, next = std::size_t{0},
          samples = std::vector<TensorMap>()]() mutable -> std::optional<TensorMap> {
    while (next == samples.size()) {
      if (path == paths.size()) return std::nullopt;
      log_info("Loading {} from {}", what, paths[path]);
      samples = load_samples(paths[path], bindings);
      for (std::size_t i = 0; i < samples.size(); ++i)
        check_present(samples[i], bindings, fmt::format("'{}', iteration {}", paths[path], i));
      ++path;
      next = 0;
    }
    return std::move(samples[next++]);
  };
}

InputSource generated_inputs(const ModelArgs& model, const DataLoaderArgs& data,
                             const std::vector<InputBinding>& bindings,
                             const std::vector<std::pair<std::string, Shape>>& default_shapes, int iterations) {
  DataLoaderOptions generate;
  generate.seed = data.seed.value_or(1);
  generate.iterations = data.iterations.value_or(iterations);
  generate.val_range = data.ranges();
  generate.input_shapes = model.shapes();
  generate.default_shapes = default_shapes;
  return [generate, bindings, next = std::int64_t{0}]() mutable -> std::optional<TensorMap> {
    if (next >= generate.iterations) return std::nullopt;
    return generate_inputs(generate, bindings, next++);
  };
}

std::vector<TensorMap> make_inputs(const ModelArgs& model, const DataLoaderArgs& data, ScriptHost& host,
                                   const std::vector<InputBinding>& bindings,
                                   const std::vector<std::pair<std::string, Shape>>& default_shapes, int iterations) {
  const InputSource next = data.generates() ? generated_inputs(model, data, bindings, default_shapes, iterations)
                                            : loaded_inputs(data, host, bindings, "input data");
  std::vector<TensorMap> all;
  while (auto inputs = next()) all.push_back(std::move(*inputs));
  return all;
}

void check_any_inputs(std::size_t samples, const DataLoaderArgs& data) {
  if (samples > 0) return;
  const std::string source = data.script        ? *data.script
                             : data.generates() ? "--iterations"
                                                : fmt::format("{}", fmt::join(data.load_inputs, "', '"));
  throw invalid_argument("[data] '{}': expected inputs of at least one iteration, got none; try other inputs", source);
}

TensorsByName by_name(const TensorMap& sample) {
  TensorsByName tensors;
  for (const auto& [name, tensor] : sample) tensors.emplace(name, tensor);
  return tensors;
}

std::vector<TensorsByName> by_name(const std::vector<TensorMap>& samples) {
  std::vector<TensorsByName> result;
  for (const TensorMap& sample : samples) result.push_back(by_name(sample));
  return result;
}

}  // namespace ulpscope::cli
