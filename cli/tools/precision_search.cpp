#include "tools/precision_search.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cmath>

#include "args/criterion.h"
#include "args/search.h"
#include "calibration/calibration_cache.h"
#include "console.h"
#include "core/file.h"
#include "engine/assign.h"
#include "interrupt.h"
#include "precision/answer_json.h"
#include "precision/answer_text.h"
#include "precision/fingerprint.h"
#include "precision/journal.h"
#include "precision/repair.h"
#include "precision/search.h"
#include "precision/trials.h"
#include "tools/layer_choice.h"
#include "tools/precision_setup.h"
#include "tools/search_answer.h"
#include "tools/search_data.h"
#include "tools/typed_model.h"
#include "ulpscope/error.h"
#include "ulpscope/log.h"

namespace ulpscope::cli {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

/// A user's script that Ctrl-C ends is no failure of the script: the search shall hand over what it has.
class InterruptibleCriterion : public Criterion {
 public:
  explicit InterruptibleCriterion(const Criterion& inner) : inner_(inner) {}
  std::string description() const override { return inner_.description(); }
  Judgement judge(std::span<const TensorMap> golden, std::span<const TensorMap> candidate) const override {
    try {
      return inner_.judge(golden, candidate);
    } catch (const Error&) {
      if (interrupted()) throw SearchInterrupted("Ctrl-C");
      throw;
    }
  }
  Sensitivity sensitivity() const override { return inner_.sensitivity(); }
  double atol(const std::string& output) const override { return inner_.atol(output); }
  double rtol(const std::string& output) const override { return inner_.rtol(output); }
  double threshold(const std::string& output) const override { return inner_.threshold(output); }
  bool judges(const std::string& output) const override { return inner_.judges(output); }

 private:
  const Criterion& inner_;
};

std::string duration(double seconds) {
  if (seconds < 90) return fmt::format("{:.0f} s", std::max(1.0, seconds));
  return fmt::format("{:.0f} min", seconds / 60);
}

/// The line that a terminal shows while the search goes on.
class ProgressLine {
 public:
  explicit ProgressLine(double time_limit) : time_limit_(time_limit) {}

  void show(const SearchProgress& now) {
    if (now.stage != stage_) {
      stage_ = now.stage;
      stage_start_ = Clock::now();
    }
    std::string text = now.stage;
    double left = -1;
    if (now.all > 0) {
      constexpr int kWidth = 20;
      const int filled = std::clamp(kWidth * now.done / now.all, 0, kWidth);
      text += fmt::format(" [{}{}] {}/{}", std::string(static_cast<std::size_t>(filled), '#'),
                          std::string(static_cast<std::size_t>(kWidth - filled), '.'), now.done, now.all);
      if (now.done > 0) left = seconds_since(stage_start_) * (now.all - now.done) / now.done;
    }
    text += fmt::format(" | {} trial(s)", now.trials);
    if (now.best >= 0) text += fmt::format(", best: {} layer(s)", now.best);
    if (time_limit_ > 0) {
      const double limit_left = std::max(0.0, time_limit_ - seconds_since(start_));
      left = left < 0 ? limit_left : std::min(left, limit_left);
    }
    text += fmt::format(" | {}", duration(seconds_since(start_)));
    if (left >= 0) text += fmt::format(", {} {} left", time_limit_ > 0 ? "at most" : "about", duration(left));
    progress_.show(text);
  }

 private:
  double time_limit_;
  Progress progress_;
  std::string stage_;
  Clock::time_point start_ = Clock::now(), stage_start_ = Clock::now();
};

class PrecisionSearchTool : public Tool {
 public:
  std::string name() const override { return "precision search"; }
  std::string summary() const override { return "Find the layers that need more precision, with reasons."; }
  std::string description() const override {
    return summary() +
           "\n\n    ulpscope precision search MODEL --fp16 --load-inputs FILE... [options...]\n\n"
           "Predicts how much each layer's rounding moves the outputs, searches the smallest (or cheapest) set of\n"
           "layers to keep in higher precision, and checks it on samples that the search did not see. The exit status\n"
           "is 0 if a set was found, 1 if none was (what is known is saved all the same) or if something failed, 2 "
           "for\n"
           "a command line that does not fit, 130 after Ctrl-C, which shows the best set so far.";
  }
  bool announces() const override { return true; }

