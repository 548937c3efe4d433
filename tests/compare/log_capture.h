// Collects the library's messages while it lives.
#pragma once

#include <string>
#include <vector>

#include "ulpscope/log.h"

namespace ulpscope {

class LogCapture {
 public:
  explicit LogCapture(LogLevel level = LogLevel::kInfo) {
    set_log_level(level);
    set_log_sink([this](LogLevel of_line, std::string_view message) {
      const char letter = of_line >= LogLevel::kError     ? 'E'
                          : of_line >= LogLevel::kWarning ? 'W'
                          : of_line >= LogLevel::kInfo    ? 'I'
                                                          : 'V';
      lines_.push_back(std::string("[") + letter + "] " + std::string(message));
    });
  }
  ~LogCapture() {
    set_log_sink(nullptr);
    set_log_level(LogLevel::kInfo);
  }
  LogCapture(const LogCapture&) = delete;
  LogCapture& operator=(const LogCapture&) = delete;

  const std::vector<std::string>& lines() const { return lines_; }
  /// True if a line contains the text.
  bool has(std::string_view text) const {
    for (const std::string& line : lines_)
      if (line.find(text) != std::string::npos) return true;
    return false;
  }

 private:
  std::vector<std::string> lines_;
};

}  // namespace ulpscope
