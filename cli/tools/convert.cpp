#include "tools/convert.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <memory>

#include "args/data_loader.h"
#include "args/model.h"
#include "args/network_args.h"
#include "args/onnx_load.h"
#include "args/python_limit.h"
#include "compare/data_loader.h"
#include "compare/name_values.h"
#include "convert/convert.h"
#include "core/file.h"
#include "core/parallel.h"
#include "engine/assign.h"
#include "runtime/engine.h"
#include "graph/name_match.h"
#include "interrupt.h"
#include "precision/answer_json.h"
#include "precision/answer_text.h"
#include "precision/fingerprint.h"
#include "runners/onnx_checks.h"
#include "tools/calibrate.h"
#include "tools/layer_choice.h"
#include "tools/network_setup.h"
#include "tools/precision_forms.h"
#include "tools/relax.h"
#include "tools/typed_model.h"
#include "ulpscope/error.h"
#include "ulpscope/log.h"

namespace ulpscope::cli {
namespace {

namespace fs = std::filesystem;

class ConvertTool : public Tool {
 public:
  std::string name() const override { return "convert"; }
  std::string summary() const override { return "Write the strongly typed mixed-precision model."; }
  std::string description() const override {
    return summary() +
           "\n\n    ulpscope convert model.onnx --fp16 --keep Softmax /encoder/Add_3 -o typed.onnx\n\n"
           "Layers that are not kept are lowered; weights are stored in the type of their layer, and casts are placed "
           "so\n"
           "that they are few. Before anything is written, the new model is imported again and has to give, strongly\n"
           "typed, bit for bit the outputs of the precisions asked for; onnx.checker and ONNX Runtime look at it, "
           "too,\n"
           "where they are installed. With --convert-to trt, an engine is written instead.";
  }

  void declare(OptionTable& table) override {
    model_.declare(table, true);
    table.section("Output", "what is written.");
    table.value({"-o", "--output"}, output_, "FILE", "Where to write the model");
    table
        .value({"--convert-to"}, convert_to_, "KIND",
               "onnx: the typed model; trt: an engine of ulpscope, for `run` (default: by the extension of FILE)")
        .choose({"onnx", "trt"});
    table
        .list({"--io-types"}, io_types_, "NAME:TYPE",
              "Types of network inputs and outputs: float32, float16 or bfloat16. Others keep theirs")
        .ours();
    table.section("Precision", "which layers compute in which type.");
    table
        .value({"--answer"}, answer_path_, "FILE",
               "The answer of `precision search`: types, kept layers, clamped constants and fusion")
        .ours();
    table.flag({"--fp16"}, config_.fp16, "Lower layers to float16");
    table.flag({"--bf16"}, config_.bf16, "Lower layers to bfloat16");
    table.flag({"--int8"}, config_.int8,
               "Lower layers to int8, by QuantizeLinear and DequantizeLinear; others to --fp16 or --bf16, if given");
    table.value({"--calibration-cache"}, config_.calibration_cache, "FILE",
                "Scales for int8. Read if the file is there and not empty; else made by calibration with the inputs, "
                "and written");
    table.value({"--calib-base-cls", "--calibration-base-class"}, config_.calib_base_cls, "NAME",
                "How int8 is calibrated: IInt8EntropyCalibrator2 (default; short: entropy), IInt8EntropyCalibrator, "
                "IInt8MinMaxCalibrator (max) or IInt8LegacyCalibrator (percentile)");
    table.number({"--quantile"}, config_.quantile, "Q",
                 "For IInt8LegacyCalibrator: the quantile of the magnitudes that is the largest (default: 0.99999)");
    table
        .list({"--keep"}, choice_.keep, "NAME",
              "Layers that stay in float32: names of layers or nodes, operators (Softmax), patterns")
        .ours();
    table.list({"--lower"}, choice_.lower, "NAME", "Lower these alone, and keep all others").ours();
    table.list({"--layer-precisions"}, choice_.layer_precisions, "LAYER:TYPE",
               "Compute precision of layers: float32, float16, bfloat16 or int8");
    table
        .list({"--clamp-constants"}, network_.clamp_constants, "NAME[:LIMIT]",
              "Limit the magnitudes of these constants, such as attention masks of -3.4e38 that float16 cannot hold "
              "(default limit: 32752, half of its largest value)")
        .ours();
    table
        .value({"--fusion"}, config_.fusion, "LEVEL",
               "The level of fusion that the results are the same at: decides whether BatchNormalization is multiplied "
               "into convolutions (default: full)")
        .choose({"none", "pointwise", "full"})
        .ours();
    table.value({"--target"}, config_.target, "GPU", "For --convert-to trt: the GPU whose costs are reported").ours();
    table.integer({"--threads"}, config_.threads, "N", "Threads (default: one per core)").ours();
    relax_.declare(table);
    table.section("Also written", "other forms of the same choice.");
    table
        .value({"--save-layer-precisions"}, save_layer_precisions_, "FILE",
               "Words for --layer-precisions, one per line")
        .ours();
    table
        .value({"--save-postprocess-script"}, save_script_, "FILE.py",
               "A network postprocess script that sets the precisions in TensorRT up to 10")
        .ours();
    table
        .value({"--save-exclusions"}, save_exclusions_, "FILE.json",
               "nodes_to_exclude of ModelOpt AutoCast, and node_block_list of onnxconverter-common's float16 converter")
        .ours();
    table.flag({"--print-commands"}, print_commands_, "Commands that build the typed model with TensorRT 11").ours();
    table.section("Checks", "what is checked before the file is written.");
    table.flag({"--no-verify"}, no_verify_, "Do not run the new model against the old one").ours();
    table.flag({"--no-python-checks"}, no_python_checks_, "Leave out onnx.checker and ONNX Runtime").ours();
    data_.declare(table);
    onnx_.declare(table, false);
    limits_.declare(table);
  }

