#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <iterator>

#include "api/loaded_model.h"
#include "args/comparison.h"
#include "compare/accuracy.h"
#include "compare/comparison.h"
#include "compare/json_files.h"
#include "compare/log_levels.h"
#include "compare/postprocess.h"
#include "compare/validate.h"
#include "core/file.h"
#include "core/memory.h"
#include "core/messages.h"
#include "core/parallel.h"
#include "graph/outputs.h"
#include "interrupt.h"
#include "onnx/import.h"
#include "precision/criterion.h"
#include "runners/engine_runner.h"
#include "runners/foreign_operators.h"
#include "runners/onnxruntime_runner.h"
#include "runners/script_host.h"
#include "runners/tensorrt_runner.h"
#include "runtime/memory_limit.h"
#include "tools/answer_options.h"
#include "tools/comparing.h"
#include "tools/network_setup.h"
#include "tools/polygraphy_script.h"
#include "tools/run_engine.h"
#include "tools/run_inference.h"
#include "tools/run_onnx.h"
#include "tools/run_options.h"
#include "tools/tool.h"
#include "ulpscope/log.h"

namespace ulpscope::cli {
namespace {

/// What `simple` calls for every output; nothing if no plots are asked for. Finds out at once whether plots can be
/// made: throws Error when matplotlib is missing, a folder cannot be made, or there is no display to show them on.
/// `host` and `args` outlive it.
std::function<void(const ComparedOutput&)> make_plotter(const ComparisonArgs& args, ScriptHost& host);

/// Paths are relative to the working directory, which the worker may have left.
std::string absolute(const std::optional<std::string>& folder) {
  return folder ? std::filesystem::absolute(*folder).string() : "";
}

void log_files(const Value& files, const std::string& what) {
  for (const std::string& file : files.strings()) log_info("Saving {} to: '{}'", what, file);
}

/// NumPy has no narrow floats to draw.
Tensor drawable(const Tensor& tensor) { return tensor.cast(DataType::kFloat64); }

std::function<void(const ComparedOutput&)> make_plotter(const ComparisonArgs& args, ScriptHost& host) {
  if (!args.plots()) return {};
  const std::shared_ptr<Worker> worker = host.data_worker();
  std::vector<std::string> folders;
  for (const auto* folder : {&args.save_heatmaps, &args.save_error_metrics_plot})
    if (*folder) folders.push_back(absolute(*folder));
  const bool show = args.show_heatmaps || args.show_error_metrics_plot;
  worker->call("check_plots", Value::Map{{"show", show}, {"folders", Value::of_strings(folders)}});
  return [&args, worker, show](const ComparedOutput& output) {
    // Windows stay open as long as somebody looks at them.
    if (show) worker->set_call_limit(std::chrono::milliseconds(0));
    if (args.save_error_metrics_plot || args.show_error_metrics_plot) {
      log(kStartLevel, fmt::format("Building error metrics plot for {}. This may take a while...", output.name));
      const LogIndent indent;
      log_files(worker->call("error_metrics", Value::Map{{"absolute", drawable(output.absolute)},
                                                         {"relative", drawable(output.relative)},
                                                         {"reference", drawable(output.reference)},
                                                         {"first", output.first.runner_name},
                                                         {"second", output.second.runner_name},
                                                         {"output", output.name},
                                                         {"other_output", output.other_name},
                                                         {"folder", absolute(args.save_error_metrics_plot)},
                                                         {"show", args.show_error_metrics_plot}}),
                "error metrics plot");
    }
    if (!args.save_heatmaps && !args.show_heatmaps) return;
    const auto draw = [&](const char* kind, const Tensor& error, bool log_scale) {
      const std::string title = fmt::format("{} Error | {}", kind, output.name);
      log(kStartLevel, fmt::format("Building heatmaps for {}. This may take a while...", title));
      const LogIndent indent;
      log_files(worker->call("heatmaps", Value::Map{{"array", drawable(error)},
                                                    {"title", title},
                                                    {"folder", absolute(args.save_heatmaps)},
                                                    {"show", args.show_heatmaps},
                                                    {"log_scale", log_scale}}),
                fmt::format("'{}' heatmap", title));
    };
    draw("Absolute", output.absolute, false);
    draw("Relative", output.relative, true);
  };
}

TensorRTOptions tensorrt_options(const RunOptions& options) {
  const BuildOptions build = options.config.build_options(options.model);
  if (!options.network.clamp_constants.empty())
    throw unsupported(
        "[options] --clamp-constants: TensorRT reads the file as it is; try changing the constants in the file");
  if (options.network.repairs)
    throw unsupported(
        "[options] --repairs: TensorRT reads the file as it is; try --trt-backend ulpscope, or leave the repairs out "
        "of the search with --no-repair");
  TensorRTOptions result;
  result.enabled = build.enabled;
  result.strongly_typed = build.strongly_typed;
  result.precision_constraints = build.constraints == ConstraintMode::kObey     ? "obey"
                                 : build.constraints == ConstraintMode::kPrefer ? "prefer"
                                                                                : "none";
  for (const std::string& word : options.network.layer_precisions) {
    auto [name, type] = split_name(word);
    result.layer_precisions.emplace_back(std::move(name), std::move(type));
  }
  if (!build.profiles.empty()) {
    const Profile& profile = build.profiles.front();
    for (const auto& [name, min] : profile.min)
      result.profile.push_back({name, min, profile.opt.at(name), profile.max.at(name)});
  }
  if (options.network.save_engine) result.save_engine = *options.network.save_engine;
  return result;
}

class RunTool : public Tool {
 public:
  std::string description() const override {
    return "\n\nThe typical usage of `run` is:\n\n    ulpscope run MODEL [runners...] [options...]\n\n"
           "It runs inference on the model with all the given runners, in the order given, and compares the outputs "
           "of\n"
           "each with those of the next. The exit status is 0 if all agree, 1 if not or if something failed, 2 for a\n"
           "command line that does not fit. Options may be cut to a unique beginning.";
  }
  bool announces() const override { return !options_.gen_script; }
  bool owns_stdout() const override { return options_.gen_script == "-"; }
  void declare(OptionTable& table) override { options_.declare(table); }

