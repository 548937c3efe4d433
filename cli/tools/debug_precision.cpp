#include <fmt/format.h>

#include "args/debug.h"
#include "console.h"
#include "core/file.h"
#include "core/messages.h"
#include "graph/layer_choice.h"
#include "interrupt.h"
#include "precision/marking.h"
#include "precision/strategy.h"
#include "runtime/engine.h"
#include "tools/check_command.h"
#include "tools/comparing.h"
#include "tools/golden_judge.h"
#include "tools/iterative_debug.h"
#include "tools/precision_setup.h"
#include "tools/timing_cache.h"
#include "tools/tool.h"
#include "ulpscope/error.h"
#include "ulpscope/log.h"

namespace ulpscope::cli {
namespace {

class DebugPrecisionTool : public Tool {
 public:
  std::string description() const override {
    return "\n\n    ulpscope debug precision MODEL --fp16 [options...] --check COMMAND...\n\n"
           "Every try marks some layers, writes the engine (polygraphy_debug.engine) and runs the command, which may\n"
           "be anything, such as `ulpscope run polygraphy_debug.engine --trt --load-outputs golden.json`. With "
           "--golden\n"
           "in place of --check the outputs are compared here, and no engine is written. Unmarked layers take the "
           "lowest\n"
           "enabled precision. The exit status is 0 whether or not a number of layers was found.";
  }
  bool announces() const override { return true; }
  void declare(OptionTable& table) override { args_.declare(table); }

  int run() override {
    PrecisionOptions& options = args_.precision;
    if (!args_.check.command.empty() && options.golden)
      throw UsageError("argument --golden: not allowed with argument --check/--check-inference");
    if (args_.type == "float16") choose_float16();
    const Check check(args_.check);
    setup_ = make_precision_setup(options);
    if (options.golden) {
      load_golden_run();
    } else if (args_.check.command.empty()) {
      log(kStartLevel, "Starting interactive debugging session since no `--check` command was provided");
    }
    log(kStartLevel, fmt::format("Using DataType.{} as higher precision", tensorrt_name_of(higher_)));
    markable_ = trials_ ? markable_layers(*trials_->specialization()) : markable_layers(*setup_.network);

    DebugIterations iterations(args_.artifacts, args_.iteration, /*writes_artifact=*/!trials_);
    const TryLayers attempt = [&](const Attempt& layers) {
      return iterations.attempt(
          layers.remaining, [&] { return make(layers); },
          [&] { return trials_ ? compare() : check.passes(args_.iteration.artifact_path()); });
    };
    const auto count = static_cast<int>(setup_.network->layers.size());
    const Direction direction = args_.direction == "reverse" ? Direction::kReverse : Direction::kForward;
    const StrategyResult result = args_.mode == "linear" ? add_layers(count, direction, attempt)
                                                         : bisect_layers(count, direction, BisectStart::kAll, attempt);
    report(result, count);
    iterations.finish();
    return 0;
  }

 private:
  void choose_float16() {
    if (!args_.precision.config.precisions().has(Precision::kFP16))
      throw invalid_argument(
          "[options] Cannot mark layers to run in float16 if it is not enabled in the builder configuration.\nPlease "
          "also specify `--fp16` as a command-line option");
    if (!args_.precision.config.precisions().needs_calibration())
      log_warning(
          "Using float16 as the higher precision, but float16 is also the lowest precision available. Did you mean to "
          "set --int8 as well?");
    higher_ = DataType::kFloat16;
  }

  void load_golden_run() {
    const PrecisionOptions& options = args_.precision;
    functions_ = compare_functions(options.comparison, *setup_.host);
    golden_ = std::move(*setup_.golden);
    std::vector<TensorMap> samples = make_samples(options, setup_, static_cast<int>(golden_.iterations.size()));
    match_counts(samples, golden_);
    trials_ = std::make_unique<Trials>(setup_.network, setup_.build, samples);
    check_golden_results(*trials_, golden_, options, functions_);
  }

  std::string end_of(int count) const {
    return fmt::format("{} {} layer(s)", args_.direction == "reverse" ? "last" : "first", count);
  }

  /// The engine or the outputs of a try; false when there is no engine that obeys.
  bool make(const Attempt& attempt) {
    log_info("Selecting {} to run in higher precision", end_of(attempt.count));
    const auto requested = mark_layers(*setup_.network, markable_, attempt.layers, higher_);
    Progress progress;
    progress.show(fmt::format("{} layers, about {} tries to go", attempt.count, attempt.remaining));
    try {
      if (trials_)
        outputs_ = trials_->run(trials_->assign(requested));
      else
        write_engine(requested);
      return true;
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kBuild) throw;
      log_warning("Failed to create network or engine, continuing to the next iteration.\nNote: Error was: {}",
                  error.what());
      return false;
    }
  }

  void write_engine(const Requests& requested) {
    const auto network = std::make_shared<Network>(*setup_.network);
    set_requests(*network, requested);
    const auto engine = Engine::build(network, setup_.build);
    check_interrupted();
    const WritingFile writing;
    if (args_.precision.config.save_timing_cache) save_timing_cache(*args_.precision.config.save_timing_cache, *engine);
    if (args_.precision.config.save_tactics)
      write_file(*args_.precision.config.save_tactics, engine->tactic_replay_json());
    engine->save(args_.iteration.artifact_path());
  }

  bool compare() {
    const auto required =
        compare_with_golden(functions_, args_.precision.comparison, golden_, outputs_, args_.check.show_output);
    for (const RequiredTolerances& each : required)
      if (!args_.check.hide_fail_output || each.passed)
        log(each.passed ? LogLevel::kInfo : LogLevel::kError, describe(each));
    return all_passed(required);
  }

  void report(const StrategyResult& result, int count) const {
    const LogIndent indent;
    // As Polygraphy: a bisection for which only all layers pass has found nothing.
    const bool all = args_.mode != "linear" && result.layers && static_cast<int>(result.layers->size()) == count;
    if (!result.layers || (all && count > 0)) {
      log_error("Could not find a configuration that satisfied accuracy requirements.");
      if (all) log_info("Nothing less than all {} layer(s) in higher precision passed.", count);
      return;
    }
    log(kFinishLevel, fmt::format("To achieve acceptable accuracy, try running the {} in higher precision",
                                  end_of(static_cast<int>(result.layers->size()))));
    const LogIndent names;
    for (const std::string& node : marked_nodes(*setup_.network, markable_, *result.layers)) log(kFinishLevel, node);
  }

  DebugPrecisionArgs args_;
  DataType higher_ = DataType::kFloat32;
  PrecisionSetup setup_;
  IdMap<LayerId, char> markable_;
  // With --golden.
  std::vector<CompareFunction> functions_;
  GoldenResults golden_;
  std::unique_ptr<Trials> trials_;
  std::vector<TensorMap> outputs_;
};

}  // namespace

std::unique_ptr<Tool> make_debug_precision_tool() { return std::make_unique<DebugPrecisionTool>(); }

}  // namespace ulpscope::cli
