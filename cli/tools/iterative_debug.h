// One try after another, with what Polygraphy's `debug` keeps of each: artifacts, iteration info, replay.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "args/debug.h"

namespace ulpscope::cli {

/// Verdicts of tries by their keys ("_N0", "_N1", ..., those of a phase "_N0_inputs", ...), in the order of the tries:
/// Polygraphy's debug replay.
using DebugReplay = std::vector<std::pair<std::string, bool>>;

/// Throws Error(kNotFound), Error(kInvalidFile) saying what is wrong.
DebugReplay load_debug_replay(const std::string& path);
std::string debug_replay_to_json(const DebugReplay& replay);

class DebugIterations {
 public:
  /// Loads --load-debug-replay. With `writes_artifact`, refuses to overwrite the engine file. The arguments outlive it.
  /// Throws Error.
  DebugIterations(const ArtifactArgs& artifacts, const IterationArgs& iteration, bool writes_artifact);

  /// Keys of tries from now on end in "_PHASE", and count from the last one of that phase on.
  void enter_phase(const std::string& phase) { phase_ = "_" + phase; }

  /// One try: the replay's verdict if there is one; else `make` writes the artifact (false: it could not be made, which
  /// fails the try without a check) and `check` judges. Files are written whole or not at all, and removed however the
  /// try ends; the replay is written before and after the check.
  bool attempt(int remaining, const std::function<bool()>& make, const std::function<bool()>& check);

  /// "Finished 3 iteration(s) | ...".
  void finish() const;

 private:
  void save_replay(const std::string& suffix) const;
  void sort_artifacts(bool passed, const std::string& key);

  const ArtifactArgs& artifacts_;
  const IterationArgs& iteration_;
  bool writes_artifact_;
  std::string date_and_time_;
  DebugReplay replay_;
  std::string phase_;
  std::map<std::string, int> tries_;  ///< Per phase.
  int count_ = 0, passed_ = 0;
};

}  // namespace ulpscope::cli
