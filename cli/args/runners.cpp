#include "args/runners.h"

#include "core/messages.h"

namespace ulpscope::cli {

void RunnerSelectArgs::declare(OptionTable& table) {
  table.section("Runners", "selecting runners to use for inference. May be repeated; they run in the order given.");
  table.ordered("--onnxrt", runners, "Run inference using ONNX Runtime, in the Python worker");
  table.ordered("--trt", runners, "Run inference using ulpscope's engine (or a real TensorRT, see --trt-backend)");
  table.words({"--tf"}, Arity::kNone, "", "Run inference using TensorFlow")
      .refuse("there is no TensorFlow runner; convert the model to ONNX and use --onnxrt");
  table.ordered(
      "--pluginref", runners,
      "Run inference using the simplest kernels, layer by layer in float32, with sums in float64 (Polygraphy's plugin "
      "reference, for all operators)");
}

void OnnxrtArgs::declare(OptionTable& table) {
  table.section("ONNX-Runtime Session Creation", "creating an ONNX Runtime session.");
  table.list({"--providers", "--execution-providers"}, providers, "NAME",
             "Execution providers in order of priority; parts of names in any case (cpu, cuda). Default: cpu");
  table.value({"--graph-optimization-level"}, optimization_level, "LEVEL",
              "ORT_DISABLE_ALL turns graph optimizations "
              "off; ORT_ENABLE_ALL is the default, and stands for the levels between");
}

OnnxRuntimeOptions OnnxrtArgs::options(const OnnxLoadArgs& load, int threads) const {
  OnnxRuntimeOptions options;
  if (!providers.empty()) options.providers = providers;
  options.threads = threads;
  if (optimization_level) {
    if (!optimization_level->starts_with("ORT_"))
      throw invalid_argument(
          "[options] --graph-optimization-level: expected ORT_DISABLE_ALL or ORT_ENABLE_ALL, got '{}'",
          *optimization_level);
    options.optimize = *optimization_level != "ORT_DISABLE_ALL";
  }
  if (load.external_data_dir) options.external_data_dir = *load.external_data_dir;
  options.mark_all = marks_all(load.outputs);
  if (!options.mark_all) options.outputs = load.outputs;
  options.exclude_outputs = load.exclude_outputs;
  return options;
}

bool marks_all(const std::vector<std::string>& outputs) {
  return (outputs.size() == 1 && outputs[0] == "*") ||
         (outputs.size() == 2 && outputs[0] == "mark" && outputs[1] == "all");
}

void declare_tensorflow_options(OptionTable& table) {
  table.section("TensorFlow", "TensorFlow models.");
  const std::string why = "TensorFlow models are not read; convert the model to ONNX";
  const auto add = [&](std::vector<std::string> names, Arity arity, std::string metavar, std::string help) {
    table.words(std::move(names), arity, std::move(metavar), std::move(help)).refuse(why);
  };
  add({"--tftrt", "--use-tftrt"}, Arity::kNone, "", "TensorFlow with TensorRT");
  add({"--minimum-segment-size"}, Arity::kOne, "N", "For --tftrt");
  add({"--dynamic-op"}, Arity::kNone, "", "For --tftrt");
  add({"--ckpt"}, Arity::kOne, "NAME", "Checkpoint to load");
  add({"--tf-outputs"}, Arity::kSome, "NAME", "Outputs of the TensorFlow model");
  add({"--save-pb"}, Arity::kOne, "FILE", "Write the frozen graph");
  add({"--save-tensorboard"}, Arity::kOne, "DIR", "Write a TensorBoard file");
  add({"--freeze-graph"}, Arity::kNone, "", "Freeze the graph");
  add({"--gpu-memory-fraction"}, Arity::kOne, "X", "Memory limit");
  add({"--allow-growth"}, Arity::kNone, "", "Grow memory on demand");
  add({"--xla"}, Arity::kNone, "", "Compile with XLA");
  add({"--save-timeline"}, Arity::kOne, "DIR", "Write a profile");
  add({"--opset"}, Arity::kOne, "N", "Opset to convert to");
}

}  // namespace ulpscope::cli
