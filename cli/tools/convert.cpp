#include "ulpscope/convert.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>

#include "args/criterion.h"
#include "args/inference.h"
#include "args/network_args.h"
#include "args/runners.h"
#include "compare/data_loader.h"
#include "core/counted.h"
#include "core/file.h"
#include "core/messages.h"
#include "core/parallel.h"
#include "graph/layer_choice.h"
#include "interrupt.h"
#include "onnx/network_view.h"
#include "runtime/engine.h"
#include "tools/answer_options.h"
#include "tools/calibrate.h"
#include "tools/network_setup.h"
#include "tools/other_forms.h"
#include "tools/precision_setup.h"
#include "tools/run_onnx.h"
#include "tools/search_progress.h"
#include "tools/timing_cache.h"
#include "tools/tool.h"
#include "ulpscope/calibrate.h"

namespace ulpscope::cli {
namespace {

/// rel-l2 beyond which few models are of use.
constexpr double kLargeError = 0.1;

class ConvertTool : public Tool {
 public:
  std::string description() const override {
    return R"(

    ulpscope convert model.onnx --fp16 --keep Softmax /encoder/Add_3 -o typed.onnx

Layers that are not kept are lowered; weights are stored in the type of their layer, and casts are placed so
that they are few. Before anything is written, the new model is imported again and has to give, strongly
typed, bit for bit the outputs of the precisions asked for; onnx.checker and ONNX Runtime look at it, too,
where they are installed. With --convert-to trt, an engine is written instead.)";
  }

  void declare(OptionTable& table) override {
    model_.declare(table, /*required=*/true, ModelForms::kNetworks);
    table.section("Output", "what is written.");
    table.value({"-o", "--output"}, output_, "FILE", "Where to write the model");
    table
        .value({"--convert-to"}, convert_to_, "KIND",
               "onnx: the typed model; trt: an engine of ulpscope, for `run` (default: by the extension of FILE); "
               "onnx-like-trt-network: the layers of the network as ONNX nodes without weights, for viewers")
        .choose({"onnx", "trt", "onnx-like-trt-network"});
    table.ours().list({"--io-types"}, io_types_, "NAME:TYPE",
                      "Types of network inputs and outputs: float32, float16 or bfloat16. Others keep theirs");
    declare_precision(table);
    forms_.declare(table);
    table.section("Checks", "what is checked before the file is written.");
    table.ours().flag({"--no-verify"}, no_verify_, "Do not run the new model against the old one");
    table.ours().flag({"--no-python-checks"}, no_python_checks_, "Leave out onnx.checker and ONNX Runtime");
    declare_engine(table);
    data_.declare(table);
    onnx_.declare(table, OnnxLoadArgs::Scope::kChange);
    limits_.declare(table);
    declare_tensorflow_options(table);
  }

  void check_usage() const override {
    if (!output_) throw UsageError("the following arguments are required: -o/--output; try -o FILE.onnx");
  }

  int run() override {
    take_answer(answer_, answer_path_);
    if (answer_path_) read_answer_options();
    check_options();
    load_inputs_of_answer();
    set_num_threads(config_.num_threads());
    // Python starts while the model is read.
    std::shared_ptr<OnnxChecks> checks;
    const auto host = make_script_host(onnx_, limits_);
    if (edits_only()) {
      write_edited(*host);
      return 0;
    }
    if (!to_engine() && !to_view() && !no_python_checks_ && !no_verify_) checks = std::make_shared<OnnxChecks>();
    if (to_view()) network_.layer_precisions = convert_.layer_precisions;
    const NetworkArgs args{model_, onnx_, config_, network_, data_, 0, convert_.answer.has_value()};
    Model model = load_network(args, *host);
    LoadedModel& loaded = ModelAccess::loaded(model);
    if (to_view()) {
      write_view(*loaded.network);
      return 0;
    }
    loaded.checks = std::move(checks);
    loaded.build.assume_lowest = true;
    if (convert_.answer && !config_.calibration_cache) loaded.build.scales = convert_.answer->scales;
    const bool calibrated = loaded.build.enabled.needs_calibration();
    if (convert_.answer && calibrated && convert_.answer->scales.empty() && !config_.calibration_cache &&
        !brings_scales(model))
      log_warning(
          "[convert] --answer {}: it has no scales of activations: they are calibrated on the inputs now, and may be "
          "others than the search had",
          *answer_path_);
    if (!convert_.answer || calibrated) add_scales(args, *host, model);
    for (const auto& [name, type] : parse_types(io_types_, "[options] --io-types", "tensor"))
      convert_.io_types[name] = type;
    SearchProgressLine progress(/*time_limit=*/0);
    convert_.interrupt = [&progress, runs = std::make_shared<int>(0)] {
      check_interrupted();
      progress.show({.stage = fmt::format("converting and checking: run {}", ++*runs), .trials = -1});
    };
    if (to_engine()) {
      const DeferInterrupt defer;
      convert_to_engine(model, *output_, convert_);
      save_builds();
      return 0;
    }
    if (convert_.relax && golden_) convert_.golden = by_name(load_golden(*golden_, *loaded.network).iterations);
    convert_.verify = !no_verify_;
    convert_.python_checks = !no_python_checks_;
    const std::vector<TensorsByName> samples =
        by_name(make_inputs(model_, data_, *host, input_bindings(*loaded.network), default_shapes(*loaded.network)));
    if (repair_only_) {
      repair_only(model, samples);
      return 0;
    }
    ConvertedModel made;
    {
      const DeferInterrupt defer;
      made = convert(model, *output_, samples, convert_);
    }
    save(made);
    return judge(made, samples.size());
  }

