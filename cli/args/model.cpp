#include "args/model.h"

#include <fmt/format.h>

#include "compare/name_values.h"
#include "ulpscope/error.h"

namespace ulpscope::cli {

void ModelArgs::declare(OptionTable& table, bool required, bool shapes) {
  table.section("Model", "the model");
  table.positional(
      "MODEL", model,
      "The model: an ONNX file (.onnx), an engine (.engine, .plan) or a Python script that defines `load_network` "
      "(file.py or file.py:function). Put it first: lists take every word up to the next option",
      required);
  table.value({"--model-type"}, type_name, "TYPE", "Type of the model, where the extension does not tell")
      .choose({"frozen", "keras", "ckpt", "onnx", "engine", "uff", "trt-network-script", "caffe"});
  if (!shapes) return;
  table.list({"--input-shapes", "--inputs"}, input_shapes, "NAME:[D0,D1,..]",
             "Shapes of the generated inputs. "
             "Wildcards (*, ?) in names; one value for an integer input that holds a shape sets the input's value");
}

std::filesystem::path ModelArgs::path() const {
  // A colon without a script before it belongs to the file's name.
  const std::size_t colon = model->rfind(".py:");
  return colon == std::string::npos ? *model : model->substr(0, colon + 3);
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
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("[model] '{}': expected a network script with the extension .py", *model));
    return ModelType::kNetworkScript;
  }
  if (name.empty())
    throw Error(ErrorCode::kUnsupported, fmt::format("[model] could not determine the type of '{}' from its extension; "
                                                     "try --model-type onnx, engine or trt-network-script",
                                                     *model));
  throw Error(ErrorCode::kUnsupported, fmt::format("[model] '{}': models of type {} are not read; "
                                                   "try converting it to ONNX first",
                                                   *model, name));
}

void ModelArgs::check_exists() const {
  std::error_code ignored;
  const std::filesystem::path file = path();
  if (!std::filesystem::exists(file, ignored))
    throw Error(ErrorCode::kNotFound, fmt::format("[model] '{}': no such file; the model is the first argument, "
                                                  "relative to the working directory",
                                                  file.string()));
}

void ModelArgs::check_not_replaced(const std::string& option, const std::string& output) const {
  std::error_code ignored;
  const auto refuse = [&](bool wrong, const char* why) {
    if (wrong) throw Error(ErrorCode::kInvalidArgument, fmt::format("[options] {} {}: {}", option, output, why));
  };
  refuse(std::filesystem::equivalent(path(), output, ignored), "expected another file than the model");
  refuse(std::filesystem::is_directory(output, ignored), "expected a file, got a folder");
  refuse(std::filesystem::is_other(output, ignored), "expected a file, got a device or pipe");
}

std::vector<std::pair<std::string, Shape>> ModelArgs::shapes() const {
  return parse_shapes("--input-shapes", input_shapes);
}

}  // namespace ulpscope::cli
