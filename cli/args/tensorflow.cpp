#include "args/tensorflow.h"

namespace ulpscope::cli {

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
