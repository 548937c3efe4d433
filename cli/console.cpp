#include "console.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <memory>
#include <mutex>

#include "core/messages.h"
#include "ulpscope/error.h"

namespace ulpscope::cli {
namespace {

struct FileCloser {
  void operator()(std::FILE* file) const { std::fclose(file); }
};

struct Console {
  std::mutex mutex;
  ConsoleOptions options;
  std::unique_ptr<std::FILE, FileCloser> file;
  bool sound = true;
  bool on_stderr = false;
  bool progress_shown = false;
  std::chrono::steady_clock::time_point progress_since;
};

Console& console() {
  static Console instance;
  return instance;
}

struct Style {
  const char* tag;
  const char* color;
};

Style style_of(LogLevel level) {
  if (level >= LogLevel::kCritical) return {"[!]", "\x1b[91m"};
  if (level >= LogLevel::kError) return {"[E]", "\x1b[91m"};
  if (level >= LogLevel::kWarning) return {"[W]", "\x1b[93m"};
  if (level >= kFinishLevel) return {"[I]", "\x1b[92m"};
  if (level >= kStartLevel) return {"[I]", "\x1b[96m"};
  if (level >= LogLevel::kInfo) return {"[I]", ""};
  if (level >= LogLevel::kVerbose) return {"[V]", "\x1b[95m"};
  if (level >= LogLevel::kExtraVerbose) return {"[X]", "\x1b[35m"};
  if (level >= LogLevel::kSuperVerbose) return {"[S]", "\x1b[35m"};
  return {"[U]", "\x1b[90m"};
}

void clear_progress(Console& out) {
  if (!out.progress_shown) return;
  std::fputs("\r\x1b[K", stderr);
  out.progress_shown = false;
}

void write_message(LogLevel level, std::string_view message) {
  Console& out = console();
  const std::lock_guard lock(out.mutex);
  const Style style = style_of(level);
  std::string prefix = fmt::format("{} ", style.tag);
  if (out.options.timestamps) {
    prefix += local_time("(%H:%M:%S) ");
  }
  while (message.ends_with('\n')) message.remove_suffix(1);
  std::string text = prefix;
  for (const char c : message) {
    text += c;
    if (c == '\n') text.append(prefix.size(), ' ');
  }
  std::FILE* stream = level >= LogLevel::kCritical || out.on_stderr ? stderr : stdout;
  const bool colored = out.options.colors && *style.color != '\0' && isatty(fileno(stream)) == 1;
  clear_progress(out);
  const std::string line = colored ? style.color + text + "\x1b[0m\n" : text + "\n";
  if (std::fwrite(line.data(), 1, line.size(), stream) != line.size() || std::fflush(stream) != 0) out.sound = false;
  if (!out.file) return;
  text += '\n';
  if (std::fwrite(text.data(), 1, text.size(), out.file.get()) != text.size() || std::fflush(out.file.get()) != 0)
    out.sound = false;
}

}  // namespace

std::string local_time(const char* form) {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  char text[32];
  return {text, std::strftime(text, sizeof text, form, &local)};
}

void install_console(const ConsoleOptions& options) {
  Console& out = console();
  {
    const std::lock_guard lock(out.mutex);
    out.options = options;
    out.file.reset();
    if (options.file) {
      std::error_code ignored;
      if (options.file->has_parent_path()) std::filesystem::create_directories(options.file->parent_path(), ignored);
      out.file.reset(std::fopen(options.file->c_str(), "w"));
      if (!out.file)
        throw error_of(ErrorCode::kIo, "[options] --log-file: cannot write to '{}': {}; try another path",
                       options.file->string(), std::strerror(errno));
    }
  }
  set_log_sink(write_message);
}

void move_log_to_stderr() {
  const std::lock_guard lock(console().mutex);
  console().on_stderr = true;
}

bool log_is_on_stderr() {
  const std::lock_guard lock(console().mutex);
  return console().on_stderr;
}

bool console_is_sound() {
  const std::lock_guard lock(console().mutex);
  return console().sound && std::fflush(stdout) == 0 && std::ferror(stdout) == 0;
}

Progress::Progress() {
  const std::lock_guard lock(console().mutex);
  console().progress_since = std::chrono::steady_clock::now();
}

Progress::~Progress() {
  const std::lock_guard lock(console().mutex);
  clear_progress(console());
}

void Progress::show(std::string_view text) {
  static const bool terminal = isatty(STDERR_FILENO) == 1;
  if (!terminal || !log_enabled(LogLevel::kInfo)) return;
  Console& out = console();
  const std::lock_guard lock(out.mutex);
  if (std::chrono::steady_clock::now() - out.progress_since < std::chrono::milliseconds(500)) return;
  std::fprintf(stderr, "\r\x1b[K%.*s", static_cast<int>(text.size()), text.data());
  std::fflush(stderr);
  out.progress_shown = true;
}

}  // namespace ulpscope::cli
