#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "args/debug.h"
#include "compare/json_files.h"
#include "compare/log_levels.h"
#include "core/file.h"
#include "core/messages.h"
#include "core/parallel.h"
#include "graph/inference.h"
#include "graph/layer_choice.h"
#include "interrupt.h"
#include "onnx/import.h"
#include "onnx/submodel.h"
#include "precision/criterion_options.h"
#include "precision/shell_word.h"
#include "runners/foreign_operators.h"
#include "tools/check_command.h"
#include "tools/iterative_debug.h"
#include "tools/network_setup.h"
#include "tools/precision_setup.h"
#include "tools/reduction.h"
#include "tools/tool.h"
#include "ulpscope/error.h"
#include "ulpscope/log.h"

namespace ulpscope::cli {
namespace {

namespace fs = std::filesystem;

/// A part that its own judge looks at one by one, at most.
constexpr std::size_t kOneByOne = 48;

/// Whether some element is NaN that is none in `golden`.
bool has_nan(const TensorMap& golden, const TensorMap& low) {
  for (std::size_t o = 0; o < golden.size(); ++o) {
    const Tensor &exact = golden[o].tensor, &other = low[o].tensor;
    if (!is_floating(exact.type()) || exact.size() != other.size()) continue;
    const Tensor a = exact.cast(DataType::kFloat64), b = other.cast(DataType::kFloat64);
    for (std::int64_t i = 0; i < a.size(); ++i)
      if (std::isnan(b.data<double>()[i]) && !std::isnan(a.data<double>()[i])) return true;
  }
  return false;
}

/// The same for any output: names of a model say nothing of those of its parts.
template <typename T>
PerName<T> for_all(const PerName<T>& values) {
  const T* usual = values.find("");
  return usual != nullptr ? PerName<T>(*usual) : PerName<T>();
}

class DebugReduceTool : public Tool {
 public:
  std::string description() const override {
    return "\n\n    ulpscope debug reduce MODEL --fp16 -o reduced.onnx [options...]\n"
           "    ulpscope debug reduce MODEL -o reduced.onnx [options...] --check COMMAND...\n\n"
           "With a precision and without --check, parts are judged here: by what they give in the lowest precisions\n"
           "for the values that the whole model has in float32, against those of its next tensors. The inputs of what\n"
           "is left are saved beside it: a report of a defect. With --check every part is written\n"
           "(polygraphy_debug.onnx) and the command judges it; without either, somebody is asked. The exit status is\n"
           "0 if a part that fails was written, 1 if nothing fails.";
  }
  bool announces() const override { return true; }
  void declare(OptionTable& table) override { args_.declare(table); }
  void check_usage() const override {
    if (args_.check.command.empty()) check_criterion_usage(args_.criterion, args_.precision.comparison);
  }

  int run() override {
    prepare();
    DebugIterations iterations(args_.artifacts, args_.iteration, /*writes_artifact=*/true);
    iterations_ = &iterations;
    if (judges_ && !find_failing_sample()) {
      log_error(
          "The model passes: {:.3g} of the tolerance at '{}' in the lowest precisions. There is nothing to reduce; try "
          "a smaller tolerance, or inputs with which it fails",
          whole_.used, whole_.worst_output);
      return 1;
    }
    reduce();
    iterations.finish();
    return report();
  }

 private:
  bool asks() const { return args_.check.command.empty() && !judges_; }

  void prepare() {
    PrecisionOptions& options = args_.precision;
    if (!args_.output && !args_.min_good)
      throw invalid_argument(
          "[options] --output (where to write the reduced model) and/or --min-good (where to write a reduced model "
          "that passes) must be provided!");
    options.model.check_exists();
    if (options.model.type() != ModelType::kOnnx)
      throw unsupported("[model] '{}': expected an ONNX model, parts of which can be written", *options.model.model);
    for (const auto& [option, path] : {std::pair{"--output", &args_.output}, {"--min-good", &args_.min_good}})
      if (*path) options.model.check_not_replaced(option, **path);
    judges_ = args_.check.command.empty() && !options.config.precisions().empty();
    if (judges_) {
      setup_ = make_precision_setup(options);
      const BuildOptions& build = setup_.build;
      criterion_ = with_usual_tolerance(criterion_options(args_.criterion, options.comparison), build);
    } else {
      setup_.host = make_script_host(options.onnx, options.python);
      set_num_threads(options.config.num_threads());
      setup_.model = load_network(options.network_args(), *setup_.host);
      setup_.network = ModelAccess::loaded(setup_.model).network;
      setup_.build = ModelAccess::loaded(setup_.model).build;
    }
    check_ = std::make_unique<Check>(args_.check);
    if (asks()) log(kStartLevel, "Starting interactive debugging session since no `--check` command was provided");
    file_ = ModelAccess::loaded(setup_.model).file_at(options.model.path());
    parts_ = std::make_unique<ModelParts>(file_->bytes(), options.model.path().string());
    samples_ = make_samples(options, setup_);
    fixed_ = args_.fixed_shapes || !options.model.input_shapes.empty();
    if (!fixed_ && has_dynamic_inputs())
      log_warning(
          "This model uses dynamic input shapes.\nYou may want to provide input shapes to `debug reduce` using the "
          "`--model-input-shapes` option to prevent unexpected behavior.");
  }