  int run() override {
    if (options_.answer) apply_answer(options_);
    check_options();
    if (options_.gen_script) return write_script();
    set_num_threads(options_.config.num_threads());
    const std::unique_ptr<ScriptHost> scripts = make_script_host(options_.onnx, options_.inference.python);
    ScriptHost& host = *scripts;
    const std::vector<CompareFunction> functions =
        compare_functions(options_.comparison, host, make_plotter(options_.comparison, host));

    std::optional<TemporaryFolder> folder;
    prepare_onnx(options_, host, folder);
    RunResults results = infer(host);
    for (const std::string& path : options_.comparison.load_outputs) {
      check_sequential(path);
      log_info("Loading inference results from " + path);
      RunResults loaded = load_results(path);
      if (std::ranges::all_of(loaded, [](const auto& entry) { return entry.second.empty(); }))
        log_warning("'{}' has no results of any iteration: nothing is compared with it", path);
      std::ranges::move(loaded, std::back_inserter(results));
    }
    if (options_.inference.postprocess_script) {
      const ScriptName script = ScriptName::parse(*options_.inference.postprocess_script, "postprocess_outputs");
      log_info("Applying post-processing to outputs: " + script.function);
      for (auto& [name, iterations] : results)
        for (IterationResult& result : iterations) result.outputs = host.postprocess_outputs(script, result);
    } else if (!options_.inference.postprocess.empty()) {
      const PerName<TopK> top_k = parse_top_k("--postprocess", options_.inference.postprocess);
      log_info("Applying post-processing to outputs: top_k");
      apply_top_k(results, top_k);
    }
    const AccuracyResult accuracy = compare_accuracy(
        results, functions,
        {.fail_fast = options_.comparison.fail_fast, .check_average = options_.comparison.check_average});
    bool passed = accuracy.passed();
    warn_of_empty_outputs(results);
    if (options_.comparison.save_accuracy_results) {
      log_info("Saving accuracy results to " + *options_.comparison.save_accuracy_results);
      const WritingFile writing;
      save_accuracy(*options_.comparison.save_accuracy_results, accuracy);
    }
    if (options_.comparison.validate) {
      ValidateOptions validation;
      validation.fail_fast = options_.comparison.fail_fast;
      passed = validate(results, validation).passed && passed;
    }
    return passed ? 0 : 1;
  }

