// Polygraphy's levels: their names, and two between "info" and "warning" for what -q leaves, the beginning of a piece
// of work and its result.
#pragma once

#include <array>
#include <string_view>

#include "ulpscope/log.h"

namespace ulpscope {

inline constexpr LogLevel kStartLevel = static_cast<LogLevel>(22);
inline constexpr LogLevel kFinishLevel = static_cast<LogLevel>(28);

struct NamedLevel {
  std::string_view name;
  LogLevel level;
};
/// From the most to the least talkative.
inline constexpr std::array<NamedLevel, 10> kLogLevels{{{"ULTRA_VERBOSE", LogLevel::kUltraVerbose},
                                                        {"SUPER_VERBOSE", LogLevel::kSuperVerbose},
                                                        {"EXTRA_VERBOSE", LogLevel::kExtraVerbose},
                                                        {"VERBOSE", LogLevel::kVerbose},
                                                        {"INFO", LogLevel::kInfo},
                                                        {"START", kStartLevel},
                                                        {"FINISH", kFinishLevel},
                                                        {"WARNING", LogLevel::kWarning},
                                                        {"ERROR", LogLevel::kError},
                                                        {"CRITICAL", LogLevel::kCritical}}};

/// The name of the least level that is logged.
inline std::string_view least_log_level() {
  for (const NamedLevel& each : kLogLevels)
    if (log_enabled(each.level)) return each.name;
  return kLogLevels.back().name;
}

inline void log_start(std::string_view message) { log(kStartLevel, message); }
inline void log_finish(std::string_view message) { log(kFinishLevel, message); }
/// A verdict.
inline void log_result(bool passed, std::string_view message) {
  log(passed ? kFinishLevel : LogLevel::kError, message);
}

}  // namespace ulpscope