  bool has_dynamic_inputs() const {
    return std::ranges::any_of(setup_.network->inputs, [&](TensorId id) {
      const auto& shape = setup_.network->tensor(id).shape;
      return !shape || std::ranges::any_of(*shape, [](std::int64_t dim) { return dim < 0; });
    });
  }

  /// The sample that fails by most becomes the one that counts. False if none fails.
  bool find_failing_sample() {
    Trials trials(setup_.network, setup_.build, samples_);
    const std::vector<TensorMap> golden = trials.run(trials.full_precision(), false);
    const std::vector<TensorMap> low = trials.run(trials.assign(own_requests(*setup_.network)), false);
    std::vector<std::string> names;
    for (const TensorId id : setup_.network->outputs) names.push_back(setup_.network->tensor(id).name);
    const auto criterion = make_criterion(criterion_, *setup_.host, names);
    std::size_t worst = 0;
    for (std::size_t s = 0; s < samples_.size(); ++s) {
      const Judgement each = criterion->judge({&golden[s], 1}, {&low[s], 1});
      if (s > 0 && !(each.used > whole_.used)) continue;
      whole_ = each;
      gives_nan_ = has_nan(golden[s], low[s]);
      worst = s;
    }
    std::swap(samples_.front(), samples_[worst]);
    if (whole_.passed()) return false;
    log_info("The whole model fails on sample {}: {}", worst, text_of(whole_));
    return true;
  }

  static std::string text_of(const Judgement& judgement) {
    if (!judgement.problem.empty()) return judgement.problem;
    return fmt::format("{:.3g} of the tolerance ({:.3g}) at '{}'", judgement.used, judgement.value,
                       judgement.worst_output);
  }

  /// Of a tensor of the model: what one run in float32 gives.
  Tensor value_of(const std::string& name) {
    if (values_.empty()) {
      const auto network = std::make_shared<Network>(*setup_.network);
      network->outputs.clear();
      std::set<TensorId> added;
      const auto add = [&](const std::string& tensor) {
        const TensorId id = network->find_tensor(tensor);
        if (id != kNone && network->tensor(id).producer != kNone && added.insert(id).second)
          network->outputs.push_back(id);
      };
      for (const ModelParts::Node& node : parts_->nodes())
        for (const std::string& output : node.outputs) add(output);
      Trials trials(network, setup_.build, std::span(samples_).first(1));
      const std::vector<TensorMap> outputs = trials.run(trials.full_precision(), false);
      for (const NamedTensor& each : outputs.front()) values_.emplace(each.name, each.tensor);
      for (const NamedTensor& each : samples_.front()) values_.emplace(each.name, each.tensor);
    }
    if (const auto found = values_.find(name); found != values_.end()) return found->second;
    const TensorId id = setup_.network->find_tensor(name);
    if (id == kNone || !setup_.network->tensor(id).value) return {};
    return setup_.network->tensor(id).value.in_memory();
  }

  /// What follows from the declared shapes of the model's inputs.
  std::optional<Shape> shape_of(const std::string& name) {
    const Network& network = *setup_.network;
    const TensorId id = network.find_tensor(name);
    if (id == kNone) return std::nullopt;
    if (has_dynamic_inputs()) return network.tensor(id).shape;
    if (!inferred_) {
      std::vector<Shape> shapes;
      for (const TensorId input : network.inputs) shapes.push_back(*network.tensor(input).shape);
      inferred_ = infer(network, shapes, /*max_folded_elements=*/0);
    }
    return inferred_->shapes[id];
  }

  void write(const ModelParts::Part& part, const fs::path& path) {
    if (!part.frozen.empty() && !judges_ && args_.precision.data.generates() && !std::exchange(warned_, true))
      log_warning(
          "This model includes multiple branches/paths. In order to continue reducing, one branch needs to be folded "
          "away.\nPlease ensure that you have provided a data loader argument directly to `debug reduce` (i.e. prior "
          "to `--check`) if your `--check` command is using a non-default data loader.\nNot doing so may result in "
          "false negatives!");
    const WritingFile writing;
    parts_->write(part,
                  {[&](const std::string& name) { return value_of(name); },
                   [&](const std::string& name) { return shape_of(name); }},
                  fixed_, path);
  }

