#include "args/inference.h"

#include <fmt/format.h>

#include "ulpscope/error.h"

namespace ulpscope::cli {

void InferenceArgs::declare(OptionTable& table) {
  table.section("Comparator Inference", "running inference.");
  table.integer({"--warm-up"}, warm_up, "N", "Untimed runs before the first iteration of each runner (default: 0)");
  table.flag({"--use-subprocess"}, use_subprocess, "Give each Python runner a process of its own");
  python.declare(table);
  table.value({"--save-inputs", "--save-input-data"}, save_inputs, "FILE", "Write the inputs (JSON)");
  table.words({"--save-input-blob"}, Arity::kOptional, "DIR", "Write each input as a raw binary file")
      .refuse("write JSON with --save-inputs; polygraphy data to-input reads it");
  table.value({"--save-outputs", "--save-results"}, save_outputs, "FILE", "Write the outputs of all runners (JSON)");

  table.section("Comparator Postprocessing", "applying postprocessing to outputs.");
  table.list({"--postprocess", "--postprocess-func"}, postprocess, "[NAME:]FUNC",
             "Before comparing, replace outputs: "
             "top-K[,axis=A] takes the indices of the K largest values along the axis (default: the last)");
  table.words({"--postprocess-func-script"}, Arity::kOne, "FILE.py[:FUNC]", "Python function that edits a result")
      .refuse("compare in Python with --compare-func-script");
}

void InferenceArgs::check() const {
  python.check();
  if (warm_up && *warm_up < 0)
    throw Error(ErrorCode::kInvalidArgument, fmt::format("[options] --warm-up: expected 0 or more, got {}", *warm_up));
}

}  // namespace ulpscope::cli
