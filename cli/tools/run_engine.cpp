#include "tools/run_engine.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "console.h"
#include "core/file.h"
#include "core/messages.h"
#include "interrupt.h"
#include "ops/registry.h"
#include "runtime/engine.h"
#include "tools/calibrate.h"
#include "tools/network_setup.h"
#include "tools/timing_cache.h"
#include "ulpscope/calibrate.h"
#include "ulpscope/log.h"

namespace ulpscope::cli {
namespace {

constexpr std::size_t kSmall = 20;

/// Whether the layer computes with floats; others report the type that they move.
bool computes(const Engine::LayerReport& layer) { return precision_named(layer.precision).has_value(); }

void log_layers(const std::vector<Engine::LayerReport>& layers, LogLevel level) {
  log(level, fmt::format("Layers ({}): precision, reason, group, tactic", layers.size()));
  const LogIndent indent;
  for (const Engine::LayerReport& layer : layers) {
    std::string line = fmt::format("{} [{}] | {}", layer.name, layer.op, layer.precision);
    if (!layer.reason.empty()) line += ": " + layer.reason;
    if (!layer.group.empty()) line += " | group: " + layer.group;
    if (!layer.tactic.empty()) line += " | tactic: " + layer.tactic;
    if (layer.microseconds > 0) line += fmt::format(" | {:.4g} us on the target", layer.microseconds);
    log(level, line);
    if (layer.nodes.size() > 1 || (layer.nodes.size() == 1 && layer.nodes[0] != layer.name)) {
      const LogIndent nodes;
      log(LogLevel::kVerbose, fmt::format("from the nodes {}", fmt::join(layer.nodes, ", ")));
    }
  }
}

void log_summary(const std::vector<Engine::LayerReport>& layers) {
  std::vector<std::pair<std::pair<std::string, std::string>, std::vector<std::string>>> decisions;
  std::size_t others = 0;
  for (const Engine::LayerReport& layer : layers) {
    if (!computes(layer)) {
      ++others;
      continue;
    }
    // What follows a colon is about this very layer ("... would save 0.4 us here").
    const auto key = std::make_pair(layer.precision, layer.reason.substr(0, layer.reason.find(": ")));
    auto found = std::ranges::find(decisions, key, [](const auto& entry) { return entry.first; });
    if (found == decisions.end()) found = decisions.insert(decisions.end(), {key, {}});
    found->second.push_back(layer.name);
  }
  log_info("Precisions of {} layers (-v shows each)", layers.size());
  const LogIndent indent;
  for (const auto& [decision, names] : decisions) {
    std::vector<std::string> shown(names.begin(), names.begin() + std::min<std::ptrdiff_t>(3, std::ssize(names)));
    log_info("{} | {} layer(s){}{}: {}{}", decision.first, names.size(), decision.second.empty() ? "" : " | ",
             decision.second, fmt::join(shown, ", "), names.size() > shown.size() ? ", ..." : "");
  }
  if (others > 0) log_info("no precision of their own | {} layer(s) that move values, or compute integers", others);
}

/// At verbose level one line per layer. At info level, when `reduced` (narrower precisions were allowed) or precisions
/// are mixed: the same for networks of at most 20 layers, else one line per distinct decision.
void log_engine_report(const Engine& engine, bool reduced) {
  if (!log_enabled(LogLevel::kInfo)) return;
  const std::vector<Engine::LayerReport> layers = engine.report();
  const auto first = std::ranges::find_if(layers, computes);
  const bool mixed = std::any_of(first, layers.end(), [&](const Engine::LayerReport& layer) {
    return computes(layer) && layer.precision != first->precision;
  });
  const bool worth_a_line = reduced || mixed;
  if (log_enabled(LogLevel::kVerbose) || (worth_a_line && layers.size() <= kSmall)) {
    log_layers(layers, worth_a_line && layers.size() <= kSmall ? LogLevel::kInfo : LogLevel::kVerbose);
  } else if (worth_a_line) {
    log_summary(layers);
  }
}

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
