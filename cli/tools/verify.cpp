#include "ulpscope/verify.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>

#include "args/criterion.h"
#include "args/inference.h"
#include "args/network_args.h"
#include "compare/data_loader.h"
#include "core/counted.h"
#include "core/file.h"
#include "core/messages.h"
#include "core/parallel.h"
#include "core/temporary_folder.h"
#include "interrupt.h"
#include "runners/onnx_checks.h"
#include "runners/onnxruntime_runner.h"
#include "runners/tensorrt_runner.h"
#include "runtime/memory_limit.h"
#include "tools/answer_options.h"
#include "tools/calibrate.h"
#include "tools/network_setup.h"
#include "tools/precision_setup.h"
#include "tools/tool.h"
#include "ulpscope/convert.h"
#include "ulpscope/error.h"
#include "ulpscope/log.h"

namespace ulpscope::cli {
namespace {

namespace fs = std::filesystem;

class VerifyTool : public Tool {
 public:
  std::string description() const override {
    return "\n\n    ulpscope verify model.onnx --answer model.fp16.answer.json --load-inputs fresh.json\n\n"
           "Runs the model in the precisions of the answer and holds its outputs against those of the model in "
           "float32,\n"
           "with the tolerance of the search. With another --runner, the typed model and the one in float32 run there, "
           "and\n"
           "the real error is shown beside the one that is predicted. The exit status is 0 if the answer holds, 1 if "
           "it does not, 2 for a\n"
           "command line that does not fit, 3 for a defect of ulpscope, and 4 if nothing could be judged: a file, a\n"
           "runner or the disk failed.";
  }
  int failure_status() const override { return kUnjudged; }

  void declare(OptionTable& table) override {
    model_.declare(table, /*required=*/true, ModelForms::kNetworks);
    table.section("Answer", "what is checked.");
    table.ours().value({"--answer"}, answer_path_, "FILE", "The answer of `precision search`");
    table.further_positional("ANSWER", answer_, "The same as --answer ANSWER");
    set_.declare(table);
    table.ours().value({"--typed"}, typed_, "FILE",
                       "The typed model that `convert` wrote, for another --runner (default: it is made anew)");
    table.section("Check", "where it runs, and what it is held against.");
    table.ours()
        .value({"--runner"}, runner_, "NAME",
               "ulpscope (default): emulated; onnxrt (or onnxruntime): the typed model in ONNX Runtime; onnxrt-cuda: "
               "the same on a GPU; tensorrt: the typed model in TensorRT")
        .choose({"ulpscope", "onnxrt", "onnxrt-cuda", "tensorrt", "onnxruntime", "onnxruntime-cuda"});
    table.ours().value({"--golden"}, golden_, "FILE",
                       "Results to compare with (default: those of the model in float32, on the same runner)");
    table.list({"--rtol", "--rel-tol"}, comparison_.rtol, "[NAME:]X", "Instead of the answer's: relative tolerance");
    table.list({"--atol", "--abs-tol"}, comparison_.atol, "[NAME:]X", "Instead of the answer's: absolute tolerance");
    table.ours().value({"--save-json"}, json_, "FILE", "What was found, as JSON; - for the standard output");
    config_.declare_backend(table);
    table.ours().value({"--threads"}, config_.threads, "N", "Threads (default: one per core)");
    config_.declare_memory_limit(table);
    criterion_.declare(table);
    data_.declare(table);
    onnx_.declare(table, OnnxLoadArgs::Scope::kRead);
    limits_.declare(table);
  }

  void check_usage() const override {
    if (!answer_path_ && answer_.empty()) throw UsageError("the following arguments are required: --answer");
    if (typed_ && runner() == "ulpscope")
      throw UsageError("argument --typed: not allowed with --runner ulpscope, which runs the answer itself");
    check_criterion_usage(criterion_, comparison_);
  }

