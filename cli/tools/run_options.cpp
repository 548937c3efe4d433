#include "tools/run_options.h"

#include "args/runners.h"

namespace ulpscope::cli {

void RunOptions::declare(OptionTable& table) {
  table.value({"--gen", "--gen-script"}, gen_script, "FILE",
              "Have the installed Polygraphy write a Python script that does the same by its API, to be taken to a "
              "machine with "
              "TensorRT, and exit; - for the standard output");
  table.ours().value(
      {"--answer"}, answer, "FILE",
      "Run the model as this answer of `precision search` says, with its repairs and scales, on ulpscope's "
      "engine");
  table.ours().flag(
      {"--profile"}, profile,
      "After the iterations of ulpscope's engine, print the time of every step, its GFLOP/s and GB/s, and the "
      "share of what this machine does at best");
  table.ours().value({"--profile-trace"}, profile_trace, "FILE",
                     "Write these times as a trace for Perfetto or chrome://tracing (JSON)");
  config.declare_memory_limit(table);
  runners.declare(table);
  model.declare(table);
  onnx.declare(table);
  onnxrt.declare(table);
  config.declare(table);
  network.declare(table, config.strongly_typed);
  data.declare(table);
  inference.declare(table);
  comparison.declare(table, true);
  declare_tensorflow_options(table);
}

}  // namespace ulpscope::cli
