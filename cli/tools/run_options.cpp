#include "tools/run_options.h"

#include "args/tensorflow.h"

namespace ulpscope::cli {

void RunOptions::declare(OptionTable& table) {
  table.words({"--gen", "--gen-script"}, Arity::kOne, "FILE", "Write a Python script that does the same, and exit")
      .refuse("not part of this release; polygraphy run --gen-script writes one for TensorRT");
  runners.declare(table);
  model.declare(table);
  onnx.declare(table);
  onnxrt.declare(table);
  config.declare(table);
  network.declare(table, config.strongly_typed);
  data.declare(table);
  inference.declare(table);
  comparison.declare(table);
  declare_tensorflow_options(table);
}

}  // namespace ulpscope::cli