  TensorMap values_of(const std::vector<std::string>& names) {
    TensorMap result;
    for (const std::string& name : names) result.push_back({name, value_of(name)});
    return result;
  }

  /// What the part gives in the lowest precisions.
  Judgement judge(const ModelParts::Part& part) {
    const auto network = import_onnx(args_.iteration.artifact_path(), registry_with_onnxruntime());
    const std::vector<TensorMap> inputs{values_of(part.inputs)}, golden{values_of(part.outputs)};
    Trials trials(network, setup_.build, inputs);
    const std::vector<TensorMap> low = trials.run(trials.assign(own_requests(*network)), false);
    CriterionOptions options = criterion_;
    options.threshold = for_all(options.threshold);
    options.atol = for_all(options.atol);
    options.rtol = for_all(options.rtol);
    options.error_stat = for_all(options.error_stat);
    options.error_quantile = for_all(options.error_quantile);
    options.infinities_equal = true;  // Of float32: they are values like others between layers.
    Judgement judged = make_criterion(options, *setup_.host, part.outputs)->judge(golden, low);
    // Infinities on the way to a NaN may be harmless by themselves: those of a mask are.
    if (gives_nan_ && !has_nan(golden.front(), low.front())) {
      judged.used = 0;
      judged.problem = "no NaN, which the whole model gives";
    }
    return judged;
  }

  /// What made a value that float16 cannot hold belongs to the part, and not who reads it. The model's own inputs are
  /// as they are.
  bool begins_behind_the_failure(const ModelParts::Part& part) {
    constexpr double kLargest = 65504;
    if (!judges_ || !setup_.build.enabled.has(Precision::kFP16)) return false;
    return std::ranges::any_of(part.inputs, [&](const std::string& name) {
      const Tensor value = value_of(name);
      if (std::ranges::find(parts_->inputs(), name) != parts_->inputs().end() || !is_floating(value.type()))
        return false;
      const Tensor wide = value.cast(DataType::kFloat64);
      const std::span<const double> all(wide.data<double>(), static_cast<std::size_t>(wide.size()));
      return std::ranges::any_of(all, [](double x) { return std::isfinite(x) && std::abs(x) > kLargest; });
    });
  }

  bool passes(const ModelParts::Part& part, int remaining) {
    if (part.nodes.empty()) return true;  // All of it is constant: there is nothing that could fail.
    if (begins_behind_the_failure(part)) {
      log_verbose("Not tried: some of {} lie beyond float16 by themselves", python_list(part.inputs));
      return true;
    }
    bool made = false;
    return iterations_->attempt(
        remaining,
        [&] {
          log_info("Marking model inputs: {}, outputs: {} ({} nodes)", python_list(part.inputs),
                   python_list(part.outputs), part.nodes.size());
          try {
            write(part, args_.iteration.artifact_path());
            made = true;
          } catch (const Error& error) {
            if (error.code() != ErrorCode::kUnsupported) throw;
            log_warning("This part cannot be written, and counts as one that passes: {}", error.what());
          }
          return true;
        },
        [&] {
          if (!made) return true;
          if (!judges_) return check_->passes(args_.iteration.artifact_path());
          const Judgement judged = judge(part);
          if (!args_.check.hide_fail_output || judged.passed()) log_info(text_of(judged));
          if (!judged.passed()) judged_ = judged;
          return judged.passed();
        });
  }

  /// Where a judge of our own sees to it, all values that cross a line between nodes are inputs; else those of one
  /// node, and the others are frozen, as Polygraphy does.
  ModelParts::Part behind(std::size_t node, const std::vector<std::string>& outputs) const {
    const std::vector<std::string> inputs = judges_ ? crossing(*parts_, node) : parts_->nodes()[node].inputs;
    return inputs.empty() ? best_ : parts_->between(inputs, outputs, constant_nodes_);
  }