  bool owns_stdout() const override { return json_ == "-"; }
  int run() override {
    take_answer(answer_, answer_path_);
    model_.check_exists();
    if (model_.type() == ModelType::kEngine)
      throw unsupported(
          "[model] '{}': expected the ONNX model or the network script that was searched, got an engine, whose "
          "precisions are fixed",
          *model_.model);
    if (model_.type() == ModelType::kNetworkScript && runner() != "ulpscope" && !typed_)
      throw unsupported(
          "[verify] --runner {}: expected an ONNX model, which the typed model is made of, got the network script "
          "'{}'; try --typed FILE, or no --runner",
          runner(), *model_.model);
    data_.warn_of_unused();
    limits_.check();
    const AnswerFile answer = read_answer_set(*answer_path_, set_);
    load_as(answer, config_);
    set_num_threads(config_.num_threads());
    const auto host = make_script_host(onnx_, limits_);
    const NetworkArgs args{model_, onnx_, config_, network_, data_, 0, true};
    Model model = load_network(args, *host);
    LoadedModel& loaded = ModelAccess::loaded(model);
    loaded.build.assume_lowest = true;
    if (config_.precisions().needs_calibration()) {
      loaded.build.scales = answer.scales;
      add_scales(args, *host, model);
    }
    VerifyOptions options;
    if (const CriterionOptions given = criterion_options(criterion_, comparison_);
        tolerance_given(criterion_, comparison_))
      options.criterion = given;
    load_inputs_of(answer);
    std::vector<TensorMap> samples = make_inputs(
        model_, data_, *host, input_bindings(*loaded.network),
        data_.generates() ? fitting_shapes(*loaded.network, model_) : std::vector<std::pair<std::string, Shape>>{});
    check_any_inputs(samples.size(), data_);
    if (data_.generates())
      log_warning(
          "[verify] The inputs are random numbers, since none were given, and the answer names no files of inputs; try "
          "--load-inputs or --data-loader-script");
    if (golden_) {
      GoldenResults golden = load_golden(*golden_, *loaded.network);
      match_counts(samples, golden);
      options.golden = by_name(golden.iterations);
    }
    options.interrupt = check_interrupted;
    const std::vector<TensorsByName> inputs = by_name(samples);
    // The prediction is that of the CPU; --backend cuda runs the same plan on the GPU.
    const std::string backend = std::exchange(ModelAccess::loaded(model).build.backend, "cpu");
    const Judgement predicted = verify(model, answer, inputs, options);
    std::optional<Judgement> real;
    if (backend != "cpu") {
      ModelAccess::loaded(model).build.backend = backend;
      real = verify(model, answer, inputs, options);
    }
    if (runner() != "ulpscope") {
      warn_of_unlimited(runner(), config_.memory_bytes());
      if (!golden_) take_golden_of_runner(model, answer, samples, *host, options);
      options.candidate = run_elsewhere(model, answer, samples, *host);
      real = verify(model, answer, inputs, options);
    }
    return report(answer, samples.size(), predicted, real);
  }

 private:
  /// Where nothing is said about inputs: generated ones need not even fit.
  void load_inputs_of(const AnswerFile& answer) {
    if (!data_.generates() || !data_.val_range.empty() || data_.seed || data_.iterations ||
        !model_.input_shapes.empty() || answer.inputs.empty())
      return;
    std::error_code ignored;
    for (const std::string& file : answer.inputs)
      if (!std::filesystem::exists(file, ignored)) {
        log_warning("[verify] --answer {}: '{}', which the search read inputs from, is not there", *answer_path_, file);
        return;
      }
    data_.load_inputs = answer.inputs;
    log_warning(
        "[verify] The inputs are those of the search, since none were given: they say nothing about other data; try "
        "--load-inputs with fresh ones");
  }

  /// By its short name: the function of the package says onnxruntime, the options of `run` say onnxrt.
  std::string runner() const {
    const std::string name = runner_.value_or("ulpscope");
    constexpr std::string_view kLong = "onnxruntime";
    return name.starts_with(kLong) ? "onnxrt" + name.substr(kLong.size()) : name;
  }
  /// Who computed what is judged.
  std::string place() const {
    const std::string backend = config_.backend_name();
    return runner_ || backend == "cpu" ? runner() : backend;
  }

