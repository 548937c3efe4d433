#include <algorithm>
#include <array>
#include <filesystem>

#include "calibration/calibrators.h"
#include "core/messages.h"
#include "runners/script_host.h"
#include "tools/gen_script.h"
#include "ulpscope/error.h"

namespace ulpscope::cli {
namespace {

class RunnerCode {
 public:
  RunnerCode(const RunOptions& options, PythonScript& script) : options_(options), script_(script) {}

  std::string onnxruntime_runner() {
    const std::string source = changed_onnx(true);
    script_.add_import("polygraphy.backend.onnxrt", "SessionFromOnnx");
    script_.add_import("polygraphy.backend.onnxrt", "OnnxrtRunner");
    Call session("SessionFromOnnx");
    session.positional(source).named("providers", list_or_none(options_.onnxrt.providers));
    if (options_.onnxrt.optimization_level) {
      script_.lazy_onnxruntime();
      session.named("graph_optimization_level", "onnxrt.GraphOptimizationLevel." + *options_.onnxrt.optimization_level);
    }
    return Call("OnnxrtRunner").positional(script_.loader("build_onnxrt_session", session.text())).text();
  }

  std::string reference_runner() {
    script_.add_import("polygraphy.backend.onnx", "GsFromOnnx");
    script_.add_import("polygraphy.backend.pluginref", "PluginRefRunner");
    const std::string model = changed_model(true);
    return Call("PluginRefRunner")
        .positional(script_.loader("pluginref", Call("GsFromOnnx").positional(model).text()))
        .text();
  }

  std::string tensorrt_runner() {
    script_.lazy_tensorrt();
    script_.add_import("polygraphy.backend.trt", "EngineFromBytes");
    script_.add_import("polygraphy.backend.trt", "TrtRunner");
    std::string bytes;
    if (options_.model.type() == ModelType::kEngine) {
      log_warning("[gen-script] '{}' is taken for an engine of TensorRT: ulpscope's engines run here only",
                  *options_.model.model);
      script_.add_import("polygraphy.backend.common", "BytesFromPath");
      bytes = script_.loader("load_engine_bytes", Call("BytesFromPath").positional(model_path()).text());
    } else {
      const std::string made = config();
      script_.add_import("polygraphy.backend.trt", "EngineBytesFromNetwork");
      bytes = script_.loader("build_engine",
                             Call("EngineBytesFromNetwork")
                                 .positional(network(made))
                                 .named("config", default_config_ ? "" : made)
                                 .named("save_timing_cache", text_or_none(options_.config.save_timing_cache))
                                 .text());
      if (options_.network.save_engine) {
        script_.add_import("polygraphy.backend.common", "SaveBytes");
        bytes = script_.loader(
            "save_engine_bytes",
            Call("SaveBytes").positional(bytes).named("path", text_or_none(options_.network.save_engine)).text());
      }
    }
    return Call("TrtRunner")
        .positional(script_.loader("deserialize_engine", Call("EngineFromBytes").positional(bytes).text()))
        .text();
  }