 private:
  /// Comparisons of nothing pass, as Polygraphy's do, but not in silence.
  static void warn_of_empty_outputs(const RunResults& results) {
    const auto is_empty = [](const IterationResult& result) {
      return !result.outputs.empty() && !has_elements({&result.outputs, 1});
    };
    if (results.size() < 2 || results[0].second.empty() || !std::ranges::all_of(results[0].second, is_empty)) return;
    log_warning("No output has any element: that they match says nothing; try inputs without dimensions of 0");
  }

  int write_script() const {
    if (options_.model.given() && options_.model.type() == ModelType::kEngine)
      log_warning("[gen-script] '{}' is taken for an engine of TensorRT: ulpscope's engines run here only",
                  *options_.model.model);
    const std::string script = polygraphy_script(
        "run", "--gen-script", options_, [](RunOptions& options, OptionTable& table) { options.declare(table); });
    if (*options_.gen_script == "-") {
      fmt::print("{}", script);
      return 0;
    }
    const WritingFile writing;
    write_file(*options_.gen_script, script);
    log_info("Writing script to " + *options_.gen_script);
    return 0;
  }

  void check_options() const {
    const ModelArgs& model = options_.model;
    if (!options_.runners.runners.empty() && !model.given())
      throw invalid_argument(
          "One or more runners was specified, but no model file was provided. Make sure you've specified the model "
          "path, and also that it's not being consumed as an argument for another parameter");
    if (options_.runners.runners.empty())
      log_warning(
          "No runners have been selected. Inference will not be run! Try --trt, ulpscope's engine, or --onnxrt");
    if (model.given()) {
      model.type();
      model.check_exists();
    }
    options_.inference.check();
    options_.comparison.check();
    if (!options_.inference.postprocess_script) parse_top_k("--postprocess", options_.inference.postprocess);
    check_paths();
    options_.data.warn_of_unused();
    if (options_.data.iterations && *options_.data.iterations < 0)
      throw invalid_argument("[options] --iterations: expected 0 or more, got {}", *options_.data.iterations);
  }

  void check_sequential(const std::string& path) const {
    std::error_code ignored;
    if (options_.comparison.sequential && std::filesystem::is_directory(path, ignored))
      throw invalid_argument(
          "[options] --load-outputs: with --sequential-runners, expected a file, got the directory '{}'; try without "
          "--sequential-runners, which changes nothing else",
          path);
  }

  /// A folder of iterations has no files from before, which would be read as further iterations.
  static void check_folder(const char* option, const std::optional<std::string>& path) {
    std::error_code ignored;
    if (path && is_saved_as_folder(*path, 1) && std::filesystem::is_directory(*path, ignored) &&
        !std::filesystem::is_empty(*path, ignored))
      throw invalid_argument(
          "[options] {}: '{}' is a directory that is not empty; a file per iteration is written to a new or empty one; "
          "try another path, or one with an extension for a single file",
          option, *path);
  }

  static void log_saving(const char* what, const std::string& path, std::size_t iterations) {
    const bool folder = is_saved_as_folder(path, iterations);
    log_info("Saving {} to {}{}", what, folder ? "a directory of per-iteration files: " : "", path);
  }

  /// Results that replace those that they are compared with would always agree.
  void check_paths() const {
    std::vector<std::string> loaded = options_.data.load_inputs;
    loaded.insert(loaded.end(), options_.comparison.load_outputs.begin(), options_.comparison.load_outputs.end());
    const InferenceArgs& inference = options_.inference;
    for (const std::optional<std::string>* saved : {&inference.save_inputs, &inference.save_outputs}) {
      if (!*saved) continue;
      const std::filesystem::path to = std::filesystem::absolute(**saved).lexically_normal();
      for (const std::string& path : loaded) {
        const std::filesystem::path from = std::filesystem::absolute(path).lexically_normal();
        const std::filesystem::path inside = from.lexically_relative(to);
        if (!inside.empty() && *inside.begin() != "..")
          throw invalid_argument(
              "[options] '{}' overlaps the save path '{}', so it would be written over; try another path for what is "
              "saved",
              path, **saved);
      }
    }
    if (options_.gen_script) return;
    check_folder("--save-inputs", inference.save_inputs);
    check_folder("--save-outputs", inference.save_outputs);
  }

  void check_onnx(const char* runner) const {
    if (options_.model.type() != ModelType::kOnnx)
      throw unsupported(
          "[model] {}: expected an ONNX model, got '{}'; try comparing with results of an ONNX model through "
          "--load-outputs",
          runner, *options_.model.model);
  }