  void declare(OptionTable& table) override {
    search_.declare(table);
    criterion_.declare(table);
    table.section("Golden results", "what outputs are compared with.");
    options_.declare_search(table);
    options_.model.declare(table, /*required=*/true);
    options_.onnx.save_help =
        "Write the strongly typed model of the answer, checked as `convert` does; nothing if no set was found";
    options_.onnx.declare(table);
    options_.config.declare(table, "obey");
    options_.network.declare(table, options_.config.strongly_typed, /*engine=*/false);
    options_.data.declare(table);
    options_.comparison.declare(table);
  }

  void check_usage() const override { check_criterion_usage(criterion_, options_.comparison); }

  int run() override {
    SearchOptions search = search_.options();
    enable_ladder(search);
    check_typed_model();
    PrecisionSetup setup = make_precision_setup(options_);
    search.build = setup.build;
    search.build.constraints = ConstraintMode::kObey;
    search.infinities_equal = options_.comparison.infinities_compare_equal;
    place_layers(*setup.network, search);
    const SearchData data = make_search_data(options_, search_, setup);
    const std::unique_ptr<Criterion> judge = make_judge(setup, data);
    const InterruptibleCriterion criterion(*judge);
    check_interrupted();
    if (search_.dry_run) return dry_run(data, criterion, search);
    if (options_.golden) check_golden_outputs(data, criterion, search);

    const std::filesystem::path answer_path = search_.answer_path(options_.model.path());
    Journal journal = open_journal(data, criterion, search);
    const EndsByItself ends_by_itself;
    Answer answer;
    {
      ProgressLine line(search.time_limit);
      answer = search_precisions(data, criterion, search, journal, [&](const SearchProgress& now) {
        if (interrupted()) throw SearchInterrupted("Ctrl-C");
        line.show(now);
      });
    }
    add_requested_layers(*setup.network, search, answer);
    const AnswerFile file = make_file(std::move(answer), setup, search, answer_path);
    show(file);
    save(file, answer_path);
    if (interrupted()) return kInterruptedStatus;
    if (options_.onnx.save_path) save_typed_model(file.answer, setup, search, data.samples);
    return file.answer.verdict == Answer::Verdict::kFound ? 0 : 1;
  }

 private:
  /// A precision to fall back to has to be enabled.
  void enable_ladder(const SearchOptions& search) {
    for (const Precision rung : search.ladder) {
      if (rung == Precision::kFP16 && !options_.config.fp16) {
        options_.config.fp16 = true;
        log_info("--precision float16 enables --fp16: layers without an int8 form run in float16");
      }
      if (rung == Precision::kBF16 && !options_.config.bf16) {
        options_.config.bf16 = true;
        log_info("--precision bfloat16 enables --bf16: layers without an int8 form run in bfloat16");
      }
    }
  }

  /// --keep and --lower, and what --layer-precisions and scripts ask for.
  void place_layers(const Network& network, SearchOptions& search) const {
    search.keep = find_layers(network, search_.keep, "--keep");
    search.lower = find_layers(network, search_.lower, "--lower");
    for (const LayerId id : search.keep)
      if (std::ranges::find(search.lower, id) != search.lower.end())
        throw Error(ErrorCode::kInvalidArgument,
                    fmt::format("[options] layer '{}': --keep and --lower contradict each other; expected it in one of "
                                "them only",
                                network.layer(id).name));
    for (std::size_t l = 0; l < network.layers.size(); ++l) {
      const Layer& layer = network.layers[l];
      const auto id = static_cast<LayerId>(l);
      if (!layer.precision || !has_precision(layer)) continue;
      const bool kept = std::ranges::find(search.keep, id) != search.keep.end();
      const bool highest = precision_from_type(*layer.precision) == search.ladder.back();
      if (kept && !highest)
        throw Error(ErrorCode::kInvalidArgument,
                    fmt::format("[options] layer '{}': --keep and its requested precision {} contradict each other",
                                layer.name, name_of(*layer.precision)));
      if (!kept && !highest && std::ranges::find(search.lower, id) == search.lower.end()) search.lower.push_back(id);
    }
    std::ranges::sort(search.lower);
  }

  std::unique_ptr<Criterion> make_judge(const PrecisionSetup& setup, const SearchData& data) const {
    std::vector<std::string> outputs;
    for (const TensorId id : setup.network->outputs) outputs.push_back(setup.network->tensor(id).name);
    auto criterion = make_criterion(criterion_, options_.comparison, *setup.host, outputs);
    if (data.golden.empty()) return criterion;
    std::vector<ExpectedOutput> expected;
    for (const TensorId id : setup.network->outputs) {
      const TensorInfo& info = setup.network->tensor(id);
      ExpectedOutput output{info.name, info.shape.value_or(Shape{})};
      // Without a declared shape, the rank is whatever the results have.
      if (!info.shape)
        for (const NamedTensor& golden : data.golden.front())
          if (golden.name == info.name) output.shape = Shape(golden.tensor.shape().size(), -1);
      expected.push_back(std::move(output));
    }
    const bool infinities = options_.comparison.infinities_compare_equal;
    check_golden(data.golden, expected, *criterion, infinities, std::ssize(data.samples));
    if (!data.held_out_golden.empty())
      check_golden(data.held_out_golden, expected, *criterion, infinities, std::ssize(data.held_out));
    return criterion;
  }

