#include "args/debug_precision.h"

namespace ulpscope::cli {

void DebugPrecisionArgs::declare(OptionTable& table) {
  table.section("Precision", "how layers are chosen.");
  table
      .value({"--mode"}, mode, "MODE",
             "bisect (default): by halves, from all layers; linear: one layer more per try, from none")
      .choose({"bisect", "linear"});
  table
      .value({"--dir", "--direction"}, direction, "DIRECTION",
             "forward (default): the first layers, from the inputs; reverse: the last layers, from the outputs")
      .choose({"forward", "reverse"});
  table.value({"-p", "--precision"}, type, "TYPE", "Precision of marked layers: float32 (default), or float16")
      .choose({"float32", "float16"});
  precision.declare_search(table);
  check.declare(table);
  artifacts.declare(table);
  iteration.declare(table);
  precision.model.declare(table, /*required=*/true);
  precision.onnx.declare(table, /*outputs_and_saving=*/false);
  precision.data.declare(table);
  precision.config.declare(table, "obey");
  precision.network.declare(table, precision.config.strongly_typed, /*engine=*/false);
  precision.comparison.declare(table);
}

}  // namespace ulpscope::cli
