#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "args/runners.h"
#include "compare/difference.h"
#include "compare/statistics.h"
#include "console.h"
#include "core/file.h"
#include "core/messages.h"
#include "graph/layer_choice.h"
#include "graph/outputs.h"
#include "interrupt.h"
#include "precision/marking.h"
#include "precision/strategy.h"
#include "runtime/engine.h"
#include "tools/comparing.h"
#include "tools/golden_judge.h"
#include "tools/precision_setup.h"
#include "tools/timing_cache.h"
#include "tools/tool.h"
#include "ulpscope/error.h"
#include "ulpscope/log.h"

namespace ulpscope::cli {
namespace {

enum class Kind : std::uint8_t { kBisect, kLinear, kWorstFirst };

/// Larger sets to try once the answer is known.
constexpr int kProbes = 2;
/// Layers whose --layer-precisions text is shown without -v.
constexpr std::size_t kShownPrecisions = 20;

double largest_error(const Tensor& ours, const Tensor& golden) {
  const Tensor absolute = difference(ours, golden, /*infinities_equal=*/true).absolute;
  const double error = max_of(absolute);
  return std::isnan(error) ? std::numeric_limits<double>::infinity() : error;
}

class StrategyTool : public Tool {
 public:
  explicit StrategyTool(Kind kind) : kind_(kind) {}

  std::string description() const override {
    std::string text = "\n\n    ulpscope " + name +
                       " MODEL --fp16 --golden FILE [options...]\n\n"
                       "Every try runs the network with some layers in higher precision and compares its outputs with "
                       "golden ones.\n";
    if (kind_ == Kind::kWorstFirst)
      text +=
          "Layers are ranked by how much the error of their output grows over that of the output before it, with the\n"
          "outputs of all layers marked. The golden file should have the outputs of the layers (`run --onnx-outputs\n"
          "mark all`); where it has not, those in float32 take their place. Tries are judged by the outputs of the "
          "model, or those that --trt-outputs names.\n";
    return text +
           "Counts are places in the network's list of layers, in which Constant layers count; those, layers that\n"
           "compute shapes, and layers whose outputs are not floats are not marked. The exit status is 0 if an answer\n"
           "was found, 1 if not or if something failed, 2 for a command line that does not fit.";
  }
  bool announces() const override { return true; }

  void declare(OptionTable& table) override {
    table.section("Precision", "how layers are chosen.");
    options_.declare_search(table);
    if (kind_ != Kind::kWorstFirst)
      table
          .value({"--mode"}, mode_, "MODE",
                 "forward: the first layers, from the inputs; reverse (default): the last layers, from the outputs")
          .choose({"forward", "reverse"});
    table
        .value({"-p", "--precision"}, precision_, "TYPE",
               "Precision of marked layers: float32 (default), or float16, which turns --fp16 on")
        .choose({"float32", "float16"});
    table.flag({"-s", "--show-output"}, show_output_, "Show the whole comparison of each try");
    if (kind_ == Kind::kWorstFirst) table.value({"--top"}, top_, "N", "Layers added per round (default: 5)");
    options_.model.declare(table, /*required=*/true, ModelForms::kNetworks);
    options_.onnx.declare(table);
    options_.config.declare(table, "obey");
    options_.network.declare(table, options_.config.strongly_typed);
    options_.data.declare(table);
    options_.comparison.declare(table);
  }

  int run() override {
    if (!options_.golden) throw UsageError("the following arguments are required: --golden");
    if (top_ && *top_ < 1) throw invalid_argument("[options] --top: expected 1 or more, got {}", *top_);
    if (precision_ == "float16") {
      options_.config.allow(Precision::kFP16) = true;
      higher_ = DataType::kFloat16;
      if (!options_.config.precisions().needs_calibration())
        log_warning(
            "Using float16 as the higher precision, but float16 is also the lowest precision available. Did you mean "
            "to set --int8 as well?");
    }
    if (kind_ == Kind::kWorstFirst && marks_all(options_.network.outputs)) {
      // All outputs are for the ranking; the tries are judged by those of the model.
      options_.network.outputs.clear();
      unranked_.swap(options_.network.exclude_outputs);
    }
    setup_ = make_precision_setup(options_);
    functions_ = compare_functions(options_.comparison, *setup_.host);
    golden_ = std::move(*setup_.golden);
    samples_ = make_samples(options_, setup_, static_cast<int>(golden_.iterations.size()));
    match_counts(samples_, golden_);
    if (samples_.size() > 1) log_info("A try passes if all {} iterations do", samples_.size());
    trials_ = std::make_unique<Trials>(setup_.network, setup_.build, samples_);
    {
      Progress progress;
      progress.show("running in float32");
      check_golden_results(*trials_, golden_, options_, functions_);
    }
    markable_ = markable_layers(*trials_->specialization());
    warn_if_nothing_is_low();
    const StrategyResult result = search();
    if (!result.layers) {
      log(LogLevel::kCritical, "Could not find a configuration that resulted in acceptable accuracy");
      return 1;
    }
    report(result);
    save(*result.layers);
    return 0;
  }

