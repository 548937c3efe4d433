#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <optional>
#include <tuple>

#include "args/criterion.h"
#include "args/search.h"
#include "compare/array_files.h"
#include "core/file.h"
#include "core/messages.h"
#include "engine/option_names.h"
#include "engine/target.h"
#include "interrupt.h"
#include "precision/lowest.h"
#include "tools/network_setup.h"
#include "tools/precision_setup.h"
#include "tools/search_progress.h"
#include "tools/target_measure.h"
#include "tools/tool.h"
#include "ulpscope/answer.h"
#include "ulpscope/calibrate.h"
#include "ulpscope/convert.h"
#include "ulpscope/error.h"
#include "ulpscope/log.h"
#include "ulpscope/search.h"

namespace ulpscope::cli {
namespace {

/// The found answer at this path; nothing where there is none.
std::optional<AnswerFile> found_answer(const std::filesystem::path& path) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored)) return std::nullopt;
  try {
    AnswerFile file = read_answer(path);
    if (file.answer.verdict == Answer::Verdict::kFound) return file;
  } catch (const Error&) {  // No answer, or a damaged one.
  }
  return std::nullopt;
}

auto question_of(const AnswerFile& file) {
  return std::tie(file.answer.criterion, file.answer.objective, file.precisions, file.fusion, file.inputs, file.golden);
}

/// Why what is there stays; empty: it may be replaced.
std::string why_it_stays(const std::filesystem::path& path, const AnswerFile& file, bool named_by_user) {
  const std::optional<AnswerFile> there = found_answer(path);
  if (!there) return "";
  if (file.answer.verdict != Answer::Verdict::kFound)
    return fmt::format("holds a found answer, and this one is '{}'", name_of(file.answer.verdict));
  if (there->model_hash != file.model_hash || there->external_hash != file.external_hash)
    return fmt::format("is the answer for another model, '{}'", there->model);
  if (!named_by_user && question_of(*there) != question_of(file))
    return fmt::format("is the answer of another search ({})", there->answer.criterion);
  return "";
}

/// `file.path`, or another name beside it where there is a found answer that stays, which the log says then: one that
/// was not found replaces none, nor does the answer for another model. Where the user did not name the path, the same
/// holds for the answer to another question (other inputs, another tolerance or objective).
std::filesystem::path place_for(const AnswerFile& file, bool named_by_user) {
  std::filesystem::path path = file.path;
  std::string why;
  const bool found = file.answer.verdict == Answer::Verdict::kFound;
  for (int number = found ? 2 : 1;; ++number) {
    const std::string reason = why_it_stays(path, file, named_by_user);
    if (reason.empty()) break;
    if (why.empty()) why = reason;
    std::string label = found ? "" : "." + std::string(name_of(file.answer.verdict));
    if (number > 1) label += fmt::format(".{}", number);
    path = file.path;
    path.replace_filename(file.path.stem().string() + label + file.path.extension().string());
  }
  if (!why.empty())
    log_warning("'{}' stays, since it {}: this one goes to '{}'", file.path.string(), why, path.string());
  return path;
}

class PrecisionSearchTool : public Tool {
 public:
  std::string description() const override {
    return "\n\n    ulpscope precision search MODEL --fp16 --load-inputs FILE... [options...]\n\n"
           "Predicts how much each layer's rounding moves the outputs, searches the layers to keep in higher "
           "precision\n"
           "with which the network is fastest (--objective: or the fewest, or the cheapest), and checks them on "
           "samples\n"
           "that the search did not see. Without a tolerance it takes rel-l2 with a threshold of 5e-3 for fp16 and "
           "tf32,\n"
           "3e-2 for bf16, 5e-2 for int8 and fp8, and warns. The exit status is 0 if a set was found, 1 if none was "
           "(what\n"
           "is known is saved all the same) or if something failed, 2 for a command line that does not fit, 130 after\n"
           "Ctrl-C, which shows the best set so far.";
  }
  bool announces() const override { return true; }