  int run() override {
    if (answer_path_) read_answer_options();
    check_options();
    take_inputs_of_answer();
    if (relax_.relax) prepare_relaxing();
    set_num_threads(config_.num_threads());
    // Python starts while the model is read.
    std::unique_ptr<OnnxChecks> checks;
    const auto host = make_script_host(onnx_, limits_);
    if (!to_engine() && !no_python_checks_ && !no_verify_) checks = std::make_unique<OnnxChecks>();
    const NetworkArgs args{model_, onnx_, config_, network_, data_};
    LoadedNetwork loaded = load_network(args, *host);
    if (config_.int8 || network_.repairs) {
      if (answer_path_ && loaded.build.scales.empty() && !config_.calibration_cache)
        loaded.build.scales = answer_.scales;
      add_scales(args, *host, loaded);
    }
    Network& network = *loaded.network;
    auto requested = requested_types(network, choice_);
    for (const KeptLayer& kept : answer_.answer.kept) {
      const LayerId id = network.find_layer(kept.name);
      if (id == kNone) refuse_answer(fmt::format("it keeps the layer '{}', which the model does not have", kept.name));
      auto& type = requested[static_cast<std::size_t>(id)];
      if (type == DataType::kFloat32) continue;  // more is kept than the answer needs
      if (type && *type != storage_of(kept.precision))
        throw Error(ErrorCode::kInvalidArgument,
                    fmt::format("[options] layer '{}': --answer keeps it in {}, but --layer-precisions says {}",
                                kept.name, name_of(storage_of(kept.precision)), name_of(*type)));
      type = storage_of(kept.precision);
    }
    if (answer_path_ && answer_.model_hash != hash_of_file(model_.path()))
      refuse_answer(fmt::format("it was found for '{}' with the hash {}, but the model has the hash {}", answer_.model,
                                answer_.model_hash, hash_of_file(model_.path())));
    loaded.build.assume_lowest = true;
    loaded.build.constraints = ConstraintMode::kObey;
    if (to_engine()) return write_engine(loaded, requested);

    const std::vector<TensorMap> samples = make_samples(network, *host);
    const auto spec = specialize_for(network, samples.front());
    TypedModelRequest request;
    if (relax_.relax) {
      const auto raised = find_layers_to_raise(relax_, loaded.network, loaded.build, samples, *host, *spec, requested);
      for (const LayerId id : raised) {
        requested[static_cast<std::size_t>(id)] = DataType::kFloat32;
        request.raised.push_back(network.layer(id).name);
      }
      add_raised_layers(network, raised, answer_);
    }
    const Assignment assignment = assign_precisions(*spec, loaded.build, &requested);
    request.model = model_.path();
    request.output = *output_;
    if (onnx_.external_data_dir) request.external_data_dir = *onnx_.external_data_dir;
    request.io_types = io_types();
    request.samples = samples;
    request.fusion = loaded.build.fusion;
    request.verify = !no_verify_;
    const Conversion result = write_typed_model(*spec, assignment, repairs(network), request, checks.get());
    print_commands();
    if (relax_.save_answer) {
      const WritingFile writing;
      log_info("Saving answer to " + *relax_.save_answer);
      write_answer(*relax_.save_answer, answer_);
    }
    save_other_forms(network, *spec, result.assignment, requested);
    return 0;
  }

