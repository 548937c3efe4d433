#include "ulpscope/log.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <unordered_set>

namespace ulpscope {
namespace {

std::mutex log_mutex;
LogSink log_sink;
std::atomic<int> log_threshold{static_cast<int>(LogLevel::kInfo)};
thread_local int log_indent = 0;
thread_local int log_floor = 0;

std::string indented(std::string_view message) {
  const std::string margin(static_cast<std::size_t>(log_indent) * 4, ' ');
  std::string result = margin;
  for (char c : message) {
    result += c;
    if (c == '\n') result += margin;
  }
  return result;
}

}  // namespace

void set_log_sink(LogSink sink) {
  const std::lock_guard lock(log_mutex);
  log_sink = std::move(sink);
}

void set_log_level(LogLevel level) noexcept { log_threshold = static_cast<int>(level); }

bool log_enabled(LogLevel level) noexcept {
  return static_cast<int>(level) >= log_threshold && static_cast<int>(level) >= log_floor;
}

void log(LogLevel level, std::string_view message) {
  if (!log_enabled(level)) return;
  const std::string text = indented(message);
  const std::lock_guard lock(log_mutex);
  if (log_sink) log_sink(level, text);
}

void log_once(LogLevel level, std::string_view message) {
  if (!log_enabled(level)) return;
  static std::unordered_set<std::string> seen;
  {
    const std::lock_guard lock(log_mutex);
    if (!seen.emplace(message).second) return;
  }
  log(level, message);
}

LogFloor::LogFloor(LogLevel level) noexcept : before_(log_floor) {
  log_floor = std::max(before_, static_cast<int>(level));
}
LogFloor::~LogFloor() { log_floor = before_; }

LogIndent::LogIndent(int levels) noexcept : levels_(levels) { log_indent += levels_; }
LogIndent::~LogIndent() { log_indent -= levels_; }

}  // namespace ulpscope
