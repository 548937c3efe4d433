// One try after another, with what Polygraphy's `debug` keeps of each: artifacts, iteration info, replay.
#pragma once

#include <functional>
#include <map>
#include <string>

#include "args/debug.h"

namespace ulpscope::cli {

/// Verdicts of tries, by their keys "_N0", "_N1", ...: Polygraphy's debug replay.
using DebugReplay = std::map<std::string, bool>;

/// Throws Error(kNotFound), Error(kInvalidFile) saying what is wrong.
DebugReplay load_debug_replay(const std::string& path);
std::string debug_replay_to_json(const DebugReplay& replay);

class DebugIterations {
 public:
  /// Loads --load-debug-replay. With `writes_artifact`, refuses to overwrite the engine file. The arguments outlive it.
  /// Throws Error.
  DebugIterations(const ArtifactArgs& artifacts, const IterationArgs& iteration, bool writes_artifact);

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
  int count_ = 0, passed_ = 0;
};

}  // namespace ulpscope::cli