 private:
  void declare_precision(OptionTable& table) {
    table.section("Precision", "which layers compute in which type.");
    table.ours().value({"--answer"}, answer_path_, "FILE",
                       "The answer of `precision search`: types, kept layers, clamped constants and fusion");
    table.further_positional("ANSWER", answer_, "The same as --answer ANSWER");
    set_.declare(table);
    table.flag({"--fp16"}, config_.allow(Precision::kFP16), "Lower layers to float16");
    table.flag({"--bf16"}, config_.allow(Precision::kBF16), "Lower layers to bfloat16");
    // By QuantizeLinear and DequantizeLinear; other layers have --fp16 or --bf16, if given.
    config_.declare_elements(table);
    table.value({"--calibration-cache"}, config_.calibration_cache, "FILE",
                "Scales for int8. Read if the file is there and not empty; else made by calibration with the inputs, "
                "and written");
    table.value({"--calib-base-cls", "--calibration-base-class"}, config_.calib_base_cls, "NAME",
                "How int8 is calibrated: IInt8EntropyCalibrator2 (default; short: entropy), IInt8EntropyCalibrator, "
                "IInt8MinMaxCalibrator (max) or IInt8LegacyCalibrator (percentile)");
    table.value({"--quantile"}, config_.quantile, "Q",
                "For IInt8LegacyCalibrator: the quantile of the magnitudes that is the largest (default: 0.99999)");
    table.ours().list({"--keep"}, convert_.keep, "NAME",
                      "Layers that stay in float32: names of layers or nodes, operators (Softmax), patterns");
    table.ours().list({"--lower"}, convert_.lower, "NAME",
                      "Lower these alone, but for those of --keep, and keep all others");
    table.list({"--layer-precisions"}, convert_.layer_precisions, "LAYER:TYPE", kLayerPrecisionsHelp);
    table.ours().list(
        {"--clamp-constants"}, network_.clamp_constants, "NAME[:LIMIT]",
        "Limit the magnitudes of these constants, such as attention masks of -3.4e38 that float16 cannot hold "
        "(default limit: 32752, half of its largest value)");
    table.ours()
        .value({"--fusion"}, config_.fusion, "LEVEL",
               "The level of fusion that the results are the same at: decides whether BatchNormalization is multiplied "
               "into convolutions (default: full)")
        .choose({"none", "pointwise", "full"});
    config_.declare_accumulation(table);
    config_.declare_attention(table);
    table.ours().value(
        {"--target"}, config_.target, "GPU",
        "The GPU whose costs count, for --relax and for engines (default: the GPU of --backend cuda, else l4), "
        "or a file of `target measure`");
    config_.declare_backend(table);
    table.ours().value({"--threads"}, config_.threads, "N", "Threads (default: one per core)");
    config_.declare_memory_limit(table);
    table.ours().flag({"--repair-only"}, repair_only_,
                      "Lower nothing: write the float32 model whose float16 is safe. Constants beyond float16 are "
                      "clamped, and regions hold their values times powers of two, as long as outputs keep every bit. "
                      "With --answer: the repairs of the answer");
    table.ours().flag(
        {"--bias-correction"}, convert_.bias_correction,
        "For int8: biases take the mean error of the outputs of their products on the inputs, where that brings "
        "the outputs of the model nearer to float32. The file computes other values in float32 then");
    declare_relax(table);
  }