  /// Golden results of other inputs or another model are found out before anything is searched.
  static void check_golden_outputs(const SearchData& data, const Criterion& criterion, const SearchOptions& search) {
    Progress progress;
    progress.show("running in float32");
    Trials trials(data.network, search.build, data.samples);
    const Judgement exact = criterion.judge(data.golden, trials.run(trials.full_precision(), /*keep=*/false));
    if (!exact.passed(search.margin))
      log_warning(
          fmt::format("Even with every layer in float32 the outputs use {:.4g} of the tolerance against the golden "
                      "results (worst output: '{}'); were these made from other inputs, or is the tolerance too small?",
                      exact.used, exact.worst_output));
  }

  int dry_run(const SearchData& data, const Criterion& criterion, const SearchOptions& search) const {
    Trials trials(data.network, search.build, data.samples);
    const auto spec = trials.specialization();
    std::vector<std::optional<DataType>> requested;
    for (const Layer& layer : data.network->layers) requested.push_back(layer.precision);
    for (const LayerId id : search.keep) requested[static_cast<std::size_t>(id)] = storage_of(search.ladder.back());
    const Assignment low = trials.assign(requested);
    const std::vector<LayerId> candidates = search_candidates(*spec, low, search);
    const auto start = Clock::now();
    trials.run(trials.full_precision(), /*keep=*/false);
    const double forward = seconds_since(start);
    // Prediction and trials together cost some 10 to 30 forwards.
    std::string text = fmt::format(
        "{} of {} layers are candidates\nsamples: {} to search on, {} held out\ntolerance: {}, searched at {:.3g} of "
        "it\nobjective: {}\none float32 forward over the samples: {:.3g} s; the search will take about {:.3g} to "
        "{:.3g} s",
        candidates.size(), data.network->layers.size(), data.samples.size(), data.held_out.size(),
        criterion.description(), search.margin, search.objective == Objective::kCheapest ? "cheapest" : "smallest",
        forward, 10 * forward, 30 * forward);
    std::vector<std::string> names;
    for (const LayerId id : candidates)
      names.push_back(fmt::format("    {} ({}, {})", data.network->layer(id).name, data.network->layer(id).op->name,
                                  ulpscope::name_of(low.precision[static_cast<std::size_t>(id)])));
    constexpr std::size_t kListed = 30;
    const bool everything = log_enabled(LogLevel::kVerbose) || names.size() <= kListed;
    const std::size_t shown = everything ? names.size() : kListed;
    text += fmt::format("\ncandidates:\n{}",
                        fmt::join(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(shown), "\n"));
    if (shown < names.size()) text += fmt::format("\n    ... and {} more (-v shows all)", names.size() - shown);
    log_info(text);
    if (!candidates.empty()) return 0;
    throw Error(ErrorCode::kInvalidArgument,
                "[search] there is nothing to search: no layer would run in lower precision; try --fp16, --bf16 or "
                "--int8, or fewer names in --keep and --lower");
  }

  Journal open_journal(const SearchData& data, const Criterion& criterion, const SearchOptions& search) const {
    const std::filesystem::path path = search_.journal_path(options_.model.path());
    if (path.empty()) return {};
    const Fingerprint fingerprint = make_fingerprint(options_, criterion_, data, criterion, search);
    if (!search_.resume) return Journal::create(path, fingerprint);
    Journal journal = Journal::resume(path, fingerprint);
    if (journal.resumed() > 0)
      log_info(fmt::format("Going on with {} finished trial(s) of '{}'", journal.resumed(), path.string()));
    return journal;
  }

