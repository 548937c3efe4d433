#include "args/iterative_debug.h"

namespace ulpscope::cli {

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

}  // namespace ulpscope::cli