  bool lowers() const { return !config_.precisions().empty(); }
  /// Other outputs, float16 throughout, weights elsewhere: as Polygraphy's convert, no layer gets a precision.
  bool edits_only() const { return copies() && !lowers() && !repair_only_ && !to_engine() && !to_view(); }
  bool copies() const {
    const bool to_onnx = std::filesystem::path(output_.value_or("")).extension() == ".onnx" && !asks_for_types();
    return onnx_.edits() || onnx_.external_data_dir || convert_to_ == "onnx" || to_onnx;
  }
  /// Options of typed models, which mean nothing for a copy.
  bool asks_for_types() const {
    return answer_path_ || convert_.relax || convert_.bias_correction || forms_.any() || !convert_.keep.empty() ||
           !convert_.lower.empty() || !convert_.layer_precisions.empty() || !io_types_.empty() ||
           !network_.clamp_constants.empty();
  }

  /// The network as a viewer of ONNX files shows it.
  void write_view(const Network& network) const {
    const WritingFile writing;
    write_file(*output_, network_as_onnx(network));
    log_info("Saving the network to " + *output_);
  }

  void save_builds() const {
    if (!config_.save_tactics && !config_.save_timing_cache) return;
    const auto engine = Engine::load(*output_, config_.build_options(model_));
    if (config_.save_timing_cache) save_timing_cache(*config_.save_timing_cache, *engine);
    if (!config_.save_tactics) return;
    log_info("Saving tactic replay to " + *config_.save_tactics);
    const WritingFile writing;
    write_file(*config_.save_tactics, engine->tactic_replay_json());
  }

  void write_edited(ScriptHost& host) {
    RunOptions options;
    options.model = model_;
    options.onnx = onnx_;
    options.onnx.save_path = *output_;
    if (!convert_to_ && !onnx_.edits() && !onnx_.external_data_dir)
      log_info("No layer is lowered: the model is copied; try --fp16, --bf16 or --int8 for a typed model");
    std::optional<TemporaryFolder> folder;
    prepare_onnx(options, host, folder);
  }

  std::vector<std::pair<std::string, Shape>> default_shapes(const Network& network) const {
    if (!data_.generates()) return {};
    return fitting_shapes(network, model_);
  }

  /// What the lower types cost; 4 where the checks saw nothing that can be judged.
  int judge(const ConvertedModel& made, std::size_t samples) const {
    if (!made.error) return 0;
    const Judgement& error = *made.error;
    if (!error.problem.empty() || !std::isfinite(error.value)) {
      log_error(
          "[convert] The check says nothing: {}. The model is written; try other inputs (--load-inputs, "
          "--input-shapes), or, where float32 itself is finite, `precision search`, which repairs what leaves the "
          "range",
          error.problem.empty() ? "outputs are not finite" : error.problem);
      return kUnjudged;
    }
    if (error.outputs.empty()) return 0;
    const std::string text = fmt::format("Error against float32 on {}: rel-l2 {:.3g} at output '{}'",
                                         counted(samples, "sample"), error.value, error.worst_output);
    if (error.value > kLargeError)
      log_warning("[convert] {}; `precision search` finds the layers that need more precision", text);
    else
      log_info(text);
    return 0;
  }

  void repair_only(const Model& model, const std::vector<TensorsByName>& samples) const {
    RepairedModel made;
    {
      const DeferInterrupt defer;
      made = repair(model, *output_, samples,
                    {.answer = convert_.answer,
                     .verify = !no_verify_,
                     .python_checks = !no_python_checks_,
                     .interrupt = check_interrupted});
    }
    for (const Repair& each : made.repairs) fmt::print("{} '{}': {}\n", kind_of(each), each.name, each.text);
    for (const std::string& sentence : made.beyond) fmt::print("{}\n", sentence);
    fmt::print("{}: {} changed, {} added\n", counted(std::ssize(made.repairs), "repair"),
               counted(made.constants, "constant"), counted(made.inserted, "layer"));
  }

  void check_repair_only() const {
    if ((lowers() && !answer_path_) || convert_.relax || !convert_.keep.empty() || !convert_.lower.empty() ||
        !convert_.layer_precisions.empty() || !io_types_.empty() || save_answer_ || forms_.any())
      throw invalid_argument(
          "[options] --repair-only: it writes a float32 model, so expected no types and no other forms; try it alone "
          "or with an answer, and convert what it writes");
    if (to_engine()) throw invalid_argument("[options] --repair-only: expected a model to write, got an engine");
    if (data_.generates() && !answer_path_)
      log_warning("[repair] The ranges are those of random numbers, since no inputs were given; try --load-inputs");
  }

