#include "args/runner_select.h"

namespace ulpscope::cli {

void RunnerSelectArgs::declare(OptionTable& table) {
  table.section("Runners", "selecting runners to use for inference. May be repeated; they run in the order given.");
  table.ordered("--onnxrt", runners, "Run inference using ONNX Runtime, in the Python worker");
  table.ordered("--trt", runners, "Run inference using ulpscope's engine (or a real TensorRT, see --trt-backend)");
  table.words({"--tf"}, Arity::kNone, "", "Run inference using TensorFlow")
      .refuse("there is no TensorFlow runner; convert the model to ONNX and use --onnxrt");
  table.words({"--pluginref"}, Arity::kNone, "", "Run inference using Polygraphy's plugin reference")
      .refuse("there is no plugin reference runner; use --onnxrt");
}

}  // namespace ulpscope::cli