  /// The loader of the builder configuration.
  std::string config() {
    const TrtConfigArgs& config = options_.config;
    std::string name;
    if (config.config_script) {
      name = script_.loader("parser_trt_config", script_.invoke(*config.config_script, "load_config"));
    } else {
      add_profiles();
      Call call("CreateTrtConfig");
      script_.add_import("polygraphy.backend.trt", "CreateConfig as CreateTrtConfig");
      call.named("profiles", script_.has_name("profiles") ? "profiles" : "");
      const bool obey = config.obey || config.strict || config.constraints == "obey";
      if (obey || config.constraints == "prefer") call.named("precision_constraints", obey ? "'obey'" : "'prefer'");
      call.named("load_timing_cache", text_or_none(config.load_timing_cache));
      const auto tactics = [&](const char* type, const char* argument, const std::string& path) {
        script_.add_import("polygraphy.backend.trt", type);
        script_.lazy_tensorrt();
        call.named("algorithm_selector", Call(type).named(argument, python_string(path)).text());
      };
      if (config.save_tactics) tactics("TacticRecorder", "record", *config.save_tactics);
      if (config.load_tactics) tactics("TacticReplayer", "replay", *config.load_tactics);
      for (const Precision p : config.precisions().members())
        if (form_of(p).is_weakly_typed()) call.flag(std::string(name_of(p)).c_str(), true);
      if (config.precisions().has(Precision::kINT8)) {
        script_.add_import("polygraphy.backend.trt", "Calibrator");
        if (script_.data.empty()) script_.add_import("polygraphy.comparator", "DataLoader");
        call.named("calibrator", Call("Calibrator")
                                     .named("data_loader", script_.data.empty() ? "DataLoader()" : script_.data)
                                     .named("cache", text_or_none(config.calibration_cache))
                                     .named("BaseClass", calibrator_class(config))
                                     .named("quantile", config.quantile ? python_float(*config.quantile) : "")
                                     .text());
      }
      default_config_ = call.plain() && !config.config_postprocess_script;
      name = script_.loader("parser_trt_config", call.text());
    }
    if (!config.config_postprocess_script) return name;
    script_.add_import("polygraphy.backend.trt", "PostprocessConfig as PostprocessTrtConfig");
    return script_.loader("postprocess_trt_config",
                          Call("PostprocessTrtConfig")
                              .positional(name)
                              .named("func", script_.invoke(*config.config_postprocess_script, "postprocess_config"))
                              .text());
  }

 private:
  std::string model_path() const {
    return python_string(std::filesystem::absolute(options_.model.path()).lexically_normal().string());
  }

  bool edits_loading() const { return options_.onnx.external_data_dir || options_.onnx.ignore_external_data; }

  std::string loaded_onnx() {
    const std::string folder = text_or_none(options_.onnx.external_data_dir);
    if (options_.onnx.shape_inference) {
      script_.add_import("polygraphy.backend.onnx", "InferShapes");
      return script_.loader("infer_shapes",
                            Call("InferShapes")
                                .positional(model_path())
                                .named("external_data_dir", folder)
                                .named("allow_onnxruntime", options_.onnx.no_onnxruntime_inference ? "False" : "")
                                .text());
    }
    script_.add_import("polygraphy.backend.onnx", "OnnxFromPath");
    return script_.loader("load_onnx", Call("OnnxFromPath")
                                           .positional(model_path())
                                           .named("external_data_dir", folder)
                                           .flag("ignore_external_data", options_.onnx.ignore_external_data)
                                           .text());
  }

  std::string serialized(const std::string& onnx) {
    script_.add_import("polygraphy.backend.onnx", "BytesFromOnnx");
    return script_.loader("serialize_onnx", Call("BytesFromOnnx").positional(onnx).text());
  }

  std::string marked(const std::vector<std::string>& outputs) {
    if (!marks_all(outputs)) return list_or_none(outputs);
    script_.add_import("polygraphy", "constants");
    return "constants.MARK_ALL";
  }

  bool marks_outputs() const {
    const OnnxLoadArgs& onnx = options_.onnx;
    return !onnx.outputs.empty() || !onnx.exclude_outputs.empty() || !onnx.outputs_by_type.empty();
  }

  /// The bytes of `changed_model`; the path where options change nothing.
  std::string changed_onnx(bool outputs) {
    const bool changes = (outputs && marks_outputs()) || options_.onnx.save_path || options_.onnx.fp_to_fp16 ||
                         options_.onnx.shape_inference;
    return changes || edits_loading() ? serialized(changed_model(outputs)) : model_path();
  }