  void declare_relax(OptionTable& table) {
    table.section("Less time", "what --relax may raise.");
    table.ours().flag(
        {"--relax"}, convert_.relax,
        "Other layers may stay in float32, too, where that makes the model faster: casts and broken fusions cost more "
        "than some layers gain. The outputs are held against the tolerance of the answer, or of the options below, "
        "first");
    table.ours().value(
        {"--golden"}, golden_, "FILE",
        "Results to compare with (default: those that the answer was found with, or the model in float32)");
    table.ours().value({"--save-answer"}, save_answer_, "FILE",
                       "With --answer: the answer with the layers that --relax raised");
    table.list({"--rtol", "--rel-tol"}, comparison_.rtol, "[NAME:]X", "For --relax: relative tolerance");
    table.list({"--atol", "--abs-tol"}, comparison_.atol, "[NAME:]X", "For --relax: absolute tolerance");
    criterion_.declare(table);
  }

  /// What Polygraphy's convert has for engines.
  void declare_engine(OptionTable& table) {
    table.section("Engine", "what an engine is built for.");
    config_.declare_profiles(table);
    table.flag({"--tf32"}, config_.allow(Precision::kTF32), "Lower layers to tf32");
    table.words({"--precision-constraints"}, Arity::kOne, "MODE", "Whether requested layer precisions hold")
        .choose({"prefer", "obey", "none"})
        .ignore("`convert` obeys them");
    config_.declare_builder(table);
    TrtNetworkArgs::declare_parser(table);
    table.section("TensorRT Network Loading", "the network that the engine is built from.");
    network_.declare_outputs(table);
    network_.declare_types(table);
    TrtNetworkArgs::declare_typing(table, config_.strongly_typed);
  }

  /// Options of networks and engines, of which a typed model says nothing.
  void check_typed_model() const {
    const std::pair<bool, const char*> given[] = {
        {!answer_path_ && config_.precisions().has(Precision::kTF32), "--tf32"},
        {config_.strongly_typed, "--strongly-typed"},
        {config_.config_script.has_value(), "--trt-config-script"},
        {config_.config_postprocess_script.has_value(), "--trt-config-postprocess-script"},
        {config_.save_tactics.has_value(), "--save-tactics"},
        {config_.load_tactics.has_value(), "--load-tactics"},
        {config_.save_timing_cache.has_value(), "--save-timing-cache"},
        {!network_.outputs.empty(), "--trt-outputs"},
        {!network_.exclude_outputs.empty(), "--trt-exclude-outputs"},
        {!network_.outputs_by_type.empty(), "--trt-outputs-by-type"},
        {!network_.tensor_dtypes.empty(), "--tensor-dtypes"},
        {network_.all_tensor_dtypes.has_value(), "--all-tensor-dtypes"},
        {!network_.postprocess_scripts.empty(), "--trt-network-postprocess-script"}};
    for (const auto& [is_given, option] : given)
      if (is_given)
        throw invalid_argument(
            "[options] {}: expected an engine to write, got a typed model; try -o FILE.engine, or --convert-to trt",
            option);
  }

  bool to_view() const { return convert_to_ == "onnx-like-trt-network"; }
  bool to_engine() const {
    if (convert_to_) return *convert_to_ == "trt";
    const std::string extension = std::filesystem::path(output_.value_or("")).extension().string();
    return extension == ".plan" || extension == ".engine";
  }

  void read_answer_options() {
    convert_.answer = read_answer_set(*answer_path_, set_);
    const AnswerFile& answer = *convert_.answer;
    load_as(answer, config_);
    if (answer.answer.verdict != Answer::Verdict::kFound)
      log_warning("[convert] --answer {}: the search did not end with a set that passes everywhere: {}", *answer_path_,
                  answer.answer.message);
  }

