// Polygraphy's levels between "info" and "warning", for what -q leaves: the beginning of a piece of work and its
// result.
#pragma once

#include <string_view>

#include "ulpscope/log.h"

namespace ulpscope {

inline constexpr LogLevel kStartLevel = static_cast<LogLevel>(22);
inline constexpr LogLevel kFinishLevel = static_cast<LogLevel>(28);

inline void log_start(std::string_view message) { log(kStartLevel, message); }
inline void log_finish(std::string_view message) { log(kFinishLevel, message); }
/// A verdict.
inline void log_result(bool passed, std::string_view message) {
  log(passed ? kFinishLevel : LogLevel::kError, message);
}

}  // namespace ulpscope
