// `ulpscope inspect model`: what is in a model, and what the engine makes of it.
#include <fmt/format.h>

#include <algorithm>

#include "compare/results.h"
#include "core/parallel.h"
#include "core/temporary_folder.h"
#include "onnx/quantization_check.h"
#include "tools/inspect.h"
#include "tools/inspect_engine.h"
#include "tools/inspect_onnx.h"
#include "tools/network_setup.h"
#include "tools/run_engine.h"
#include "tools/run_options.h"
#include "tools/tool.h"
#include "ulpscope/log.h"

namespace ulpscope::cli {
namespace {

class InspectModelTool : public Tool {
 public:
  std::string description() const override {
    return "\n\nAn ONNX file is shown as it is, in Polygraphy's layout. An engine (MODEL is a plan, or options of the\n"
           "builder such as --fp16 are given, or --convert-to trt) is shown with the precision of each layer, why, "
           "its\n"
           "group and tactic, the estimated time on the target, and memory. Saved inputs, results and answers of\n"
           "searches (.json) are shown as by `inspect data`.";
  }

  void declare(OptionTable& table) override {
    options_.model.declare(table, true);
    options_.onnx.declare(table, OnnxLoadArgs::Scope::kShow);
    table.section("Inspection", "what is shown.");
    table
        .list({"--show"}, show_, "ASPECT",
              "layers: nodes or layers with inputs and outputs; attrs: their attributes too; weights: values of "
              "weights (with layers, of each layer's)")
        .choose({"layers", "attrs", "weights"})
        .arity = Arity::kAny;
    table.ours()
        .value({"--mode"}, mode_, "MODE",
               "Older form of --show: basic is layers, attrs is layers attrs, full is layers attrs weights")
        .choose({"none", "basic", "attrs", "full"});
    table.value({"--convert-to", "--display-as"}, convert_to_, "FORMAT", "Show the engine instead of the ONNX file")
        .choose({"trt"});
    table.ours().flag({"--json"}, json_, "Print a JSON object (docs/formats.md) instead; log lines go to stderr");
    table.flag({"--list-unbounded-dds"}, list_unbounded_,
               "List the tensors of the ONNX file whose values decide the size of others, without a bound (the limit of a "
               "Range, the shape of an Expand, ...); with --shape-inference those whose size is known are left out");
    table.words({"--combine-tensor-info"}, Arity::kOne, "FILE", "Formats of TensorRT's tensors")
        .refuse("tensors are stored in row-major order; --show layers has their types");
    const std::string no_visual = "there is no graphical view; --json has the graph for other viewers";
    table.words({"--visual"}, Arity::kNone, "", "Show a graph").refuse(no_visual);
    table.words({"--visual-port"}, Arity::kOne, "PORT", "For --visual").refuse(no_visual);
    table.words({"--save-visual"}, Arity::kOne, "FILE", "Write a graph").refuse(no_visual);
    options_.config.declare(table);
    options_.network.declare(table, options_.config.strongly_typed);
    table.section("Scripts", "users' Python scripts.");
    options_.inference.python.declare(table);
  }