  void reduce() {
    best_ = parts_->between(parts_->inputs(), parts_->outputs());
    const PartPasses passes_part = [&](const ModelParts::Part& part, int remaining) { return passes(part, remaining); };
    const bool linear = args_.mode == "linear";
    // A command may refuse what is computed from constants alone, too, but halves want nodes that follow one another.
    constant_nodes_ = !judges_ && (linear || best_.nodes.empty());
    if (constant_nodes_) best_ = parts_->between(parts_->inputs(), parts_->outputs(), true);
    const auto shorten = [&](bool of_inputs, bool one_by_one) {
      log(kStartLevel, of_inputs ? "Reducing model inputs" : "Reducing model outputs");
      iterations_->enter_phase(of_inputs ? "inputs" : "outputs");
      // Nodes of the part at hand; inputs and outputs beside the one that moves stay.
      const std::vector<std::size_t> nodes = best_.nodes;
      const std::vector<std::string> inputs = best_.inputs, outputs = best_.outputs;
      const auto part_at = [&](std::size_t index) {
        const ModelParts::Node& node = parts_->nodes()[nodes[index]];
        return of_inputs ? behind(nodes[index], outputs) : parts_->between(inputs, node.outputs, constant_nodes_);
      };
      const Reduced found = reduce_part(nodes.size(), of_inputs, one_by_one, part_at, passes_part);
      if (found.bad) best_ = *found.bad;
      if (found.good && (!good_ || found.good->nodes.size() < good_->nodes.size())) good_ = found.good;
      log(kFinishLevel, of_inputs ? "Finished reducing model inputs" : "Finished reducing model outputs");
    };
    // What is harmless on the way to the outputs (an infinite mask) is no failure as long as they are the judge's.
    const std::vector<bool> order = judges_ ? std::vector<bool>{true, false} : std::vector<bool>{false, true};
    const auto round = [&](bool one_by_one) {
      for (const bool of_inputs : order)
        if (!(of_inputs ? args_.keep_inputs : args_.keep_outputs)) shorten(of_inputs, one_by_one);
    };
    round(linear);
    if (linear || args_.mode || !judges_) return;
    for (std::size_t before = 0; best_.nodes.size() > 1 && best_.nodes.size() <= kOneByOne;) {
      before = best_.nodes.size();
      round(true);
      if (best_.nodes.size() == before) break;
    }
  }

  fs::path beside(const char* suffix) const { return fs::path(*args_.output).replace_extension(suffix); }

  int report() {
    if (args_.min_good) {
      if (good_) {
        write(*good_, *args_.min_good);
        log_info("Minimum Good Model: {} node(s), written to {}", good_->nodes.size(), *args_.min_good);
      } else {
        log_warning("Could not find a minimal model close in size to the reduced model that does not cause a failure.");
      }
    }
    if (!args_.output) return 0;
    write(best_, *args_.output);
    std::vector<std::string> names;
    for (const std::size_t n : best_.nodes)
      names.push_back(fmt::format("{} ({})", parts_->nodes()[n].name, parts_->nodes()[n].op));
    constexpr std::size_t kListed = 20;
    const std::size_t shown = std::min(names.size(), kListed);
    const std::size_t all = parts_->nodes().size();
    log(kFinishLevel,
        fmt::format("Minimum Bad Model: {} of {} node(s), written to {}\n    {}{}", names.size(), all, *args_.output,
                    fmt::join(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(shown), "\n    "),
                    shown < names.size() ? fmt::format("\n    ... and {} more", names.size() - shown) : ""));
    if (4 * names.size() >= all && names.size() > 1 && !judges_ && args_.mode != "linear")
      log_warning(
          "It looks like this model could potentially be reduced further.\nYou may want to reduce {} again using "
          "--mode=linear. ",
          *args_.output);
    save_values();
    return 0;
  }

  void save_values() {
    const fs::path inputs = beside(".inputs.json"), golden = beside(".golden.json");
    {
      const WritingFile writing;
      save_inputs(inputs, {values_of(best_.inputs)});
      IterationResult result;
      result.outputs = values_of(best_.outputs);
      result.runner_name = "ulpscope-float32";
      save_results(golden, {{result.runner_name, {result}}});
    }
    if (!judges_) {
      log_info("Its inputs are in {}, and what they give in float32 in {}", inputs.string(), golden.string());
      return;
    }
    std::string command = fmt::format("ulpscope run {} --trt", shell_word(*args_.output));
    for (const Precision each : setup_.build.enabled.members()) command += fmt::format(" --{}", name_of(each));
    log(kFinishLevel, fmt::format("It fails by itself: {}\n    {} --assume-lowest --validate --load-inputs {} "
                                  "--load-outputs {}",
                                  text_of(judged_ ? *judged_ : whole_), command, shell_word(inputs.string()),
                                  shell_word(golden.string())));
  }

  DebugReduceArgs args_;
  PrecisionSetup setup_;
  CriterionOptions criterion_;
  std::unique_ptr<Check> check_;
  std::shared_ptr<const MappedFile> file_;
  std::unique_ptr<ModelParts> parts_;
  DebugIterations* iterations_ = nullptr;
  std::vector<TensorMap> samples_;
  std::map<std::string, Tensor> values_;
  std::optional<InferredNetwork> inferred_;
  bool constant_nodes_ = false;  ///< Whether nodes that need no input of the model are candidates, too.
  bool judges_ = false, fixed_ = false, gives_nan_ = false, warned_ = false;
  Judgement whole_;
  std::optional<Judgement> judged_;  ///< Of the last part that failed, which is the smallest.
  ModelParts::Part best_;
  std::optional<ModelParts::Part> good_;
};

}  // namespace

std::unique_ptr<Tool> make_debug_reduce_tool() { return std::make_unique<DebugReduceTool>(); }

}  // namespace ulpscope::cli
