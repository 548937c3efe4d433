// The file of --save-timing-cache: what groups and algorithms take.
#pragma once

#include <map>
#include <string>

namespace ulpscope {

/// An algorithm that was the fastest when a backend measured several.
struct MeasuredTactic {
  std::string algorithm;    ///< As in StepTactic.
  double microseconds = 0;  ///< Of one call.
  friend bool operator==(const MeasuredTactic&, const MeasuredTactic&) = default;
};

/// By what they compute, as in StepTactic.
using MeasuredTactics = std::map<std::string, MeasuredTactic>;

struct TimingCache {
  std::string source;                                              ///< The file, for messages; it is not part of it.
  std::map<std::string, std::map<std::string, double>> estimated;  ///< Microseconds of groups, by target.
  /// By the device that was measured, with the versions of its driver and libraries.
  std::map<std::string, MeasuredTactics> measured;
};

/// Throws Error(kInvalidFile) saying what was expected where.
TimingCache timing_cache_from_json(const std::string& text);
std::string to_json(const TimingCache& cache);

}  // namespace ulpscope