 private:
  bool to_engine() const {
    if (convert_to_) return *convert_to_ == "trt";
    const std::string extension = fs::path(output_.value_or("")).extension().string();
    return extension == ".plan" || extension == ".engine";
  }

  [[noreturn]] void refuse_answer(const std::string& difference) const {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("[convert] --answer {}: expected an answer for '{}', got one for another model: {}",
                            *answer_path_, *model_.model, difference));
  }

  void read_answer_options() {
    answer_ = read_answer(*answer_path_);
    if (!choice_.lower.empty())
      throw Error(ErrorCode::kInvalidArgument,
                  "[options] --answer and --lower: the answer says what is lowered; try --keep to keep more");
    const auto refuse_more = [&](bool given, const char* option) {
      if (given && std::ranges::find(answer_.precisions, option + 2) == answer_.precisions.end())
        throw Error(
            ErrorCode::kInvalidArgument,
            fmt::format("[options] --answer and {}: the answer lowers layers to {} and holds for that alone; try "
                        "a search with {}",
                        option, fmt::join(answer_.precisions, " and "), option));
    };
    refuse_more(config_.fp16, "--fp16");
    refuse_more(config_.bf16, "--bf16");
    refuse_more(config_.int8, "--int8");
    for (const std::string& precision : answer_.precisions) {
      config_.fp16 |= precision == "fp16";
      config_.bf16 |= precision == "bf16";
      config_.int8 |= precision == "int8";
    }
    if (!config_.fusion) config_.fusion = answer_.fusion;
    const auto& repairs = answer_.answer.repairs;
    // Clamps alone have an option of their own, but for int8, where they bring scales down, too.
    const bool whole = std::ranges::any_of(
        repairs, [&](const Repair& r) { return !r.exponents.empty() || (config_.int8 && r.kind == "clamp"); });
    if (whole) network_.repairs = *answer_path_;
    for (const Repair& repair : repairs)
      if (!whole && repair.kind == "clamp")
        network_.clamp_constants.push_back(fmt::format("{}:{}", repair.name, repair.limit));
    if (answer_.answer.verdict != Answer::Verdict::kFound)
      log_warning(fmt::format("[convert] --answer {}: the search did not end with a set that passes everywhere: {}",
                              *answer_path_, answer_.answer.message));
  }

  /// The files that the search read, where nothing is said about inputs: a network with dynamic dimensions need not
  /// work with generated ones.
  void take_inputs_of_answer() {
    const bool given = !data_.generates() || !data_.val_range.empty() || data_.seed || data_.iterations ||
                       !model_.input_shapes.empty();
    if (given || answer_.inputs.empty()) return;
    std::error_code ignored;
    const auto missing = std::ranges::find_if(answer_.inputs, [&](const auto& f) { return !fs::exists(f, ignored); });
    if (missing == answer_.inputs.end())
      data_.load_inputs = answer_.inputs;
    else
      log_warning(
          fmt::format("[convert] --answer {}: '{}', which the search read inputs from, is not there: generated "
                      "inputs are used; try --load-inputs",
                      *answer_path_, *missing));
  }

