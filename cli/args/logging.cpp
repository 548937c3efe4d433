#include "args/logging.h"

#include <fmt/format.h>

#include <algorithm>

#include "compare/name_values.h"
#include "console.h"
#include "core/messages.h"

namespace ulpscope::cli {
namespace {

constexpr int kDefaultIndex = 4;

LogLevel level_from_name(std::string name) {
  for (char& c : name) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  for (const NamedLevel& known : kLogLevels)
    if (known.name == name) return known.level;
  std::string known;
  for (const NamedLevel& level : kLogLevels) known += fmt::format(" {}", level.name);
  throw invalid_argument("[options] --verbosity: expected one of{}, got '{}'", known, name);
}

}  // namespace

void LoggingArgs::declare(OptionTable& table) {
  table.section("Logging", "logging and debug output");
  table.count({"-v", "--verbose"}, verbose,
              "Increase logging verbosity; may be repeated. With -v the report of every "
              "layer (precision, reason, group, tactic) is shown");
  table.count({"-q", "--quiet"}, quiet, "Decrease logging verbosity; may be repeated");
  table.list({"--verbosity"}, verbosity, "LEVEL",
             "Level by name: ultra_verbose, super_verbose, extra_verbose, verbose, info, start, finish, warning, error "
             "or critical. Wins over -v and -q. Levels for single paths (path:LEVEL) are accepted and have no effect");
  table.flag({"--silent"}, silent, "No output on stdout; only what ends a run early is still said on stderr");
  table
      .list({"--log-format"}, format, "FORMAT",
            "timestamp: put the time before each line; no-colors: no colors on "
            "terminals; line-info: accepted, has no effect")
      .choose({"timestamp", "line-info", "no-colors"});
  table.value({"--log-file"}, file, "FILE", "Also write the log to this file; missing folders are created");
}

void LoggingArgs::apply() const {
  ConsoleOptions options;
  options.timestamps = std::ranges::find(format, "timestamp") != format.end();
  options.colors = std::ranges::find(format, "no-colors") == format.end();
  if (file) options.file = *file;
  install_console(options);

  const int index = std::clamp(kDefaultIndex - verbose + quiet, 0, static_cast<int>(kLogLevels.size()) - 1);
  LogLevel level = kLogLevels[index].level;
  for (const std::string& word : verbosity) {
    const auto [path, name] = split_name(word);
    const LogLevel named = level_from_name(name);
    if (path.empty()) level = named;
  }
  set_log_level(silent ? LogLevel::kCritical : level);
}

}  // namespace ulpscope::cli