  /// The model as ONNX Runtime gets it, by the backend that others are compared with.
  std::unique_ptr<Runner> make_reference() {
    check_onnx("--pluginref");
    return make_engine_runner(
        [this] {
          const OnnxLoadArgs& onnx = options_.onnx;
          ImportOptions import = onnx.import_options();
          import.outputs = onnx.outputs;
          const std::shared_ptr<Network> network =
              import_onnx(options_.model.path(), registry_with_onnxruntime(), import);
          if (!onnx.outputs.empty()) mark_outputs(*network, onnx.outputs);
          if (!onnx.exclude_outputs.empty()) unmark_outputs(*network, onnx.exclude_outputs);
          BuildOptions build;
          build.backend = "plain";
          build.fusion = Fusion::kNone;
          build.threads = options_.config.num_threads();
          build.memory_limit = options_.config.memory_bytes();
          return Engine::build(network, build);
        },
        "pluginref-runner");
  }

  std::unique_ptr<Runner> make_onnxruntime(ScriptHost& host) {
    check_onnx("--onnxrt");
    warn_of_unlimited("ONNX Runtime", options_.config.memory_bytes());
    return make_onnxruntime_runner(options_.model.path(),
                                   options_.onnxrt.options(options_.onnx, options_.config.num_threads()),
                                   options_.inference.use_subprocess ? nullptr : host.data_worker());
  }

  std::unique_ptr<Runner> make_trt(ScriptHost& host) {
    if (options_.config.real_tensorrt()) {
      warn_of_unlimited("TensorRT", options_.config.memory_bytes());
      return make_tensorrt_runner(options_.model.path(), tensorrt_options(options_));
    }
    return make_engine_runner([this, &host] {
      // --trt twice builds once.
      if (!engine_) engine_ = make_engine(options_, host);
      return engine_;
    });
  }

  RunResults infer(ScriptHost& host) {
    if (options_.runners.runners.empty()) return {};
    std::vector<std::unique_ptr<Runner>> runners;
    for (const std::string& runner : options_.runners.runners)
      runners.push_back(runner == "--trt"      ? make_trt(host)
                        : runner == "--onnxrt" ? make_onnxruntime(host)
                                               : make_reference());
    take_peak_element_bytes();
    InferenceOutcome outcome = run_inference(options_, runners, host, profile_shapes(options_.config, options_.model));
    if (engine_) {
      warn_of_replaced_files(engine_->network(), "what was computed");
      warn_beyond_limit(engine_->options().memory_limit, take_peak_element_bytes(),
                        "the inputs and outputs of all iterations, and what a run holds, took",
                        "fewer iterations or smaller inputs");
    }
    engine_.reset();
    if (options_.inference.save_inputs) {
      log_saving("inference input data", *options_.inference.save_inputs, outcome.inputs.size());
      const WritingFile writing;
      save_inputs(*options_.inference.save_inputs, outcome.inputs);
    }
    if (options_.inference.save_input_blob) save_input_blob(outcome.inputs);
    if (options_.inference.save_outputs) {
      log_saving("inference results", *options_.inference.save_outputs, outcome.inputs.size());
      const WritingFile writing;
      save_results(*options_.inference.save_outputs, outcome.results);
    }
    return std::move(outcome.results);
  }

  /// DIR/0000000000/x.bin, as numpy.ndarray.tofile writes it.
  void save_input_blob(const std::vector<TensorMap>& inputs) const {
    const std::string& given = *options_.inference.save_input_blob;
    const std::filesystem::path folder = given.empty() ? "." : given;
    log_info("Saving raw inference input data to " + folder.string());
    const WritingFile writing;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      for (const auto& [name, tensor] : inputs[i]) {
        const std::filesystem::path inside = std::filesystem::path(name + ".bin").lexically_normal();
        if (inside.is_absolute() || *inside.begin() == "..")
          throw invalid_argument("[options] --save-input-blob: input '{}' would be written outside of '{}'", name,
                                 folder.string());
        write_file(folder / fmt::format("{:010}", i) / inside,
                   std::string_view(static_cast<const char*>(tensor.raw()), tensor.bytes()));
      }
    }
  }

  RunOptions options_;
  std::shared_ptr<Engine> engine_;
};

}  // namespace

std::unique_ptr<Tool> make_run_tool() { return std::make_unique<RunTool>(); }

}  // namespace ulpscope::cli