  bool owns_stdout() const override { return json_; }
  int run() override {
    if (show_.empty() && mode_ == "basic") show_ = {"layers"};
    if (show_.empty() && mode_ == "attrs") show_ = {"layers", "attrs"};
    if (show_.empty() && mode_ == "full") show_ = {"layers", "attrs", "weights"};
    const ModelArgs& model = options_.model;
    model.check_exists();
    const FileKind kind = model.path().extension() == ".py" ? FileKind::kOther : sniff_file(model.path());
    if (!model.type_name && (kind == FileKind::kResults || kind == FileKind::kJson || kind == FileKind::kAnswer ||
                             kind == FileKind::kAccuracyResults)) {
      InspectDataOptions data;
      data.show_values = std::ranges::find(show_, "weights") != show_.end();
      data.json = json_;
      data.all = kind == FileKind::kAnswer && !show_.empty();
      inspect_data(model.path(), data);
      return 0;
    }
    if (kind == FileKind::kPlan && !model.type_name) options_.model.type_name = "engine";
    options_.inference.python.check();
    set_num_threads(options_.config.num_threads());
    InspectShow show;
    show.layers = std::ranges::find(show_, "layers") != show_.end();
    show.attributes = std::ranges::find(show_, "attrs") != show_.end();
    show.weights = std::ranges::find(show_, "weights") != show_.end();

    const bool file = model.type() == ModelType::kOnnx && !convert_to_;
    const bool engine = !file || asks_for_engine();
    nlohmann::ordered_json json;
    if (file) {
      log_info("Loading model: " + std::filesystem::absolute(model.path()).string());
      const OnnxDescription description = describe(show.weights && !json_);
      if (json_)
        json = onnx_json(description, show);
      else
        log_info("==== ONNX Model ====\n" + onnx_text(description, show));
      show_quantization(json);
      if (list_unbounded_)
        log_info("Found tensors with unbounded DDS: " + python_list(unbounded_tensors(description.graph)));
    }
    if (engine) {
      const std::shared_ptr<Engine> built = build();
      if (json_ && file)
        json["engine"] = engine_json(*built);
      else if (json_)
        json = engine_json(*built);
      else
        log_info("==== ulpscope Engine ====\n" + engine_text(*built, show));
    }
    if (json_) fmt::print("{}\n", json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
    return 0;
  }

 private:
  /// What is wrong with the quantizers of the file, where something is.
  void show_quantization(nlohmann::ordered_json& json) const {
    const auto problems =
        check_quantization(std::filesystem::absolute(options_.model.path()), options_.onnx.import_options());
    if (problems.empty()) return;
    if (!json_) return log_warning(to_text(problems));
    for (const QuantizationProblem& each : problems)
      json["quantization"].push_back({{"node", each.node}, {"severity", name_of(each.severity)}, {"text", each.text}});
  }

  OnnxDescription describe(bool weights) const {
    const std::filesystem::path path = std::filesystem::absolute(options_.model.path());
    ImportOptions import = options_.onnx.import_options();
    if (!options_.onnx.shape_inference) return describe_onnx(path, weights, import);
    const TemporaryFolder folder(std::filesystem::temp_directory_path() / "ulpscope-");
    const std::filesystem::path inferred = folder.path() / path.filename();
    make_script_host(options_.onnx, options_.inference.python)
        ->data_worker()
        ->call("save_onnx", Value::Map{{"path", path.string()},
                                       {"target", inferred.string()},
                                       {"external_data_dir", import.external_data_dir.string()},
                                       {"shape_inference", true},
                                       {"ignore_external_data", import.ignore_external_data}});
    if (import.external_data_dir.empty()) import.external_data_dir = path.parent_path();
    return describe_onnx(inferred, weights, import);
  }

  bool asks_for_engine() const {
    const TrtConfigArgs& config = options_.config;
    const TrtNetworkArgs& network = options_.network;
    return !config.precisions().empty() || config.assume_lowest || config.strongly_typed || config.constraints ||
           config.obey || config.strict || config.fusion || config.accumulation || config.attention || config.target ||
           config.config_script || config.config_postprocess_script || config.load_tactics || config.save_tactics ||
           config.save_timing_cache || !config.min_shapes.empty() || !config.opt_shapes.empty() ||
           !config.max_shapes.empty() || !network.layer_precisions.empty() || network.all_tensor_dtypes ||
           !network.clamp_constants.empty() || network.repairs || !network.outputs_by_type.empty() ||
           !network.outputs.empty() || !network.exclude_outputs.empty() || !network.tensor_dtypes.empty() ||
           !network.postprocess_scripts.empty() || network.save_engine;
  }

  std::shared_ptr<Engine> build() {
    const std::unique_ptr<ScriptHost> host = make_script_host(options_.onnx, options_.inference.python);
    const std::shared_ptr<Engine> engine = build_engine(options_, *host);
    save_engine_files(options_, *engine);
    return engine;
  }

  RunOptions options_;
  std::vector<std::string> show_;
  std::optional<std::string> convert_to_, mode_;
  bool json_ = false, list_unbounded_ = false;
};

}  // namespace

std::unique_ptr<Tool> make_inspect_model_tool() { return std::make_unique<InspectModelTool>(); }

}  // namespace ulpscope::cli