  void declare(OptionTable& table) override {
    search_.declare(table, options_.config);
    criterion_.declare(table);
    table.section("Trials", "what the outputs of a trial are compared with, and how it runs.");
    options_.declare_search(table);
    options_.model.declare(table, /*required=*/true, ModelForms::kNetworks);
    options_.onnx.save_help =
        "Write the strongly typed model of the answer, checked as `convert` does; nothing if no set was found";
    options_.onnx.declare(table);
    options_.config.declare(table, "obey");
    options_.network.declare(table, options_.config.strongly_typed, /*engine=*/false);
    options_.data.declare(table);
    options_.comparison.declare(table);
  }

  void check_usage() const override { check_criterion_usage(criterion_, options_.comparison, !search_.bits); }

  int run() override {
    const auto start = std::chrono::steady_clock::now();
    SearchOptions search = search_.options();
    search.criterion = criterion_options(criterion_, options_.comparison, !search_.bits);
    enable_ladder(search);
    check_typed_model();
    // What prediction, trials and the held-out samples need is most of a search.
    constexpr double kCalibrationShare = 0.25;
    options_.calibration_seconds = kCalibrationShare * search.time_limit;
    options_.measures_elsewhere = true;  // By the search, on its samples.
    options_.needs_golden = [thresholds = search.criterion.threshold](const std::string& output) {
      return thresholds.empty() || thresholds.find(output) != nullptr;
    };
    PrecisionSetup setup = make_precision_setup(options_);
    ModelAccess::loaded(setup.model).build.constraints = ConstraintMode::kObey;
    const std::vector<TensorsByName> samples = load_samples(setup, search);
    check_interrupted();
    if (options_.config.target == kMeasuredTarget) measure(setup.model, samples.front());
    record(ModelAccess::loaded(setup.model).record);
    if (search_.dry_run) return dry_run(plan_search(setup.model, samples, search), search);

    const std::vector<std::string> precisions = enabled_precisions(ModelAccess::loaded(setup.model).build);
    search.answer_path = search_.answer_path(options_.model.path(), precisions);
    search.journal = search_.journal_path(options_.model.path(), precisions);
    search.resume = search_.resume;
    search.calibration_cache = cache_path(setup.model, search.answer_path);
    search.command = words;
    const DeferInterrupt defer;
    AnswerFile file;
    {
      search.time_spent = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
      SearchProgressLine line(search.time_limit);
      search.progress = [&](const SearchProgress& now) {
        if (interrupted()) throw SearchInterrupted("Ctrl-C");
        line.show(now);
      };
      file = ulpscope::search(setup.model, samples, search);
    }
    file.inputs = options_.data.load_inputs;
    file.golden = options_.golden.value_or("");
    if (!search_.force) move(place_for(file, search_.answer.has_value()), file);
    save_cache(setup.model, file);
    show(file);
    save(file);
    if (interrupted()) return kInterruptedStatus;
    if (options_.onnx.save_path) save_typed_model(file, setup.model, samples);
    return file.answer.verdict == Answer::Verdict::kFound ? 0 : 1;
  }

 private:
  /// A precision to fall back to has to be enabled.
  void enable_ladder(const SearchOptions& search) {
    for (const Precision rung : search.ladder) {
      bool& allowed = options_.config.allow(rung);
      if (allowed || rung == Precision::kFP32) continue;
      allowed = true;
      const std::string_view name = form_of(rung).request();
      log_info("--precision {} enables {}: layers without an int8 form run in {}", name, form_of(rung).flag(), name);
    }
  }

  /// The file of the measured target is beside the answer; a search that goes on takes what it began with.
  void measure(const Model& model, const TensorsByName& sample) {
    BuildOptions& build = ModelAccess::loaded(model).build;
    if (search_.dry_run) {
      log_info("--target measured: nothing is measured in a dry run, which needs no times");
      build.target = kDefaultTarget;
      return;
    }
    const std::filesystem::path answer = search_.answer_path(options_.model.path(), enabled_precisions(build));
    const std::string file = target_beside(answer).string();
    if (search_.resume && std::filesystem::exists(file)) {
      log_info("--target measured: going on with the times of " + file);
    } else {
      log_info("--target measured: measuring this machine and the groups of the model on --backend {}", build.backend);
      measure_target_of(file, model, sample);
    }
    options_.config.target = build.target = file;
  }