  /// The model after everything that options change about it.
  std::string changed_model(bool outputs) {
    const OnnxLoadArgs& onnx = options_.onnx;
    const bool marks = outputs && marks_outputs();
    std::string model = loaded_onnx();
    if (marks) {
      script_.add_import("polygraphy.backend.onnx", "ModifyOutputs as ModifyOnnxOutputs");
      model = script_.loader("modify_outputs", Call("ModifyOnnxOutputs")
                                                   .positional(model)
                                                   .named("outputs", marked(onnx.outputs))
                                                   .named("exclude_outputs", list_or_none(onnx.exclude_outputs))
                                                   .named("mark_types", list_or_none(onnx.outputs_by_type))
                                                   .text());
    }
    if (onnx.fp_to_fp16) {
      script_.add_import("polygraphy.backend.onnx", "ConvertToFp16");
      model = script_.loader("convert_to_fp16", Call("ConvertToFp16").positional(model).text());
    }
    if (onnx.save_path) {
      script_.add_import("polygraphy.backend.onnx", "SaveOnnx");
      model = script_.loader("save_onnx",
                             Call("SaveOnnx")
                                 .positional(model)
                                 .named("path", text_or_none(onnx.save_path))
                                 .named("external_data_path", text_or_none(onnx.save_external_data))
                                 .named("size_threshold", onnx.size_threshold ? std::to_string(*onnx.threshold()) : "")
                                 .named("all_tensors_to_one_file", onnx.many_files ? "False" : "")
                                 .text());
    }
    return model;
  }

  void add_profiles() {
    std::vector<Profile> profiles = options_.config.build_options(options_.model).profiles;
    if (profiles.empty() && !options_.model.shapes().empty()) {
      Profile& profile = profiles.emplace_back();
      for (const auto& [name, shape] : options_.model.shapes())
        profile.min[name] = profile.opt[name] = profile.max[name] = shape;
    }
    if (profiles.empty() || !script_.take_name("profiles")) return;
    script_.add_import("polygraphy.backend.trt", "Profile");
    script_.loader_lines.emplace_back("profiles = [");
    for (std::size_t i = 0; i < profiles.size(); ++i) {
      std::string line = "    Profile()";
      for (const auto& [name, min] : profiles[i].min)
        line += fmt::format(".add({}, min={}, opt={}, max={})", python_string(name), shape_list(min),
                            shape_list(profiles[i].opt.at(name)), shape_list(profiles[i].max.at(name)));
      script_.loader_lines.push_back(line + (i + 1 < profiles.size() ? "," : ""));
    }
    script_.loader_lines.emplace_back("]");
  }

  /// trt.IInt8EntropyCalibrator2, also for its short name; nothing if none was given. Throws Error.
  std::string calibrator_class(const TrtConfigArgs& config) {
    if (!config.calib_base_cls) return "";
    script_.lazy_tensorrt();
    switch (calibration_algorithm_from_name(*config.calib_base_cls)) {
      case CalibrationAlgorithm::kEntropy2:
        return "trt.IInt8EntropyCalibrator2";
      case CalibrationAlgorithm::kEntropy:
        return "trt.IInt8EntropyCalibrator";
      case CalibrationAlgorithm::kMinMax:
        return "trt.IInt8MinMaxCalibrator";
      case CalibrationAlgorithm::kLegacy:
        return "trt.IInt8LegacyCalibrator";
    }
    throw InternalError("calibrator_class: unknown algorithm");
  }

  /// trt.float16.
  std::string type(const std::string& text, const std::string& word, const char* option) {
    using enum DataType;
    constexpr std::array kTensorrt{kFloat32, kFloat16, kBFloat16, kInt8, kInt32, kInt64, kUInt8, kBool, kFloat8E4M3};
    const std::optional<DataType> known = data_type_from_name(text);
    if (!known || std::ranges::find(kTensorrt, *known) == kTensorrt.end())
      throw invalid_argument("[options] {} '{}': expected a type of TensorRT", option, word);
    script_.lazy_tensorrt();
    return fmt::format("trt.{}", name_of(*known));
  }

  /// {'a': trt.float16}.
  std::string types(const std::vector<std::string>& words, const char* option) {
    std::vector<std::string> entries;
    for (const std::string& word : words) {
      const auto [name, text] = split_name(word);
      if (name.empty())
        throw invalid_argument("[options] Could not parse argument: {}. {} takes <name>:<type>, got no name", word,
                               option);
      entries.push_back(fmt::format("{}: {}", python_string(name), type(text, word, option)));
    }
    return fmt::format("{{{}}}", fmt::join(entries, ", "));
  }

