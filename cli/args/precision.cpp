#include "args/precision.h"

namespace ulpscope::cli {

void PrecisionOptions::declare_search(OptionTable& table) {
  table.ours().value(
      {"--golden"}, golden, "FILE",
      "Results to compare with, as --save-outputs of `run` writes them, whatever the file is called. All of its "
      "iterations count");
  table.ours()
      .flag({"--cost-model"}, cost_model,
            "Layers that are not marked may stay in a higher precision where that costs less on the target. Default: "
            "they take the lowest enabled precision, as with --assume-lowest")
      .exclude("--assume-lowest");
  python.declare(table);
}

}  // namespace ulpscope::cli