  /// Golden is what the runner itself makes of the model in float32, so that no difference between its float32 and ours
  /// counts as one of the answer's. Said in a line, as what it is.
  void take_golden_of_runner(const Model& model, const AnswerFile& answer, const std::vector<TensorMap>& samples,
                             ScriptHost& host, VerifyOptions& options) {
    if (model_.type() != ModelType::kOnnx) return;
    try {
      options.candidate = run_all(*make_runner(*model_.model, samples, host), samples);
      float32_ = verify(model, answer, by_name(samples), options);
      options.golden = std::exchange(options.candidate, {});
      golden_origin_ = runner();
    } catch (const Error& error) {
      if (error.code() == ErrorCode::kInterrupted) throw;
      options.candidate.clear();
      float32_.reset();
      log_warning(
          "[verify] The model in float32 gives nothing to compare with on {}, so that its results are held against "
          "ulpscope's: {}",
          runner(), error.what());
      return;
    }
    if (float32_->used > 0) log_info("In float32, {} itself is off from ulpscope: {}", runner(), text_of(*float32_));
  }

  std::vector<TensorsByName> run_elsewhere(const Model& model, const AnswerFile& answer,
                                           const std::vector<TensorMap>& samples, ScriptHost& host) {
    std::optional<TemporaryFolder> folder;
    fs::path typed = typed_.value_or("");
    if (!typed_) {
      typed = folder.emplace(fs::temp_directory_path() / "ulpscope-").path() / "typed.onnx";
      ConvertOptions convert_options;
      convert_options.answer = answer;
      convert_options.verify = convert_options.python_checks = false;
      convert_options.interrupt = check_interrupted;
      const std::vector<TensorsByName> first{by_name(samples.front())};
      const LogFloor quiet(LogLevel::kWarning);  // Nobody looks for a file that goes again.
      convert(model, typed, first, convert_options);
    } else if (std::error_code ignored; !fs::exists(typed, ignored)) {
      throw error_of(ErrorCode::kNotFound, "[verify] --typed '{}': no such file", typed.string());
    }
    try {
      return run_all(*make_runner(typed, samples, host), samples);
    } catch (const Error& error) {
      const bool has_bf16 = std::ranges::find(answer.precisions, name_of(Precision::kBF16)) != answer.precisions.end();
      const std::string missing = runner() == "tensorrt" ? "" : missing_in_onnxruntime(error.what(), has_bf16);
      if (missing.empty()) throw;
      throw unsupported(
          "[verify] --runner {}: expected ONNX Runtime to run the typed model, {}; try a newer release of it, --runner "
          "{}, or none, which emulates the answer",
          runner(), missing, runner() == "onnxrt" ? "onnxrt-cuda" : "tensorrt");
    }
  }

  static std::vector<TensorsByName> run_all(Runner& runner, const std::vector<TensorMap>& samples) {
    runner.activate();
    std::vector<InputBinding> bindings = runner.input_bindings();
    std::erase_if(bindings, [](const InputBinding& each) { return each.has_default; });
    std::vector<TensorsByName> outputs;
    for (const TensorMap& sample : samples) {
      check_interrupted();
      outputs.push_back(by_name(runner.infer(adapt_inputs(sample, bindings))));
    }
    runner.deactivate();
    return outputs;
  }

  std::unique_ptr<Runner> make_runner(const fs::path& file, const std::vector<TensorMap>& samples,
                                      ScriptHost& host) const {
    if (runner() == "tensorrt") {
      TensorRTOptions options;
      options.strongly_typed = true;
      for (const NamedTensor& input : samples.front()) {
        TensorRTOptions::InputProfile profile{input.name, input.tensor.shape(), input.tensor.shape(),
                                              input.tensor.shape()};
        for (const TensorMap& sample : samples)
          if (const Tensor* tensor = find_tensor(sample, input.name);
              tensor != nullptr && tensor->shape().size() == profile.min.size())
            for (std::size_t d = 0; d < profile.min.size(); ++d) {
              profile.min[d] = std::min(profile.min[d], tensor->shape()[d]);
              profile.max[d] = std::max(profile.max[d], tensor->shape()[d]);
            }
        options.profile.push_back(std::move(profile));
      }
      return make_tensorrt_runner(file, options);
    }
    OnnxRuntimeOptions options;
    options.threads = config_.num_threads();
    if (onnx_.external_data_dir) options.external_data_dir = *onnx_.external_data_dir;
    if (runner() == "onnxrt-cuda") options.providers = {"cuda", "cpu"};
    return make_onnxruntime_runner(file, options, host.data_worker());
  }