 private:
  void warn_if_nothing_is_low() {
    const Assignment lowest = trials_->assign(mark_layers(*setup_.network, markable_, {}, higher_));
    for (LayerId l : markable_.ids())
      if (markable_[l] && lowest.precision[l] != *precision_from_type(higher_) &&
          setup_.network->layers[l].op->precision == PrecisionRule::kCompute)
        return;
    log_warning("Without marks, no layer runs in a lower precision than {}: marking changes nothing{}",
                name_of(higher_), options_.cost_model ? "; try without --cost-model" : "");
  }

  StrategyResult search() {
    const auto layers = static_cast<int>(setup_.network->layers.size());
    const Direction direction = mode_ == "forward" ? Direction::kForward : Direction::kReverse;
    const TryLayers attempt = [&](const Attempt& layers_to_try) { return passes(layers_to_try); };
    switch (kind_) {
      case Kind::kBisect:
        return bisect_layers(layers, direction, BisectStart::kNone, attempt, kProbes);
      case Kind::kLinear:
        return add_layers(layers, direction, attempt, kProbes);
      default:
        return add_worst_layers(rank(), top_.value_or(5), attempt);
    }
  }

  /// "range(0, 3)", or "[3, 5]".
  std::string text_of(const std::vector<int>& layers) const {
    if (kind_ == Kind::kWorstFirst) return fmt::format("[{}]", fmt::join(layers, ", "));
    const auto all = static_cast<int>(setup_.network->layers.size()), count = static_cast<int>(layers.size());
    return mode_ == "forward" ? fmt::format("range(0, {})", count) : fmt::format("range({}, {})", all - count, all);
  }

  /// "first 3", "last 3", "worst 3".
  std::string end_of(int count) const {
    const std::string which = kind_ == Kind::kWorstFirst ? "worst" : mode_ == "forward" ? "first" : "last";
    return fmt::format("{} {}", which, count);
  }

  bool passes(const Attempt& attempt) {
    check_interrupted();
    const std::string type = fmt::format("DataType.{}", tensorrt_name_of(higher_));
    if (attempt.probe) log_info("Checking that a larger number of layers passes as well");
    log_info("Will run layer(s): {} in {} precision", text_of(attempt.layers), type);
    const LogIndent indent;
    if (attempt.good && !attempt.probe)
      log_info("Last known good: {} layer(s) in {} precision", end_of(*attempt.good), type);
    if (attempt.bad && !attempt.probe)
      log_info("Last known bad: {} layer(s) in {} precision", end_of(*attempt.bad), type);
    Progress progress;
    progress.show(fmt::format("{} layers, about {} tries to go", attempt.count, attempt.remaining));
    std::vector<TensorMap> outputs;
    try {
      outputs = trials_->run(trials_->assign(mark_layers(*setup_.network, markable_, attempt.layers, higher_)));
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kBuild) throw;
      log_warning("FAILED | {}", error.what());
      return false;
    }
    const auto required = compare_with_golden(functions_, options_.comparison, golden_, outputs, show_output_);
    for (const RequiredTolerances& each : required)
      log(each.passed ? LogLevel::kInfo : LogLevel::kError, describe(each));
    return all_passed(required);
  }

  /// Layers by how much their errors grow, worst first.
  std::vector<int> rank() {
    const auto network = std::make_shared<Network>(*setup_.network);
    mark_outputs(*network, std::vector<std::string>{"mark", "all"});
    if (!unranked_.empty()) unmark_outputs(*network, unranked_);
    GoldenResults golden;
    {
      const LogFloor quiet(LogLevel::kError);
      golden = load_golden(*options_.golden, *network);
    }
    golden.iterations.resize(samples_.size());
    std::size_t found = golden.iterations.front().size();
    Trials marked(network, setup_.build, samples_);
    if (found < 2) {
      log_warning(
          "[golden] '{}' has no outputs of layers but '{}': layers are ranked against their outputs in float32. "
          "`ulpscope run {} --onnxrt --onnx-outputs mark all --save-outputs {}` would save them",
          *options_.golden, golden.iterations.front().front().name, *options_.model.model, *options_.golden);
      golden.iterations = marked.run(marked.full_precision(), /*keep=*/false);
      found = network->outputs.size();
    }
    log_info("Ranking layers by {} of {} layer outputs", found, network->outputs.size());
    const Assignment lowest = marked.assign(mark_layers(*network, markable_, {}, higher_));
    const std::vector<TensorMap> outputs = marked.run(lowest);
    std::vector<double> errors;
    std::vector<LayerId> producers;
    for (std::size_t o = 0; o < network->outputs.size(); ++o) {
      const TensorInfo& info = network->tensor(network->outputs[o]);
      double error = 0;
      bool comparable = info.producer != kNone;
      for (std::size_t i = 0; i < outputs.size() && comparable; ++i) {
        const Tensor* exact = find_tensor(golden.iterations[i], info.name);
        comparable = exact != nullptr && exact->shape() == outputs[i][o].tensor.shape();
        if (comparable) error = std::max(error, largest_error(outputs[i][o].tensor, *exact));
      }
      if (!comparable) continue;
      errors.push_back(error);
      producers.push_back(info.producer);
    }
    std::vector<int> ranking;
    for (const int index : rank_by_error_growth(errors)) {
      const LayerId l = producers[index];
      if (!markable_[l] || network->layers[l].op->precision != PrecisionRule::kCompute ||
          lowest.precision[l] == *precision_from_type(higher_) ||
          std::ranges::find(ranking, l.number()) != ranking.end())
        continue;
      log_verbose("{}. {} | largest absolute difference {:.4g}", ranking.size() + 1, network->layers[l].name,
                  errors[index]);
      ranking.push_back(l.number());
    }
    return ranking;
  }