  /// What makes the network of the model's file, but for its precisions and clamps.
  void record(BuildRecord& build) const {
    const auto list = [&](const char* option, const std::vector<std::string>& values) {
      if (!values.empty()) build.changes.push_back({option, values});
    };
    const auto value = [&](const char* option, const std::optional<std::string>& text) {
      if (text && !text->empty()) list(option, {*text});
    };
    const TrtConfigArgs& config = options_.config;
    build.target = config.target.value_or("");
    build.external_data_dir = options_.onnx.external_data_dir.value_or("");
    for (const auto& [option, profiles] : {std::pair{"--trt-min-shapes", &config.min_shapes},
                                           {"--trt-opt-shapes", &config.opt_shapes},
                                           {"--trt-max-shapes", &config.max_shapes}})
      for (const std::vector<std::string>& each : *profiles) list(option, each);
    value("--trt-config-script", config.config_script);
    value("--trt-config-postprocess-script", config.config_postprocess_script);
    list("--onnx-outputs", options_.onnx.outputs);
    list("--onnx-exclude-outputs", options_.onnx.exclude_outputs);
    list("--trt-network-postprocess-script", options_.network.postprocess_scripts);
    list("--trt-outputs", options_.network.outputs);
    list("--trt-exclude-outputs", options_.network.exclude_outputs);
    list("--tensor-dtypes", options_.network.tensor_dtypes);
  }

  /// The samples; those that are held out and the golden results go into the options.
  std::vector<TensorsByName> load_samples(PrecisionSetup& setup, SearchOptions& search) const {
    constexpr int kGeneratedSamples = 4;
    std::vector<TensorsByName> samples = by_name(make_samples(options_, setup, kGeneratedSamples));
    if (options_.data.generates())
      log_warning(
          "The samples are random numbers, since no inputs were given. The answer holds for such numbers and says "
          "little about real data; try --load-inputs or --data-loader-script");
    search.hold_out = !search_.no_hold_out;
    for (const std::string& path : search_.hold_out) {
      log_info("Loading held-out input data from " + path);
      std::ranges::move(by_name(ulpscope::load_samples(path, input_bindings(*setup.network))),
                        std::back_inserter(search.held_out));
    }
    if (!search_.hold_out.empty() && search.held_out.empty())
      throw invalid_argument("[data] --hold-out {}: expected inputs of at least one iteration, got none",
                             fmt::join(search_.hold_out, " "));
    if (setup.golden) search.golden = by_name(setup.golden->iterations);
    return samples;
  }

  static int dry_run(const SearchPlan& plan, const SearchOptions& search) {
    std::string text = fmt::format(
        "{} of {} layers are candidates\nsamples: {} to search on, {} held out\ntolerance: {}, searched at {} of "
        "it\nobjective: {}\none float32 forward over the samples: {:.3g} s; the search will take about {:.2g} s",
        plan.candidates.size(), plan.layers, plan.samples, plan.held_out, plan.criterion,
        search.margin > 0 ? fmt::format("{:.3g}", search.margin) : "a share that the data tell",
        name_of(search.objective), plan.forward_seconds, plan.search_seconds);
    std::vector<std::string> names;
    for (const SearchPlan::Candidate& each : plan.candidates)
      names.push_back(fmt::format("    {} ({}, {})", each.name, each.op, name_of(each.low)));
    constexpr std::size_t kListed = 30;
    const bool everything = log_enabled(LogLevel::kVerbose) || names.size() <= kListed;
    const std::size_t shown = everything ? names.size() : kListed;
    text += fmt::format("\ncandidates:\n{}",
                        fmt::join(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(shown), "\n"));
    if (shown < names.size()) text += fmt::format("\n    ... and {} more (-v shows all)", names.size() - shown);
    log_info(text);
    if (!plan.candidates.empty()) return 0;
    throw invalid_argument(
        "[search] there is nothing to search: no layer would run in lower precision; try --fp16, --bf16 or --int8, or "
        "fewer names in --keep and --lower");
  }