  /// The files that the search read, where nothing is said about inputs: a network with dynamic dimensions need not
  /// work with generated ones.
  void load_inputs_of_answer() {
    const bool ranged = !data_.generates() || !data_.val_range.empty();
    const bool given = ranged || data_.seed || data_.iterations || !model_.input_shapes.empty();
    const auto& inputs = convert_.answer ? convert_.answer->inputs : std::vector<std::string>();
    std::error_code ignored;
    const auto missing =
        std::ranges::find_if(inputs, [&](const auto& f) { return !std::filesystem::exists(f, ignored); });
    if (!given && missing != inputs.end())
      log_warning(
          "[convert] --answer {}: '{}', which the search read inputs from, is not there: generated inputs are used; "
          "try --load-inputs",
          *answer_path_, *missing);
    else if (!given)
      data_.load_inputs = inputs;
    if (!convert_.relax || ranged) return;
    // The tolerance holds for these alone.
    data_.load_inputs = inputs;
    if (data_.generates())
      log_warning(
          "[convert] --relax: the samples are random numbers, since no inputs were given; what holds for them says "
          "little about real data; try --load-inputs");
  }

  void check_options() {
    if (save_answer_ && !answer_path_)
      throw invalid_argument("[options] --save-answer: expected --answer too, which it is made from");
    const bool tolerance = tolerance_given(criterion_, comparison_);
    if (!convert_.relax && (golden_ || tolerance))
      throw invalid_argument("[options] --golden and tolerances: expected --relax too, which is held against them");
    convert_.criterion = criterion_options(criterion_, comparison_);
    if (!tolerance && !golden_ && convert_.answer && !convert_.answer->golden.empty())
      golden_ = convert_.answer->golden;
    model_.check_exists();
    const bool script = model_.type() == ModelType::kNetworkScript && (to_engine() || to_view());
    if (model_.type() != ModelType::kOnnx && !script)
      throw unsupported("[model] '{}': expected an ONNX model to convert, got {}", *model_.model,
                        model_.type() == ModelType::kEngine
                            ? "an engine, whose precisions are fixed"
                            : "a network script; try -o FILE.engine, which can be built of one");
    if (!to_engine() && !to_view()) check_typed_model();
    model_.check_not_replaced("-o", *output_);
    data_.warn_of_unused();
    limits_.check();
    if (data_.iterations && *data_.iterations < 1)
      throw invalid_argument("[options] --iterations: expected 1 or more, got {}", *data_.iterations);
    if (repair_only_) return check_repair_only();
    if ((set_.objective || set_.trial) && !answer_path_)
      throw invalid_argument("[options] --{}: expected --answer, whose sets it chooses from",
                             set_.objective ? "objective" : "trial");
    if (to_engine() || to_view()) {
      if (convert_.relax) throw invalid_argument("[options] --relax: expected a typed model to write, got an engine");
      if (forms_.any())
        throw invalid_argument(
            "[options] --save-layer-precisions, --save-postprocess-script, --save-exclusions and --print-commands: "
            "expected a typed model to write, got an engine; try -o FILE.onnx");
      return;
    }
    if (edits_only()) return;
    if (onnx_.edits())
      throw invalid_argument(
          "[options] --onnx-outputs, --fp-to-fp16 and --save-external-data: expected no types of layers with them; try "
          "convert without --fp16, --bf16 and --int8 first, and convert what it writes");
    if (lowers()) return;
    if (!asks_for_types())
      throw invalid_argument(
          "Could not automatically determine model type based on output path: {}; try --convert-to, -o FILE.onnx or -o "
          "FILE.engine, or --fp16, --bf16 or --int8 for a typed model",
          *output_);
    throw invalid_argument(
        "[options] expected a type to lower layers to, got none; try --fp16, --bf16, --int8, or --formats with the "
        "names of those that layers are to have");
  }

  /// What else is asked for, once the model is written.
  void save(const ConvertedModel& made) const {
    const WritingFile writing;
    if (save_answer_) {
      log_info("Saving answer to " + *save_answer_);
      write_answer(*save_answer_, *made.answer);
    }
    forms_.save(made, convert_.answer ? &*convert_.answer : nullptr, *model_.model, *output_);
  }

  ModelArgs model_;
  OnnxLoadArgs onnx_;
  TrtConfigArgs config_;
  TrtNetworkArgs network_;
  DataLoaderArgs data_;
  PythonLimitArgs limits_;
  ConvertOptions convert_;
  CriterionArgs criterion_;
  ComparisonArgs comparison_;
  AnswerSetArgs set_;
  std::vector<std::string> answer_, io_types_;
  std::optional<std::string> answer_path_, output_, convert_to_, golden_, save_answer_;
  OtherForms forms_;
  bool no_verify_ = false, no_python_checks_ = false, repair_only_ = false;
};

}  // namespace

std::unique_ptr<Tool> make_convert_tool() { return std::make_unique<ConvertTool>(); }

}  // namespace ulpscope::cli
