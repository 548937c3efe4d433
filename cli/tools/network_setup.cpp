#include "tools/network_setup.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <map>

#include "compare/json_files.h"
#include "console.h"
#include "graph/outputs.h"
#include "interrupt.h"
#include "onnx/import.h"
#include "ops/registry.h"
#include "precision/repair.h"
#include "ulpscope/error.h"
#include "ulpscope/log.h"

namespace ulpscope::cli {
namespace {

/// Shapes of the data that will be run: what dynamic dimensions are chosen for.
std::map<std::string, Shape> typical_shapes(const NetworkArgs& options, const Network& network) {
  std::map<std::string, Shape> result;
  const bool dynamic = std::ranges::any_of(network.inputs, [&](TensorId id) {
    const auto& shape = network.tensor(id).shape;
    return shape && std::ranges::find(*shape, -1) != shape->end();
  });
  if (!dynamic) return result;
  for (const auto& [name, shape] : options.model.shapes())
    if (std::ranges::find(shape, -1) == shape.end()) result.emplace(name, shape);
  if (options.data.load_inputs.empty()) return result;
  const auto feeds = load_inputs(options.data.load_inputs.front());
  if (!feeds.empty())
    for (const auto& [name, tensor] : feeds.front()) result.insert_or_assign(name, tensor.shape());
  return result;
}

/// --clamp-constants. Names may have colons: a word that is a name as a whole is one, and so is one whose beginning is
/// none and whose end is no number.
void apply_clamps(const std::vector<std::string>& words, Network& network) {
  const auto exists = [&](const std::string& name) {
    return network.find_tensor(name) != kNone || network.find_layer(name) != kNone;
  };
  for (const std::string& word : words) {
    const std::size_t colon = word.rfind(':');
    if (exists(word) || colon == std::string::npos) {
      clamp_constant(network, word);
      continue;
    }
    const std::string name = word.substr(0, colon), text = word.substr(colon + 1);
    char* end = nullptr;
    const double limit = std::strtod(text.c_str(), &end);
    const bool number = !text.empty() && *end == '\0';
    if (!number && exists(name))
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("[options] --clamp-constants '{}': expected NAME or NAME:LIMIT with a number, got '{}'",
                              word, text));
    if (number)
      clamp_constant(network, name, limit);
    else
      clamp_constant(network, word);
  }
}

}  // namespace

std::unique_ptr<ScriptHost> make_script_host(const OnnxLoadArgs& onnx, const PythonLimitArgs& limits) {
  ScriptHost::Callbacks callbacks;
  callbacks.import_path = [&onnx](const std::filesystem::path& path) {
    return import_onnx(path, op_registry(), onnx.import_options());
  };
  callbacks.import_bytes = [&onnx](std::span<const std::byte> bytes) {
    return import_onnx(bytes, "the bytes that the script passed", op_registry(), onnx.import_options());
  };
  callbacks.ops = &op_registry();
  WorkerOptions worker = default_worker_options();
  worker.interrupted = interrupted;
  worker.call_limit = limits.call_limit();
  worker.description_limit = limits.description_limit();
  set_default_worker_options(worker);
  return std::make_unique<ScriptHost>(std::move(callbacks), worker);
}

LoadedNetwork load_network(const NetworkArgs& args, ScriptHost& host) {
  Progress progress;
  progress.show("reading the model");
  LoadedNetwork result;
  BuildOptions& build = result.build = args.config.build_options(args.model);
  std::shared_ptr<Network>& network = result.network;
  if (args.model.type() == ModelType::kOnnx) {
    network = import_onnx(args.model.path(), op_registry(), args.onnx.import_options());
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
  apply_clamps(args.network.clamp_constants, *network);
  args.network.apply_layer_precisions(*network);
  args.network.apply_tensor_types(*network);
  const TrtConfigArgs& config = args.config;
  if (config.config_script)
    build = host.load_config(ScriptName::parse(*config.config_script, "load_config"), *network, build);
  if (config.config_postprocess_script)
    build = host.postprocess_config(ScriptName::parse(*config.config_postprocess_script, "postprocess_config"),
                                    *network, build);
  if (build.profiles.empty()) build.typical_shapes = typical_shapes(args, *network);
  check_interrupted();
  return result;
}

std::vector<std::pair<std::string, Shape>> profile_shapes(const TrtConfigArgs& config, const ModelArgs& model) {
  std::vector<std::pair<std::string, Shape>> shapes;
  const BuildOptions build = config.build_options(model);
  if (!build.profiles.empty())
    for (const auto& [name, shape] : build.profiles.front().min) shapes.emplace_back(name, shape);
  return shapes;
}

std::vector<TensorMap> make_inputs(const ModelArgs& model, const DataLoaderArgs& data, ScriptHost& host,
                                   const std::vector<InputBinding>& bindings,
                                   const std::vector<std::pair<std::string, Shape>>& default_shapes, int iterations) {
  std::vector<TensorMap> all;
  if (data.generates()) {
    DataLoaderOptions generate;
    generate.seed = data.seed.value_or(1);
    generate.iterations = data.iterations.value_or(iterations);
    generate.val_range = data.ranges();
    generate.input_shapes = model.shapes();
    generate.default_shapes = default_shapes;
    return generate_inputs(generate, bindings);
  }
  if (data.script) {
    const auto loader = host.open_data_loader(ScriptName::parse(*data.script, "load_data"));
    while (auto inputs = loader->next()) {
      check_interrupted();
      all.push_back(std::move(*inputs));
    }
    return all;
  }
  for (const std::string& path : data.load_inputs) {
    log_info("Loading input data from " + path);
    for (TensorMap& inputs : load_inputs(path)) all.push_back(std::move(inputs));
  }
  return all;
}

}  // namespace ulpscope::cli