  static std::string text_of(const Judgement& judgement) {
    std::string text = fmt::format("{:.4g} {} the tolerance", judgement.used, judgement.passed() ? "of" : "times");
    if (!judgement.worst_output.empty())
      text += fmt::format(", {:.4g} at output '{}' of sample {}", judgement.value, judgement.worst_output,
                          judgement.worst_sample);
    if (!judgement.problem.empty()) text += " (" + judgement.problem + ")";
    return text;
  }

  int report(const AnswerFile& answer, std::size_t samples, const Judgement& predicted,
             const std::optional<Judgement>& real) const {
    const Judgement& judged = real ? *real : predicted;
    const bool passed = judged.passed();
    std::string line = fmt::format("{}: {}", counted(samples, "sample"), text_of(judged));
    if (real) {
      line += fmt::format("; predicted {:.4g}", predicted.used);
      if (predicted.used > 0) line += fmt::format(", real / predicted {:.3g}", real->used / predicted.used);
    }
    const std::string text = fmt::format("The answer {} on {}: {}", passed ? "holds" : "does not hold", place(), line);
    log(passed ? LogLevel::kInfo : LogLevel::kError, text);
    if (real && passed && !predicted.passed())
      log_warning(
          "[verify] The emulation fails on these samples ({}): it rounds each value that the typed model stores in a "
          "low type, and {} keeps some of them in float32. An engine may round as the emulation does; try a search "
          "with these samples",
          text_of(predicted), place());
    if (json_) save_json(answer, samples, judged, predicted);
    return passed ? 0 : 1;
  }

  static nlohmann::ordered_json to_json(const Judgement& judgement) {
    // Infinity is no JSON.
    const auto number = [](double value) {
      return std::isfinite(value) ? nlohmann::ordered_json(value) : nlohmann::ordered_json(nullptr);
    };
    nlohmann::ordered_json outputs = nlohmann::ordered_json::array();
    for (const Judgement::OutputError& each : judgement.outputs)
      outputs.push_back({{"output", each.output},
                         {"used", number(each.used)},
                         {"value", number(each.value)},
                         {"sample", each.sample}});
    nlohmann::ordered_json json{{"used", number(judgement.used)},
                                {"value", number(judgement.value)},
                                {"worst_output", judgement.worst_output},
                                {"worst_sample", judgement.worst_sample}};
    if (!judgement.problem.empty()) json["problem"] = judgement.problem;
    json["outputs"] = std::move(outputs);
    return json;
  }

  void save_json(const AnswerFile& answer, std::size_t samples, const Judgement& judged,
                 const Judgement& predicted) const {
    nlohmann::ordered_json json{{"format", "ulpscope-verify"},
                                {"version", 1},
                                {"model", {{"path", *model_.model}, {"hash", answer.model_hash}}},
                                {"answer", *answer_path_},
                                {"runner", place()},
                                {"samples", samples},
                                {"golden", golden_ ? "file" : golden_origin_},
                                {"passed", judged.passed()},
                                {"error", to_json(judged)},
                                {"predicted", to_json(predicted)}};
    if (float32_) json["float32"] = to_json(*float32_);
    const std::string text = json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
    if (*json_ == "-") {
      fmt::print("{}", text);
      return;
    }
    const WritingFile writing;
    write_file(*json_, text);
    log_info("Saving to " + *json_);
  }

  ModelArgs model_;
  OnnxLoadArgs onnx_;
  TrtConfigArgs config_;
  TrtNetworkArgs network_;
  DataLoaderArgs data_;
  PythonLimitArgs limits_;
  CriterionArgs criterion_;
  ComparisonArgs comparison_;
  AnswerSetArgs set_;
  std::vector<std::string> answer_;
  std::optional<std::string> answer_path_, typed_, golden_, json_, runner_;
  std::string golden_origin_ = "ulpscope";
  std::optional<Judgement> float32_;  ///< What the runner makes of the model in float32, against what ulpscope does.
};

}  // namespace

std::unique_ptr<Tool> make_verify_tool() { return std::make_unique<VerifyTool>(); }

}  // namespace ulpscope::cli
