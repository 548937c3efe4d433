// The journal of a search: every finished trial, so that a search killed at any moment goes on where it was.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "ulpscope/answer.h"

namespace ulpscope {
namespace json {
class TrialCoder;
}

/// What two runs of a search must share for one to go on with the trials of the other: pairs of name and value
/// ("model": hash, "metric": ...).
using Fingerprint = std::vector<std::pair<std::string, std::string>>;

/// JSON lines (docs/formats.md): the fingerprint, then one trial per line, each handed to the system in one piece when
/// it is finished. What the system has survives the end of the process, SIGKILL included.
class Journal {
 public:
  /// Keeps nothing on disk.
  Journal();
  ~Journal();
  Journal(Journal&&) noexcept;
  Journal& operator=(Journal&&) noexcept;
  /// Starts a file; an existing one is replaced when the first trial is there, and not before. `names`: of layers in
  /// the network's order, and of outputs; others may appear in trials.
  static Journal create(const std::filesystem::path& path, const Fingerprint& fingerprint,
                        const std::vector<std::string>& names = {});
  /// Goes on with a file. One that is absent, or was cut before its first trial, is started. A last line that was cut
  /// is dropped with a warning. Throws Error(kInvalidArgument) naming the first difference when the fingerprint is
  /// another, Error(kInvalidFile) naming the line for what is no journal.
  static Journal resume(const std::filesystem::path& path, const Fingerprint& fingerprint,
                        const std::vector<std::string>& names = {});

  /// The finished trial on the same samples (Trial::kind, when so many held-out ones had joined the search, and so many
  /// were those of validation), of these raised layers, with these repairs; or null. Valid until the next `add`.
  const Trial* find(TrialKind kind, const RaisedLayers& raised, const std::vector<std::string>& repairs = {},
                    int joined = 0, int validation = 0) const;
  /// Figures that are only shown are rounded, so that a search that goes on sees what this one saw. Throws Error(kIo)
  /// when it cannot be written, also when another process wrote to the file.
  void add(Trial trial);
  const std::vector<Trial>& trials() const noexcept { return trials_; }
  /// Trials that were there when it was resumed.
  std::size_t resumed() const noexcept { return resumed_; }

 private:
  void remember(Trial trial, const RaisedLayers::Marks& marks);

  std::unique_ptr<json::TrialCoder> coder_;
  std::vector<Trial> trials_;
  std::unordered_map<std::string, std::size_t> index_;
  std::filesystem::path path_;
  std::string pending_;      ///< The fingerprint's line, until the first trial.
  std::uintmax_t size_ = 0;  ///< Of the file, as we wrote it.
  std::size_t resumed_ = 0;
};

}  // namespace ulpscope
