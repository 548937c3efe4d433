#include "args/model.h"

#include <fmt/format.h>

#include "args/value_checks.h"
#include "compare/name_values.h"
#include "core/messages.h"
#include "ulpscope/error.h"

namespace ulpscope::cli {

void ModelArgs::declare(OptionTable& table, bool required, ModelForms forms) {
  table.section("Model", "the model");
  table.positional(
      "MODEL", model,
      fmt::format("The model: an ONNX file (.onnx){} or a Python script that defines `load_network` "
                  "(file.py or file.py:function). Put it first: lists take every word up to the next option",
                  forms == ModelForms::kAll ? ", an engine (.engine, .plan)" : ""),
      required);
  table.value({"--model-type"}, type_name, "TYPE", "Type of the model, where the extension does not tell")
      .choose({"frozen", "keras", "ckpt", "onnx", "engine", "uff", "trt-network-script", "caffe"});
  table.ours();
  table.words({"--trt-network-func-name"}, Arity::kOne, "FUNC", "Older form of MODEL as FILE.py:FUNC")
      .names_function_of("MODEL");
  table.list({"--input-shapes", "--inputs"}, input_shapes, "NAME:[D0,D1,..]",
             "Shapes of the generated inputs. "
             "Wildcards (*, ?) in names; one value for an integer input that holds a shape sets the input's value");
}

std::filesystem::path ModelArgs::path() const {
  // A colon without a script before it belongs to the file's name.
  if (const std::size_t colon = model->rfind(".py:"); colon != std::string::npos) return model->substr(0, colon + 3);
  std::error_code ignored;
  if (std::filesystem::exists(*model, ignored)) return *model;
  // As for Polygraphy: what stands behind a model says nothing.
  for (const std::string_view extension : {".onnx:", ".engine:", ".plan:"})
    if (const std::size_t at = model->rfind(extension); at != std::string::npos)
      return model->substr(0, at + extension.size() - 1);
  return *model;
}

ModelType ModelArgs::type() const {
  const std::string extension = path().extension().string();
  std::string name = type_name.value_or("");
  if (name.empty()) {
    if (extension == ".onnx") name = "onnx";
    if (extension == ".engine" || extension == ".plan") name = "engine";
    if (extension == ".py") name = "trt-network-script";
    if (extension == ".graphdef") name = "frozen";
    if (extension == ".hdf5") name = "keras";
    if (extension == ".uff") name = "uff";
    if (extension == ".prototxt") name = "caffe";
  }
  if (name == "onnx") return ModelType::kOnnx;
  if (name == "engine") return ModelType::kEngine;
  if (name == "trt-network-script") {
    if (extension != ".py")
      throw invalid_argument("[model] '{}': expected a network script with the extension .py", *model);
    return ModelType::kNetworkScript;
  }
  if (name.empty())
    throw unsupported(
        "[model] could not determine the type of '{}' from its extension; try --model-type onnx, engine or "
        "trt-network-script",
        *model);
  throw unsupported("[model] '{}': models of type {} are not read; try converting it to ONNX first", *model, name);
}

void ModelArgs::check_exists() const {
  std::error_code ignored;
  const std::filesystem::path file = path();
  if (!std::filesystem::exists(file, ignored))
    throw error_of(ErrorCode::kNotFound,
                   "[model] '{}': no such file; the model is the first argument, relative to the working directory",
                   file.string());
}

void ModelArgs::check_not_replaced(const std::string& option, const std::string& output) const {
  std::error_code ignored;
  const auto refuse = [&](bool wrong, const char* why) {
    if (wrong) throw invalid_argument("[options] {} {}: {}", option, output, why);
  };
  refuse(std::filesystem::equivalent(path(), output, ignored), "expected another file than the model");
  refuse(std::filesystem::is_directory(output, ignored), "expected a file, got a folder");
  refuse(std::filesystem::is_other(output, ignored), "expected a file, got a device or pipe");
}

std::vector<std::pair<std::string, Shape>> ModelArgs::shapes() const {
  return parse_shapes("--input-shapes", input_shapes);
}

void OnnxLoadArgs::declare(OptionTable& table, Scope scope) {
  table.section("ONNX Model Loading", "loading ONNX models.");
  table.value({"--external-data-dir", "--load-external-data", "--ext"}, external_data_dir, "DIR",
              "Where external weights lie, if not beside the model");
  table.flag({"--ignore-external-data"}, ignore_external_data, "Load the structure of a model without its weights");
  const bool changes = scope == Scope::kChange || scope == Scope::kSave;
  if (!changes) {
    table.words({"--fp-to-fp16"}, Arity::kNone, "", "Convert the model to float16 first")
        .refuse("write the model with ulpscope convert --fp-to-fp16");
  } else {
    table.list({"--onnx-outputs"}, outputs, "NAME",
               "Tensors that ONNX Runtime hands out instead of the model's outputs: "
               "names, patterns (conv_*), or `mark all` (or '*') for the outputs of all nodes");
    table.list({"--onnx-exclude-outputs"}, exclude_outputs, "NAME", "Outputs to leave out; patterns too");
    table.list({"--onnx-outputs-by-type"}, outputs_by_type, "TYPE",
               "Also hand out the outputs of all nodes of these operators (Conv, MatMul, ...)");
    table.flag({"--fp-to-fp16"}, fp_to_fp16,
               "Convert the model to float16 first, but for its inputs and outputs (with ONNX Runtime's converter)");
  }

  table.section("ONNX Shape Inference", "ONNX shape inference.");
  if (scope == Scope::kRead)
    table.words({"--shape-inference", "--do-shape-inference"}, Arity::kNone, "", "Infer shapes at load")
        .ignore("shapes are always inferred");
  else if (scope == Scope::kShow)
    table.flag({"--shape-inference", "--do-shape-inference"}, shape_inference,
               "Show the ONNX file with the shapes of its tensors, as far as onnx infers them. Engines always have theirs");
  else
    table.flag({"--shape-inference", "--do-shape-inference"}, shape_inference,
               "Give the ONNX model that is written the shapes of its tensors, as far as onnx infers them. Networks "
               "always have theirs");
  table.flag({"--no-onnxruntime-shape-inference"}, no_onnxruntime_inference, "Do not infer shapes with ONNX Runtime")
      .ignore("shapes are inferred by ulpscope");

  if (!changes) return;
  table.section("ONNX Model Saving", "saving ONNX models.");
  if (scope == Scope::kSave) table.value({"--save-onnx"}, save_path, "FILE", save_help);
  table.optional_value({"--save-external-data", "--external-data-path"}, save_external_data, "FILE",
                       "Write its weights to a file beside it (default name: that of the model with .data)");
  table
      .value({"--external-data-size-threshold"}, size_threshold, "BYTES",
             "Smaller weights stay in the model (default: 1024; 16e6 and 16M are numbers, too)")
      .verify(bytes_check());
  table.flag({"--no-save-all-tensors-to-one-file"}, many_files, "Write each weight to a file of its own");
}

std::optional<std::size_t> OnnxLoadArgs::threshold() const {
  if (!size_threshold) return std::nullopt;
  return parse_byte_count("--external-data-size-threshold", *size_threshold);
}

ImportOptions OnnxLoadArgs::import_options() const {
  ImportOptions options;
  if (external_data_dir) options.external_data_dir = *external_data_dir;
  options.ignore_external_data = ignore_external_data;
  return options;
}

}  // namespace ulpscope::cli