  AnswerFile make_file(Answer answer, const PrecisionSetup& setup, const SearchOptions& search,
                       const std::filesystem::path& answer_path) const {
    AnswerFile file;
    file.program = "ulpscope " ULPSCOPE_VERSION;
    file.model = *options_.model.model;
    file.model_hash = hash_of_file(options_.model.path());
    file.precisions = enabled_precisions(search.build);
    file.fusion = name_of(search.build.fusion);
    file.criterion_options = criterion_words(criterion_, options_.comparison);
    file.inputs = options_.data.load_inputs;
    if (options_.golden) file.golden = *options_.golden;
    file.scales = search.build.scales;
    if (search.build.int8) file.calibration_cache = cache_of(search.build, answer_path);
    file.run_options =
        run_options(options_, answer, *setup.network, search, file.calibration_cache, answer_path.string());
    file.answer = std::move(answer);
    return file;
  }

  /// The file that `run` takes the scales from: that of the options, else one beside the answer.
  std::string cache_of(const BuildOptions& build, const std::filesystem::path& answer_path) const {
    if (options_.config.calibration_cache) return *options_.config.calibration_cache;
    if (build.scales.empty()) return {};
    std::filesystem::path path = answer_path;
    path.replace_extension(".calibration.cache");
    CalibrationCache cache;
    cache.scales = build.scales;
    const WritingFile writing;
    write_calibration_cache(path, cache);
    log_info("Saving calibration cache to " + path.string());
    return path.string();
  }

  void show(const AnswerFile& file) const {
    const std::string text = answer_text(file, log_enabled(LogLevel::kVerbose));
    const std::size_t end = text.find('\n');
    log(file.answer.verdict == Answer::Verdict::kFound ? kFinishLevel : LogLevel::kWarning, text.substr(0, end));
    log_info(text.substr(end + 1));
    const std::string layers = layer_precisions_text(file.answer);
    if (log_enabled(LogLevel::kVerbose) && !layers.empty()) log_verbose("For --layer-precisions:\n" + layers);
  }

  void save(const AnswerFile& file, const std::filesystem::path& answer_path) const {
    const WritingFile writing;
    log_info("Saving answer to " + answer_path.string());
    write_answer(answer_path, file);
    if (!search_.layer_precisions_file) return;
    // An empty file would say that no layer needs more precision.
    if (file.answer.verdict == Answer::Verdict::kUnverified && file.answer.search.outputs.empty()) {
      log_warning(fmt::format("--save-layer-precisions {}: not written, since no set of layers is known to pass yet",
                              *search_.layer_precisions_file));
      return;
    }
    log_info("Saving layer precisions to " + *search_.layer_precisions_file);
    write_file(*search_.layer_precisions_file, layer_precisions_text(file.answer));
  }

  void check_typed_model() const {
    if (!options_.onnx.save_path) return;
    options_.model.check_exists();
    if (options_.model.type() != ModelType::kOnnx)
      throw Error(ErrorCode::kUnsupported,
                  fmt::format("[options] --save-onnx: expected an ONNX model, got '{}'", *options_.model.model));
    check_typed_output(options_.model.path(), "--save-onnx", *options_.onnx.save_path);
  }

  void save_typed_model(const Answer& answer, const PrecisionSetup& setup, const SearchOptions& search,
                        const std::vector<TensorMap>& samples) const {
    if (answer.verdict != Answer::Verdict::kFound) {
      log_warning(
          fmt::format("--save-onnx {}: not written, since no set of layers was found", *options_.onnx.save_path));
      return;
    }
    if (answer.candidates > 0 && std::ssize(answer.kept) == answer.candidates) {
      log_warning(fmt::format("--save-onnx {}: not written, since every layer is kept: the model itself is the answer",
                              *options_.onnx.save_path));
      return;
    }
    OnnxChecks checks;
    Network network = *setup.network;
    BuildOptions build = search.build;
    apply_repairs(network, build.scales, answer.repairs);
    std::vector<std::optional<DataType>> requested;
    for (const Layer& layer : network.layers) requested.push_back(layer.precision);
    for (const KeptLayer& kept : answer.kept)
      if (const LayerId id = network.find_layer(kept.name); id != kNone)
        requested[static_cast<std::size_t>(id)] = storage_of(kept.precision);
    TypedModelRequest request;
    request.model = options_.model.path();
    request.output = *options_.onnx.save_path;
    if (options_.onnx.external_data_dir) request.external_data_dir = *options_.onnx.external_data_dir;
    request.samples = samples;
    request.fusion = build.fusion;
    const auto spec = specialize_for(network, samples.front());
    write_typed_model(*spec, assign_precisions(*spec, build, &requested), answer.repairs, request, &checks);
  }

  PrecisionOptions options_;
  CriterionArgs criterion_;
  SearchArgs search_;
};

}  // namespace

std::unique_ptr<Tool> make_precision_search_tool() { return std::make_unique<PrecisionSearchTool>(); }

}  // namespace ulpscope::cli
