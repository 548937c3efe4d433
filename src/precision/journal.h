// The journal of a search: every finished trial, so that a search killed at any moment goes on where it was.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "precision/criterion.h"

namespace ulpscope {

/// One run of the network over all samples.
struct Trial {
  /// What it was for: "search", "hold-out", "layer" (one layer low), "shrink", "fallback", "repair".
  std::string kind;
  /// The layers above the lowest precision: name and precision ("fp32"), in the network's order.
  std::vector<std::pair<std::string, std::string>> raised;
  Judgement judgement;
  double margin = 1;  ///< It passed if judgement.passed(margin).
  double seconds = 0;
  double time_us = 0;     ///< Estimated on the target.
  double cost_share = 0;  ///< Of the multiply-adds, in raised layers.
};

/// What two runs of a search must share for one to go on with the trials of the other: pairs of name and value
/// ("model": hash, "metric": ...).
using Fingerprint = std::vector<std::pair<std::string, std::string>>;

/// JSON lines: the fingerprint, then one trial per line, each written and flushed when it is finished.
class Journal {
 public:
  /// Keeps nothing on disk.
  Journal() = default;
  /// Starts a file (an existing one is replaced only when the first trial is there), or goes on with one: throws Error
  /// naming the first difference when its fingerprint is another; a truncated last line is dropped.
  static Journal create(const std::filesystem::path& path, const Fingerprint& fingerprint);
  static Journal resume(const std::filesystem::path& path, const Fingerprint& fingerprint);

  /// The finished trial of this kind of samples ("hold-out" or not) and these raised layers.
  const Trial* find(const std::string& kind, const std::vector<std::pair<std::string, std::string>>& raised) const;
  /// Throws Error(kIo) when it cannot be written.
  void add(Trial trial);
  const std::vector<Trial>& trials() const noexcept { return trials_; }

 private:
  std::vector<Trial> trials_;
  std::map<std::string, std::size_t> index_;
  std::filesystem::path path_;
  std::string pending_;  ///< The fingerprint's line, until the first trial.
};

}  // namespace ulpscope
