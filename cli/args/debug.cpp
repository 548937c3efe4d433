#include "args/debug.h"

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

void CheckArgs::declare(OptionTable& table) {
  table.section("Pass/Fail Reporting", "telling whether a try passed.");
  table.rest(
      {"--check", "--check-inference"}, command, "COMMAND",
      "The command that checks a try: status 0 is a pass. Takes all words that are left. Without it (and without "
      "--golden) each try asks for p or f");
  table
      .list({"--fail-code", "--fail-returncode"}, fail_codes, "N",
            "Exit statuses of the command that are failures; all others are passes then. A signal is its negative "
            "number")
      .whole_numbers()
      .exclude("--ignore-fail-code");
  table
      .list({"--ignore-fail-code", "--ignore-fail-returncode"}, ignore_fail_codes, "N",
            "Exit statuses that are no failures")
      .whole_numbers()
      .exclude("--fail-code");
  table.list({"--fail-regex"}, fail_regex, "REGEX",
             "A try fails only if the command's output matches one of these (ECMAScript's regular expressions). With "
             "--fail-code both must hold");
  table.flag({"--show-output"}, show_output, "Show the output of the command for tries that passed, too")
      .exclude("--hide-fail-output");
  table.flag({"--hide-fail-output"}, hide_fail_output, "Do not show the output of the command for tries that failed")
      .exclude("--show-output");
}

void ArtifactArgs::declare(OptionTable& table) {
  table.section("Artifact Sorting", "sorting files by verdict.");
  table.list({"--artifacts"}, artifacts, "FILE",
             "Files that are moved to good/ or bad/ after each check, named after date, time and try");
  table.value({"--art-dir", "--artifacts-dir"}, folder, "DIR",
              "Where good/ and bad/ are made (default: polygraphy_artifacts)");
}

void IterationArgs::declare(OptionTable& table) {
  table.section("Iterative Debugging", "trying again and again.");
  table.value({"--iter-artifact", "--intermediate-artifact"}, artifact, "FILE",
              "Where the engine of each try is written (default: polygraphy_debug.engine); must not exist");
  table.flag({"--no-remove-intermediate"}, keep_artifact, "Do not remove that engine after each try");
  table.value({"--iter-info", "--iteration-info"}, info, "FILE",
              "Write the number of the try (JSON, key `iteration`); removed after each try");
  table.value({"--load-debug-replay"}, load_replay, "FILE", "Take the verdicts of the tries in this file");
  table.value({"--save-debug-replay"}, save_replay, "FILE",
              "Where the verdicts of all tries are written (default: polygraphy_debug_replay.json). A second file with "
              "the suffix _skip_current counts the try at hand as failed: load it after a crash");
}

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
  precision.model.declare(table, /*required=*/true, ModelForms::kNetworks);
  precision.onnx.declare(table, OnnxLoadArgs::Scope::kRead);
  precision.data.declare(table);
  precision.config.declare(table, "obey");
  precision.network.declare(table, precision.config.strongly_typed, /*engine=*/false);
  precision.comparison.declare(table);
}

}  // namespace ulpscope::cli
