// Tools that try something again and again: what judges a try, and what is kept of it.
#pragma once

#include "args/option_table.h"

namespace ulpscope::cli {

/// The command that says whether a try passed.
struct CheckArgs {
  std::vector<std::string> command;  ///< Empty: somebody is asked.
  std::vector<std::string> fail_codes, ignore_fail_codes;
  std::vector<std::string> fail_regex;
  bool show_output = false, hide_fail_output = false;

  void declare(OptionTable& table);
};

/// Files that are sorted by verdict.
struct ArtifactArgs {
  std::vector<std::string> artifacts;
  std::optional<std::string> folder;

  void declare(OptionTable& table);
};

/// What a try leaves behind.
struct IterationArgs {
  std::optional<std::string> artifact, info, load_replay, save_replay;
  bool keep_artifact = false;

  void declare(OptionTable& table);
  std::string artifact_path() const { return artifact.value_or("polygraphy_debug.engine"); }
  std::string replay_path() const { return save_replay.value_or("polygraphy_debug_replay.json"); }
};

}  // namespace ulpscope::cli