  std::string network(const std::string& config) {
    const TrtNetworkArgs& args = options_.network;
    std::string name;
    if (options_.model.type() == ModelType::kNetworkScript) {
      ScriptName script = ScriptName::parse(*options_.model.model, "load_network");
      script.path = std::filesystem::absolute(script.path).lexically_normal().string();
      script_.add_import("polygraphy.backend.common", "InvokeFromScript");
      name = script_.loader("load_network", Call("InvokeFromScript")
                                                .positional(python_string(script.path))
                                                .named("name", python_string(script.function))
                                                .text());
    } else {
      const std::string source = changed_onnx(false);
      const bool bytes = source != model_path();
      const char* const type = bytes ? "NetworkFromOnnxBytes" : "NetworkFromOnnxPath";
      script_.add_import("polygraphy.backend.trt", type);
      name = script_.loader("parse_network_from_onnx", Call(type)
                                                           .positional(source)
                                                           .flag("strongly_typed", options_.config.strongly_typed)
                                                           .named("config", config)
                                                           .text());
    }
    for (std::size_t i = 0; i < args.postprocess_scripts.size(); ++i) {
      const ScriptName script = ScriptName::parse(args.postprocess_scripts[i], "postprocess");
      script_.add_import("polygraphy.backend.trt", "PostprocessNetwork");
      name = script_.loader(fmt::format("postprocess_step_{}", i),
                            Call("PostprocessNetwork")
                                .positional(name)
                                .named("func", script_.invoke(args.postprocess_scripts[i], "postprocess"))
                                .named("name", python_string(script.path + ":" + script.function))
                                .text());
    }
    if (!args.outputs.empty() || !args.exclude_outputs.empty() || !args.outputs_by_type.empty()) {
      script_.add_import("polygraphy.backend.trt", "ModifyNetworkOutputs");
      name = script_.loader("set_network_outputs", Call("ModifyNetworkOutputs")
                                                       .positional(name)
                                                       .named("outputs", marked(args.outputs))
                                                       .named("exclude_outputs", list_or_none(args.exclude_outputs))
                                                       .named("mark_layer_types", list_or_none(args.outputs_by_type))
                                                       .text());
    }
    const auto typed = [&](const std::vector<std::string>& words, const char* option, const char* type,
                           const char* argument, const char* variable) {
      if (words.empty()) return;
      script_.add_import("polygraphy.backend.trt", type);
      name = script_.loader(variable, Call(type).positional(name).named(argument, types(words, option)).text());
    };
    typed(args.layer_precisions, "--layer-precisions", "SetLayerPrecisions", "layer_precisions",
          "set_layer_precisions");
    if (args.all_tensor_dtypes && args.tensor_dtypes.empty()) {
      script_.add_import("polygraphy.backend.trt", "SetTensorDatatypes");
      return script_.loader(
          "set_tensor_datatypes",
          Call("SetTensorDatatypes")
              .positional(name)
              .named("tensor_datatypes", type(*args.all_tensor_dtypes, *args.all_tensor_dtypes, "--all-tensor-dtypes"))
              .text());
    }
    typed(args.tensor_dtypes, "--tensor-dtypes", "SetTensorDatatypes", "tensor_datatypes", "set_tensor_datatypes");
    return name;
  }

  const RunOptions& options_;
  PythonScript& script_;
  bool default_config_ = false;  ///< The configuration says nothing.
};

}  // namespace

std::string onnxruntime_runner_code(const RunOptions& options, PythonScript& script) {
  return RunnerCode(options, script).onnxruntime_runner();
}

std::string reference_runner_code(const RunOptions& options, PythonScript& script) {
  return RunnerCode(options, script).reference_runner();
}

std::string tensorrt_runner_code(const RunOptions& options, PythonScript& script) {
  return RunnerCode(options, script).tensorrt_runner();
}

std::string tensorrt_config_code(const RunOptions& options, PythonScript& script) {
  return RunnerCode(options, script).config();
}

}  // namespace ulpscope::cli
