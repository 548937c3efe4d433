#include "args/inference.h"

#include "core/messages.h"

namespace ulpscope::cli {

void PythonLimitArgs::declare(OptionTable& table) {
  table.ours().value(
      {"--python-time-limit"}, time_limit, "SECONDS",
      "Longest that one call into Python may take: a script's function, one inference of ONNX Runtime (default: "
      "60 for scripts that define or edit a network or a config, else 600; 0: no limit)");
}

std::chrono::milliseconds PythonLimitArgs::call_limit() const {
  return std::chrono::milliseconds(static_cast<std::int64_t>(time_limit.value_or(600.0) * 1000.0));
}

std::chrono::milliseconds PythonLimitArgs::description_limit() const {
  return time_limit ? call_limit() : std::chrono::milliseconds(60000);
}

void PythonLimitArgs::check() const {
  if (time_limit && !(*time_limit >= 0 && *time_limit < 1e9))
    throw invalid_argument("[options] --python-time-limit: expected seconds, got {}", *time_limit);
}

void InferenceArgs::declare(OptionTable& table) {
  table.section("Comparator Inference", "running inference.");
  table.value({"--warm-up"}, warm_up, "N", "Untimed runs before the first iteration of each runner (default: 0)");
  table.flag({"--use-subprocess"}, use_subprocess, "Give each Python runner a process of its own");
  python.declare(table);
  table.value({"--save-inputs", "--save-input-data"}, save_inputs, "PATH",
              "Write the inputs (JSON). More than one iteration to a new path without an extension, or to an empty "
              "folder: a folder with a file each");
  table.optional_value(
      {"--save-input-blob"}, save_input_blob, "DIR",
      "Write each input as a raw binary file, a folder per iteration (default: the working directory)");
  table.value({"--save-outputs", "--save-results"}, save_outputs, "PATH",
              "Write the outputs of all runners (JSON); a file or a folder likewise");

  table.section("Comparator Postprocessing", "applying postprocessing to outputs.");
  table.list({"--postprocess", "--postprocess-func"}, postprocess, "[NAME:]FUNC",
             "Before comparing, replace outputs: "
             "top-K[,axis=A] takes the indices of the K largest values along the axis (default: the last)");
  table.value(
      {"--postprocess-func-script"}, postprocess_script, "FILE.py[:FUNC]",
      "Python function `postprocess_outputs(result)` that returns other outputs; --postprocess has no effect then");
}

void InferenceArgs::check() const {
  python.check();
  if (postprocess_script && !postprocess.empty())
    log_warning(
        "Argument: '--postprocess/--postprocess-func' will be ignored since '--postprocess-func-script' was provided.");
  if (warm_up && *warm_up < 0) throw invalid_argument("[options] --warm-up: expected 0 or more, got {}", *warm_up);
}

}  // namespace ulpscope::cli
