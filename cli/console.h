// What the program shows: log lines on the terminal and in a file, and progress.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "compare/log_levels.h"
#include "ulpscope/log.h"

namespace ulpscope::cli {

struct ConsoleOptions {
  bool timestamps = false;
  bool colors = true;  ///< On terminals only.
  std::optional<std::filesystem::path> file;
};

/// Installs the log sink: "[I] text" lines on stdout, critical ones on stderr; further lines of a message are aligned
/// below the first. May be called again with other options. Throws Error(kIo) when the log file cannot be opened.
void install_console(const ConsoleOptions& options);

/// From now on all log lines go to stderr, and what scripts print: stdout is for what the tool was asked for.
void move_log_to_stderr();
bool log_is_on_stderr();

/// True if everything that was written to stdout and to the log file got there.
bool console_is_sound();

/// The time of the day here and now, as strftime writes it.
std::string local_time(const char* form);

/// A line on stderr that is overwritten, when stderr is a terminal; else nothing. Shown from half a second on.
class Progress {
 public:
  Progress();
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  void show(std::string_view text);
};

}  // namespace ulpscope::cli