  /// The file that `run` takes the scales from: that of the options, else one beside the answer.
  std::filesystem::path cache_path(const Model& model, const std::filesystem::path& answer_path) const {
    if (options_.config.calibration_cache) return *options_.config.calibration_cache;
    return model.scales().empty() ? std::filesystem::path() : cache_beside(answer_path);
  }

  /// The answer to another path, and a cache beside it as well.
  void move(const std::filesystem::path& path, AnswerFile& file) const {
    if (!file.calibration_cache.empty() && !options_.config.calibration_cache)
      file.calibration_cache = cache_beside(path).string();
    file.path = path;
  }

  void save_cache(const Model& model, const AnswerFile& file) const {
    if (file.calibration_cache.empty() || options_.config.calibration_cache) return;
    CalibrationCache cache;
    cache.scales = model.scales();
    const WritingFile writing;
    write_calibration_cache(file.calibration_cache, cache);
    log_info("Saving calibration cache to " + file.calibration_cache);
  }

  void show(const AnswerFile& file) const {
    const std::string lowest = lowest_text(file);
    if (!lowest.empty()) log_info(lowest);
    const std::string text =
        answer_text(file, log_enabled(LogLevel::kVerbose)).substr(lowest.empty() ? 0 : lowest.size() + 1);
    if (const std::string slower = slower_text(file); !slower.empty()) log_warning("[search] " + slower);
    const std::size_t end = text.find('\n');
    log(file.answer.verdict == Answer::Verdict::kFound ? kFinishLevel : LogLevel::kWarning, text.substr(0, end));
    log_info(text.substr(end + 1));
    const std::string layers = layer_precisions_text(file.answer);
    if (log_enabled(LogLevel::kVerbose) && !layers.empty()) log_verbose("For --layer-precisions:\n" + layers);
  }

  void save(const AnswerFile& file) const {
    const WritingFile writing;
    log_info("Saving answer to " + file.path.string());
    write_answer(file.path, file);
    if (!search_.layer_precisions_file) return;
    // An empty file would say that no layer needs more precision.
    if (file.answer.verdict == Answer::Verdict::kUnverified && file.answer.kept.empty() &&
        file.answer.search.outputs.empty()) {
      log_warning("--save-layer-precisions {}: not written, since no set of layers is known to pass yet",
                  *search_.layer_precisions_file);
      return;
    }
    log_info("Saving layer precisions to " + *search_.layer_precisions_file);
    write_file(*search_.layer_precisions_file, layer_precisions_text(file.answer));
  }

  void check_typed_model() const {
    if (!options_.onnx.save_path) return;
    options_.model.check_exists();
    if (options_.model.type() != ModelType::kOnnx)
      throw unsupported("[options] --save-onnx: expected an ONNX model, got '{}'", *options_.model.model);
    options_.model.check_not_replaced("--save-onnx", *options_.onnx.save_path);
  }

  void save_typed_model(const AnswerFile& file, const Model& model, const std::vector<TensorsByName>& samples) const {
    const Answer& answer = file.answer;
    const auto leave_out = [&](const char* why) {
      log_warning("--save-onnx {}: not written, since {}", *options_.onnx.save_path, why);
    };
    if (answer.verdict != Answer::Verdict::kFound) return leave_out("no set of layers was found");
    if (!answer.bits && answer.candidates > 0 && std::ssize(answer.kept) == answer.candidates)
      return leave_out("every layer is kept: the model itself is the answer");
    ConvertOptions options;
    options.answer = file;
    options.interrupt = check_interrupted;
    convert(model, *options_.onnx.save_path, samples, options);
  }

  PrecisionOptions options_;
  CriterionArgs criterion_;
  SearchArgs search_;
};

}  // namespace

std::unique_ptr<Tool> make_precision_search_tool() { return std::make_unique<PrecisionSearchTool>(); }

}  // namespace ulpscope::cli
