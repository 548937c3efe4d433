// Where the library's messages go. The library never prints: it calls the sink that the program installed.
#pragma once

#include <functional>
#include <string_view>

#include "ulpscope/export.h"

namespace ulpscope {

/// Polygraphy's levels, from most to least talkative; the letter is the tag in front of a line ("[V] ...").
enum class LogLevel : int {
  kUltraVerbose = 0,  ///< U
  kSuperVerbose = 5,  ///< S
  kExtraVerbose = 8,  ///< X
  kVerbose = 10,      ///< V
  kInfo = 20,         ///< I, the default
  kWarning = 30,      ///< W
  kError = 40,        ///< E
  kCritical = 50,     ///< !
};

/// Receives every message at or above the level; `message` may have several lines and starts with its indentation.
/// Called under a lock: messages of several threads do not mix.
using LogSink = std::function<void(LogLevel level, std::string_view message)>;

/// Installs the sink (none: messages are dropped, the state at start) and the level.
ULPSCOPE_API void set_log_sink(LogSink sink);
ULPSCOPE_API void set_log_level(LogLevel level) noexcept;
ULPSCOPE_API bool log_enabled(LogLevel level) noexcept;

/// Hands one message to the sink, indented by four spaces per open LogIndent of this thread.
ULPSCOPE_API void log(LogLevel level, std::string_view message);
/// As `log`, but only the first time that this very text comes up in the process.
ULPSCOPE_API void log_once(LogLevel level, std::string_view message);

inline void log_verbose(std::string_view message) { log(LogLevel::kVerbose, message); }
inline void log_info(std::string_view message) { log(LogLevel::kInfo, message); }
inline void log_warning(std::string_view message) { log(LogLevel::kWarning, message); }
inline void log_error(std::string_view message) { log(LogLevel::kError, message); }

/// Drops the messages of this thread below a level while it lives.
class ULPSCOPE_API LogFloor {
 public:
  explicit LogFloor(LogLevel level) noexcept;
  ~LogFloor();
  LogFloor(const LogFloor&) = delete;
  LogFloor& operator=(const LogFloor&) = delete;

 private:
  int before_;
};

/// Indents the messages of this thread by one more level while it lives.
class ULPSCOPE_API LogIndent {
 public:
  explicit LogIndent(int levels = 1) noexcept;
  ~LogIndent();
  LogIndent(const LogIndent&) = delete;
  LogIndent& operator=(const LogIndent&) = delete;

 private:
  int levels_;
};

}  // namespace ulpscope
