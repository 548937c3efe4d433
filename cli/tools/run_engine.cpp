#include "tools/run_engine.h"

#include "console.h"
#include "core/file.h"
#include "core/messages.h"
#include "interrupt.h"
#include "ops/registry.h"
#include "tools/calibrate.h"
#include "tools/engine_report.h"
#include "tools/network_setup.h"
#include "tools/timing_cache.h"
#include "ulpscope/calibrate.h"

namespace ulpscope::cli {
namespace {

std::shared_ptr<Engine> load_built_engine(const RunOptions& options) {
  const BuildOptions running = options.config.build_options(options.model);
  const auto no_effect = [](bool given, std::string_view option) {
    if (given) log_warning("[options] {} has no effect: the model is an engine that is built already", option);
  };
  no_effect(!options.network.layer_precisions.empty(), "--layer-precisions");
  no_effect(!options.network.postprocess_scripts.empty(), "--trt-npps");
  no_effect(!options.network.clamp_constants.empty(), "--clamp-constants");
  no_effect(!options.network.outputs.empty(), "--trt-outputs");
  no_effect(!options.network.exclude_outputs.empty(), "--trt-exclude-outputs");
  no_effect(!options.network.tensor_dtypes.empty(), "--tensor-dtypes");
  no_effect(!options.network.outputs_by_type.empty(), "--trt-outputs-by-type");
  no_effect(options.network.all_tensor_dtypes.has_value(), "--all-tensor-dtypes");
  for (const Precision p : running.enabled.members()) no_effect(true, form_of(p).flag());
  no_effect(options.config.calibration_cache.has_value(), "--calibration-cache");
  no_effect(options.config.constraints.has_value(), "--precision-constraints");
  no_effect(options.config.fusion.has_value(), "--fusion");
  no_effect(options.config.accumulation.has_value(), "--accumulation");
  no_effect(options.config.attention.has_value(), "--attention");
  return Engine::load(options.model.path(), running);
}

/// A layer that another program runs, in the network or a body; null: none.
const Layer* foreign_layer(const Network& network) {
  for (const Layer& layer : network.layers) {
    if (op_registry().find(layer.op->domain, layer.op->name) == nullptr) return &layer;
    for (const Subgraph* body : layer.attributes.graphs())
      if (const Layer* found = foreign_layer(*body->network)) return found;
  }
  return nullptr;
}

}  // namespace

bool reduces_precision(const BuildOptions& build) { return !build.enabled.empty(); }

std::shared_ptr<Engine> build_engine(const RunOptions& options, ScriptHost& host) {
  if (options.model.type() == ModelType::kEngine) return load_built_engine(options);
  Model model = load_network(options.network_args(), host);
  BuildOptions& build = ModelAccess::loaded(model).build;
  if (!options.answer_scales.empty())
    build.scales = options.answer_scales;
  else if (options.answer && !options.config.calibration_cache && build.enabled.needs_calibration() &&
           !brings_scales(model))
    log_warning(
        "[options] --answer: '{}' has no scales of activations, so they are calibrated on the inputs given here: its "
        "errors were measured with others; try --calibration-cache, or a search that saves them",
        *options.answer);
  add_scales(options.network_args(), host, model);
  check_interrupted();
  Progress progress;
  progress.show("building the engine");
  return Engine::build(ModelAccess::loaded(model).network, ModelAccess::loaded(model).build);
}

void save_engine_files(const RunOptions& options, const Engine& engine) {
  if (options.config.save_tactics) {
    log_info("Saving tactic replay to " + *options.config.save_tactics);
    const WritingFile writing;
    write_file(*options.config.save_tactics, engine.tactic_replay_json());
  }
  if (options.config.save_timing_cache) save_timing_cache(*options.config.save_timing_cache, engine);
  if (options.network.save_engine) {
    if (const Layer* layer = foreign_layer(engine.network()))
      throw unsupported(
          "[engine] --save-engine: expected operators of ulpscope's own, got layer '{}' ({}), which runs in ONNX "
          "Runtime; try an ONNX file: `convert`, or `run` without --save-engine",
          layer->name, layer->op->name);
    log_info("Saving engine to " + *options.network.save_engine);
    const WritingFile writing;
    engine.save(*options.network.save_engine);
  }
}

std::shared_ptr<Engine> make_engine(const RunOptions& options, ScriptHost& host) {
  std::shared_ptr<Engine> engine = build_engine(options, host);
  // Of an engine that was built before, these are the options of its build.
  log_engine_report(*engine, reduces_precision(engine->options()));
  save_engine_files(options, *engine);
  return engine;
}

}  // namespace ulpscope::cli