  /// The tolerance, and the samples of the answer where none are given.
  void prepare_relaxing() {
    if (to_engine())
      throw Error(ErrorCode::kInvalidArgument, "[options] --relax: expected a typed model to write, got an engine");
    if (!choice_.lower.empty())
      throw Error(ErrorCode::kInvalidArgument,
                  "[options] --relax and --lower contradict each other: what --lower names shall be low; try --keep");
    relax_.complete_from(answer_path_ ? &answer_ : nullptr);
    const bool given = !data_.generates() || !data_.val_range.empty();
    if (given) return;
    data_.load_inputs = answer_.inputs;
    if (data_.generates())
      log_warning(
          "[convert] --relax: the samples are random numbers, since no inputs were given; what holds for them says "
          "little about real data; try --load-inputs");
  }

  void check_options() const {
    relax_.check(answer_path_.has_value());
    if (!output_)
      throw Error(ErrorCode::kInvalidArgument, "[options] expected where to write the model, got nothing; try -o FILE");
    model_.check_exists();
    if (model_.type() != ModelType::kOnnx)
      throw Error(ErrorCode::kUnsupported,
                  fmt::format("[model] '{}': expected an ONNX model to convert", *model_.model));
    check_typed_output(model_.path(), "-o", *output_);
    data_.warn_of_unused();
    limits_.check();
    if (data_.iterations && *data_.iterations < 1)
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("[options] --iterations: expected 1 or more, got {}", *data_.iterations));
    if (to_engine()) {
      if (save_layer_precisions_ || save_script_ || save_exclusions_ || print_commands_)
        throw Error(ErrorCode::kInvalidArgument,
                    "[options] --save-layer-precisions, --save-postprocess-script, --save-exclusions and "
                    "--print-commands: expected a typed model to write, got an engine; try -o FILE.onnx");
      return;
    }
    if (!config_.fp16 && !config_.bf16 && !config_.int8)
      throw Error(ErrorCode::kInvalidArgument,
                  "[options] expected a type to lower layers to, got none; try --fp16, --bf16 or --int8");
  }

  std::map<std::string, DataType> io_types() const {
    std::map<std::string, DataType> result;
    for (const std::string& word : io_types_) {
      const auto [name, text] = split_name(word);
      const auto type = data_type_from_name(text);
      if (name.empty() || !type)
        throw Error(ErrorCode::kInvalidArgument,
                    fmt::format("[options] --io-types '{}': expected <name>:<float32, float16 or bfloat16>", word));
      result[name] = *type;
    }
    return result;
  }

  std::vector<TensorMap> make_samples(const Network& network, ScriptHost& host) const {
    std::vector<InputBinding> bindings;
    for (TensorId id : network.inputs) {
      const TensorInfo& info = network.tensor(id);
      bindings.push_back({info.name, info.type, info.shape.value_or(Shape{})});
    }
    std::vector<TensorMap> samples = make_inputs(model_, data_, host, bindings, {});
    if (samples.empty())
      throw Error(ErrorCode::kInvalidArgument, "[convert] expected inputs to check the model with, got none");
    if (!data_.generates())
      for (TensorMap& sample : samples) sample = adapt_inputs(sample, bindings);
    return samples;
  }

  std::vector<Repair> repairs(const Network& network) const {
    std::vector<Repair> result;
    for (const std::string& word : network_.clamp_constants) {
      std::string name = word;
      double limit = 32752.0;
      if (network.find_tensor(name) == kNone && network.find_layer(name) == kNone) {
        const std::size_t colon = word.rfind(':');
        name = word.substr(0, colon);
        limit = std::strtod(word.c_str() + colon + 1, nullptr);
      }
      result.push_back({"clamp", name, limit, ""});
    }
    if (network_.repairs) std::ranges::copy(answer_.answer.repairs, std::back_inserter(result));
    return result;
  }