  void report(const StrategyResult& result) {
    const std::vector<int>& layers = *result.layers;
    const std::string which = kind_ == Kind::kWorstFirst
                                  ? "layers: " + text_of(layers)
                                  : fmt::format("the {} layers", end_of(static_cast<int>(layers.size())));
    log(kFinishLevel, fmt::format("To achieve acceptable accuracy, try running {} in DataType.{} precision", which,
                                  tensorrt_name_of(higher_)));
    {
      const LogIndent indent;
      for (const std::string& node : marked_nodes(*setup_.network, markable_, layers)) log(kFinishLevel, node);
    }
    std::vector<std::string> precisions;
    for (const int layer : layers)
      if (const LayerId l(layer); markable_[l])
        precisions.push_back(fmt::format("{}:{}", setup_.network->layer(l).name, name_of(higher_)));
    if (!precisions.empty())
      log(precisions.size() <= kShownPrecisions ? LogLevel::kInfo : LogLevel::kVerbose,
          fmt::format(
              "For `run`, beside the options of this command: --layer-precisions {} --precision-constraints obey "
              "--assume-lowest",
              fmt::join(precisions, " ")));
    if (result.monotone()) return;
    for (const auto& [count, passed] : result.tried)
      if (!passed && count > static_cast<int>(layers.size()))
        log_warning("Passing is not monotone: the {} layer(s) pass, the {} fail. The answer passes, but {}",
                    end_of(static_cast<int>(layers.size())), end_of(count),
                    kind_ == Kind::kBisect
                        ? "a smaller one may exist; try `precision linear`, which leaves no number out"
                        : "other choices of layers may be smaller");
  }

  void save(const std::vector<int>& layers) {
    const TrtConfigArgs& config = options_.config;
    if (!options_.network.save_engine && !config.save_tactics && !config.save_timing_cache) return;
    const auto network = std::make_shared<Network>(*setup_.network);
    const auto requested = mark_layers(*network, markable_, layers, higher_);
    set_requests(*network, requested);
    const auto engine = Engine::build(network, setup_.build);
    const WritingFile writing;
    if (options_.network.save_engine) {
      log_info("Saving engine to " + *options_.network.save_engine);
      engine->save(*options_.network.save_engine);
    }
    if (config.save_timing_cache) save_timing_cache(*config.save_timing_cache, *engine);
    if (options_.config.save_tactics) {
      log_info("Saving tactic replay to " + *options_.config.save_tactics);
      write_file(*options_.config.save_tactics, engine->tactic_replay_json());
    }
  }

  Kind kind_;
  PrecisionOptions options_;
  std::optional<std::string> mode_, precision_;
  std::optional<int> top_;
  bool show_output_ = false;
  DataType higher_ = DataType::kFloat32;
  std::vector<std::string> unranked_;

  PrecisionSetup setup_;
  std::vector<CompareFunction> functions_;
  GoldenResults golden_;
  std::vector<TensorMap> samples_;
  std::unique_ptr<Trials> trials_;
  IdMap<LayerId, char> markable_;
};

}  // namespace

std::unique_ptr<Tool> make_precision_bisect_tool() { return std::make_unique<StrategyTool>(Kind::kBisect); }
std::unique_ptr<Tool> make_precision_linear_tool() { return std::make_unique<StrategyTool>(Kind::kLinear); }
std::unique_ptr<Tool> make_precision_worst_first_tool() { return std::make_unique<StrategyTool>(Kind::kWorstFirst); }

}  // namespace ulpscope::cli
