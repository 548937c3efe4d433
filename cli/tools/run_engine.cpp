#include "tools/run_engine.h"

#include <fmt/format.h>

#include <algorithm>

#include "compare/json_files.h"
#include "console.h"
#include "core/file.h"
#include "graph/outputs.h"
#include "interrupt.h"
#include "onnx/import.h"
#include "ops/registry.h"
#include "tools/engine_report.h"
#include "ulpscope/error.h"
#include "ulpscope/log.h"

namespace ulpscope::cli {
namespace {

std::shared_ptr<Network> load_network(const RunOptions& options, ScriptHost& host, BuildOptions& build) {
  if (options.model.type() == ModelType::kOnnx)
    return import_onnx(options.model.path(), op_registry(), options.onnx.import_options());
  ScriptNetwork made = host.load_network(ScriptName::parse(*options.model.model, "load_network"));
  build.strongly_typed = build.strongly_typed || made.strongly_typed;
  return made.network;
}

std::shared_ptr<Engine> load_built_engine(const RunOptions& options) {
  const auto no_effect = [](bool given, const char* option) {
    if (given)
      log_warning(fmt::format("[options] {} has no effect: the model is an engine that is built already", option));
  };
  no_effect(!options.network.layer_precisions.empty(), "--layer-precisions");
  no_effect(!options.network.postprocess_scripts.empty(), "--trt-npps");
  no_effect(!options.network.outputs.empty(), "--trt-outputs");
  no_effect(!options.network.exclude_outputs.empty(), "--trt-exclude-outputs");
  no_effect(!options.network.tensor_dtypes.empty(), "--tensor-dtypes");
  no_effect(options.config.fp16, "--fp16");
  no_effect(options.config.bf16, "--bf16");
  no_effect(options.config.tf32, "--tf32");
  no_effect(options.config.int8, "--int8");
  no_effect(options.config.fp8, "--fp8");
  no_effect(options.config.constraints.has_value(), "--precision-constraints");
  no_effect(options.config.fusion.has_value(), "--fusion");
  return Engine::load(options.model.path(), options.config.num_threads());
}

/// Shapes of the data that will be run: what dynamic dimensions are chosen for.
std::map<std::string, Shape> typical_shapes(const RunOptions& options, const Network& network) {
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

}  // namespace

std::shared_ptr<Engine> make_engine(const RunOptions& options, ScriptHost& host) {
  const TrtConfigArgs& config = options.config;
  std::shared_ptr<Engine> engine;
  BuildOptions build = config.build_options(options.model);
  if (options.model.type() == ModelType::kEngine) {
    engine = load_built_engine(options);
  } else {
    Progress progress;
    progress.show("reading the model");
    std::shared_ptr<Network> network = load_network(options, host, build);
    for (const std::string& script : options.network.postprocess_scripts)
      network = host.postprocess_network(ScriptName::parse(script, "postprocess"), *network);
    if (!options.network.outputs.empty()) mark_outputs(*network, options.network.outputs);
    if (!options.network.exclude_outputs.empty()) unmark_outputs(*network, options.network.exclude_outputs);
    options.network.apply_layer_precisions(*network);
    options.network.apply_tensor_types(*network);
    if (config.config_script)
      build = host.load_config(ScriptName::parse(*config.config_script, "load_config"), *network, build);
    if (config.config_postprocess_script)
      build = host.postprocess_config(ScriptName::parse(*config.config_postprocess_script, "postprocess_config"),
                                      *network, build);
    if (build.profiles.empty()) build.typical_shapes = typical_shapes(options, *network);
    check_interrupted();
    progress.show("building the engine");
    engine = Engine::build(network, build);
  }
  log_engine_report(*engine, build.tf32 || build.fp16 || build.bf16 || build.int8 || build.fp8);
  if (config.save_tactics) {
    log_info("Saving tactic replay to " + *config.save_tactics);
    const WritingFile writing;
    write_file(*config.save_tactics, engine->tactic_replay_json());
  }
  if (options.network.save_engine) {
    log_info("Saving engine to " + *options.network.save_engine);
    const WritingFile writing;
    engine->save(*options.network.save_engine);
  }
  return engine;
}

}  // namespace ulpscope::cli