  void apply_io_types(Network& network) const {
    std::vector<std::string> names;
    for (const auto* ids : {&network.inputs, &network.outputs})
      for (const TensorId id : *ids) names.push_back(network.tensor(id).name);
    const auto expressible = [](DataType type) {
      return type == DataType::kFloat32 || type == DataType::kFloat16 || type == DataType::kBFloat16;
    };
    for (const auto& [name, type] : io_types()) {
      if (std::ranges::find(names, name) == names.end())
        throw Error(ErrorCode::kInvalidArgument,
                    fmt::format("[convert] --io-types: expected an input or output of the network, got '{}'{}", name,
                                did_you_mean(name, names)));
      TensorInfo& info = network.tensor(network.find_tensor(name));
      if (!expressible(info.type) || !expressible(type))
        throw Error(ErrorCode::kInvalidArgument,
                    fmt::format("[convert] --io-types: '{}' is {}, expected a change between float32, float16 and "
                                "bfloat16, got {}",
                                name, name_of(info.type), name_of(type)));
      info.type = type;
    }
  }

  int write_engine(LoadedNetwork& loaded, const std::vector<std::optional<DataType>>& requested) const {
    Network& network = *loaded.network;
    apply_io_types(network);
    for (std::size_t l = 0; l < requested.size(); ++l) network.layers[l].precision = requested[l];
    const auto engine = Engine::build(loaded.network, loaded.build);
    const WritingFile writing;
    engine->save(*output_);
    log_info(fmt::format("Saving engine to {}", *output_));
    return 0;
  }

  void print_commands() const {
    if (!print_commands_) return;
    const std::string typed = shell_word(*output_),
                      engine = shell_word(fs::path(*output_).replace_extension(".engine").string());
    fmt::print("trtexec --onnx={} --stronglyTyped --saveEngine={}\n", typed, engine);
    fmt::print("polygraphy run {} --trt --strongly-typed --onnxrt\n", typed);
  }

  void save_other_forms(const Network& network, const Specialization& spec, const Assignment& assignment,
                        const std::vector<std::optional<DataType>>& requested) const {
    const auto save = [](const std::optional<std::string>& path, const std::string& text) {
      if (!path) return;
      const WritingFile writing;
      write_file(*path, text);
      log_info("Saving to " + *path);
    };
    const auto& done = answer_.answer.repairs;
    const auto changed = std::ranges::count_if(done, [](const Repair& r) { return r.kind != "scale-shift"; });
    if (changed > 0 && (save_layer_precisions_ || save_script_ || save_exclusions_))
      log_warning(fmt::format(
          "The other forms of the answer set precisions only: {} repair(s) of constants ('{}', ...) are not in "
          "them, and without those more layers may be needed",
          changed, done.front().name));
    save(save_layer_precisions_, layer_precisions_form(network, spec, assignment));
    const std::string flags = fmt::format("{}{}{}", config_.fp16 ? " --fp16" : "", config_.bf16 ? " --bf16" : "",
                                          config_.int8 ? " --int8 --calibration-cache CACHE" : "");
    save(save_script_, postprocess_script(network, spec, assignment, requested, flags));
    save(save_exclusions_, exclusions(network, spec, assignment));
  }

  ModelArgs model_;
  OnnxLoadArgs onnx_;
  TrtConfigArgs config_;
  TrtNetworkArgs network_;
  DataLoaderArgs data_;
  PythonLimitArgs limits_;
  PrecisionChoice choice_;
  AnswerFile answer_;
  RelaxArgs relax_;
  std::optional<std::string> answer_path_, output_, convert_to_, save_layer_precisions_, save_script_, save_exclusions_;
  std::vector<std::string> io_types_;
  bool print_commands_ = false, no_verify_ = false, no_python_checks_ = false;
};

}  // namespace

std::unique_ptr<Tool> make_convert_tool() { return std::make_unique<ConvertTool>(); }

}  // namespace ulpscope::cli
