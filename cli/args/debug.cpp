#include "args/debug.h"

#include <fmt/format.h>

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

void PrecisionOptions::declare_build(OptionTable& table) {
  data.declare(table);
  config.declare(table, "obey");
  network.declare(table, config.strongly_typed, /*engine=*/false);
  comparison.declare(table);
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
              fmt::format("Where what each try is about is written (default: {}); must not exist", usual_artifact));
  table.flag({"--no-remove-intermediate"}, keep_artifact, "Do not remove that file after each try");
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
  precision.declare_build(table);
}

void DebugReduceArgs::declare(OptionTable& table) {
  table.section("Reduction", "what becomes of the model.");
  table.value({"-o", "--output"}, output, "FILE",
              "Where the smallest part that fails is written, with its inputs (FILE.inputs.json) and what they give in "
              "float32 (FILE.golden.json) beside it");
  table.value({"--min-good", "--minimal-good"}, min_good, "FILE",
              "Where a part of about that size that passes is written, if there was one");
  table
      .value({"--mode"}, mode, "MODE",
             "bisect (default): by halves, after which the judge of its own tries what is left one by one; linear: one "
             "node after another, slower, but better with branches")
      .choose({"bisect", "linear"});
  table.flag({"--no-reduce-inputs"}, keep_inputs, "Keep the inputs: find the earliest outputs that fail")
      .exclude("--no-reduce-outputs");
  table.flag({"--no-reduce-outputs"}, keep_outputs, "Keep the outputs: find the latest inputs that fail")
      .exclude("--no-reduce-inputs");
  table.flag({"--force-fallback-shape-inference"}, fixed_shapes,
             "Parts have the shapes of the run that their values come from, dynamic dimensions of the model, too");
  check.declare(table);
  artifacts.declare(table);
  iteration.declare(table);
  criterion.declare(table);
  table.section("Trials", "what judges without --check, and how it runs.");
  precision.python.declare(table);
  precision.model.declare(table, /*required=*/true, ModelForms::kNetworks);
  table.list({"--model-inputs", "--model-input-shapes"}, precision.model.input_shapes, "NAME:[D0,D1,..]",
             "As --input-shapes; parts have fixed shapes then");
  precision.onnx.declare(table, OnnxLoadArgs::Scope::kRead);
  table.words({"--no-shape-inference"}, Arity::kNone, "", "Do not infer shapes at load")
      .ignore("shapes of parts come from a run of the model");
  precision.declare_build(table);
}

}  // namespace ulpscope::cli
