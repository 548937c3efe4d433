#include "program.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <iterator>
#include <new>
#include <set>
#include <system_error>

#include "args/logging.h"
#include "args/meant.h"
#include "args/parser.h"
#include "commit.h"
#include "compare/results.h"
#include "console.h"
#include "core/messages.h"
#include "graph/name_match.h"
#include "interrupt.h"
#include "tools/tool.h"
#include "ulpscope/error.h"
#include "ulpscope/log.h"

namespace ulpscope::cli {
namespace {

constexpr int kFailed = 1;
constexpr int kUsage = 2;
constexpr int kDefect = 3;

constexpr char kUsageLine[] = "usage: ulpscope [-h] [--version] TOOL ...\n";

/// How many words name this tool; 0 if they name another.
std::size_t words_of(const ToolEntry& entry, const std::vector<std::string>& words) {
  const std::string name = entry.name;
  if (words[0] == name) return 1;
  return words.size() > 1 && words[0] + " " + words[1] == name ? 2 : 0;
}

/// `debug -v precision MODEL` as `debug precision -v MODEL`: Polygraphy takes options before the second word of a tool.
std::vector<std::string> with_tool_first(std::vector<std::string> words) {
  if (words.size() < 3 || !words[1].starts_with("-")) return words;
  for (auto word = words.begin() + 2; word != words.end(); ++word) {
    const std::string name = words[0] + " " + *word;
    if (std::ranges::any_of(tools(), [&](const ToolEntry& entry) { return entry.name == name; })) {
      std::rotate(words.begin() + 1, word, word + 1);
      break;
    }
  }
  return words;
}

/// The tools that somebody may mean who typed the words of another program, of another version, or in a hurry.
std::vector<std::string> similar_tools(const std::vector<std::string>& words) {
  std::vector<std::string> names, result;
  for (const ToolEntry& entry : tools()) names.emplace_back(entry.name);
  const auto last_word = [](const std::string& name) { return name.substr(name.rfind(' ') + 1); };
  const auto add_where = [&](const auto& fits) {
    if (!result.empty()) return;
    std::ranges::copy_if(names, std::back_inserter(result), fits);
  };
  // `debug search`, `precision serach`, `precision`, `search`.
  if (words.size() > 1) add_where([&](const std::string& name) { return last_word(name) == words[1]; });
  add_where([&](const std::string& name) {
    return words.size() > 1 && name.starts_with(words[0] + " ") &&
           !similar_names(words[1], std::array{last_word(name)}).empty();
  });
  add_where([&](const std::string& name) { return name.starts_with(words[0] + " "); });
  add_where([&](const std::string& name) { return last_word(name) == words[0]; });
  if (!result.empty()) return result;
  // `precison search`, `serach`.
  std::vector<std::string> last_words;
  for (const std::string& name : names) last_words.push_back(last_word(name));
  if (words.size() > 1)
    if (const auto near = similar_names(words[0] + " " + words[1], names); !near.empty()) return near;
  for (const std::string& near : similar_names(words[0], last_words))
    for (const std::string& name : names)
      if (last_word(name) == near && std::ranges::find(result, name) == result.end()) result.push_back(name);
  return result;
}

std::string program_help() {
  std::string text = std::string(kUsageLine) +
                     "\n"
                     "Finds out which layers of a neural network need more precision, and why.\n\n"
                     "options:\n  -h, --help              show this help message and exit\n"
                     "  -v, --version           show the version and exit\n\nTools:\n";
  for (const ToolEntry& entry : tools()) text += fmt::format("  {:<24}{}\n", entry.name, entry.summary);
  return text +
         "\n`ulpscope TOOL --help` shows the options of a tool. Where to begin:\n"
         "    ulpscope precision search MODEL.onnx --fp16 --load-inputs SAMPLES.npz\n";
}

/// For `ulpscope GROUP --help`: the tools of two words that begin with this one; empty if there are none.
std::string group_help(const std::string& group) {
  std::string text;
  for (const ToolEntry& entry : tools())
    if (std::string_view(entry.name).starts_with(group + " "))
      text += fmt::format("  {:<24}{}\n", entry.name, entry.summary);
  if (text.empty()) return "";
  return fmt::format(
      "usage: ulpscope {} [-h] TOOL ...\n\nTools:\n{}\n`ulpscope {} TOOL --help` shows the options of a tool.\n", group,
      text, group);
}

/// Of a tool of two words, behind options: " precision" of `debug -v precision`.
std::string second_word(const std::vector<std::string>& words) {
  const auto word = std::find_if(words.begin() + 1, words.end(), [](const auto& w) { return !w.starts_with("-"); });
  return word == words.end() ? "" : " " + *word;
}

/// Polygraphy's tools without a counterpart, by their first words or both (docs/cli/polygraphy.md).
constexpr std::array kOnlyInPolygraphy{"surgeon",          "check",           "plugin",
                                       "data concat",      "data merge",      "multi-device",
                                       "debug build",      "debug repeat",    "inspect capability",
                                       "inspect sparsity", "inspect tactics", "inspect diff-tactics"};

/// What to type instead of a tool that is not there.
std::string instead_of(const std::vector<std::string>& words) {
  const std::string both = words[0] + second_word(words);
  for (const std::string_view tool : kOnlyInPolygraphy)
    if (tool == words[0] || tool == both)
      return fmt::format("; it is Polygraphy's: 'polygraphy {}' reads the files that ulpscope writes", tool);
  std::vector<std::string> near = similar_tools(words);
  for (std::string& name : near) name = fmt::format("'ulpscope {}'", name);
  return near.empty() ? "" : fmt::format("; did you mean {}?", fmt::join(near, " or "));
}

int usage_error(const std::string& usage, const std::string& program, const std::string& message) {
  fmt::print(stderr, "{}{}: error: {}\n", usage, program, message);
  return kUsage;
}

/// Runs `body`; what it throws becomes a message and an exit status, `failed` for what is not right outside of
/// ulpscope.
template <typename Body>
int guarded(int failed, Body&& body) {
  try {
    return body();
  } catch (const Error& error) {
    // After a signal, failures are its consequences.
    if (error.code() == ErrorCode::kInterrupted || interrupted()) {
      log(LogLevel::kCritical, "Interrupted.");
      return kInterruptedStatus;
    }
    log(LogLevel::kCritical, error.what());
    return failed;
  } catch (const std::bad_alloc&) {
    log(LogLevel::kCritical, "Out of memory; try smaller inputs or fewer outputs.");
    return failed;
  } catch (const std::system_error& error) {
    log(LogLevel::kCritical, error.what());
    return failed;
  } catch (const UsageError&) {
    throw;
  } catch (const std::exception& error) {
    log(LogLevel::kCritical, fmt::format("{}\nThis is a defect of ulpscope, please report it with the command and the "
                                         "model.",
                                         error.what()));
    return kDefect;
  }
}

int run_tool(Tool& tool, const LoggingArgs& logging, const Arguments& parsed, const std::vector<std::string>& words) {
  const std::string command = fmt::format("{}", fmt::join(words, " "));
  const auto start = std::chrono::steady_clock::now();
  return guarded(tool.failure_status(), [&] {
    logging.apply();
    if (tool.owns_stdout()) move_log_to_stderr();
    tool.command = command;
    tool.words.assign(words.begin() + 1, words.end());
    std::set<const Option*> warned;
    for (const auto& [option, values] : parsed.occurrences)
      if (option->support == Support::kIgnored && warned.insert(option).second)
        log_warning("[options] {} has no effect: {}", option->names[0], option->instead);
    if (tool.announces()) log(kStartLevel, "RUNNING | Command: " + command);
    int status = guarded(tool.failure_status(), [&] {
      for (const auto& [option, values] : parsed.occurrences)
        if (option->support == Support::kRefused)
          throw unsupported("[options] {}: {}", option->names[0], option->instead);
      for (const auto& [option, values] : parsed.occurrences)
        if (option->check) option->check(option->names[0], values);
      return tool.run();
    });
    if (status == 0 && !console_is_sound()) {
      std::fputs("[!] The log could not be written completely; is the disk full?\n", stderr);
      status = tool.failure_status();
    }
    if (tool.announces() && status != kInterruptedStatus) {
      const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
      log(status == 0 ? kFinishLevel : LogLevel::kError,
          fmt::format("{} | Runtime: {:.3f}s | Command: {}", status == 0 ? "PASSED" : "FAILED", seconds, command));
    }
    return status;
  });
}

}  // namespace

int run_program(const std::vector<std::string>& words) {
  install_console({});
  const std::vector<std::string> rest = with_tool_first(std::vector<std::string>(words.begin() + 1, words.end()));
  if (rest.empty()) return usage_error(kUsageLine, "ulpscope", "expected a tool, see --help");
  if (rest[0] == "-h" || rest[0] == "--help") {
    fmt::print("{}", program_help());
    return 0;
  }
  if (rest[0] == "-v" || rest[0] == "--version") {
    fmt::print("ulpscope {}{}\n", ULPSCOPE_VERSION, commit().empty() ? "" : fmt::format(" (commit {})", commit()));
    return 0;
  }
  for (const ToolEntry& entry : tools()) {
    const std::size_t used = words_of(entry, rest);
    if (used == 0) continue;
    const std::unique_ptr<Tool> tool = entry.make();
    LoggingArgs logging;
    tool->name = entry.name;
    OptionTable table("ulpscope " + tool->name, entry.summary + tool->description());
    logging.declare(table);
    tool->declare(table);
    try {
      const std::vector<std::string> arguments(rest.begin() + static_cast<std::ptrdiff_t>(used), rest.end());
      const Arguments parsed = parse(table, arguments);
      if (parsed.help) {
        fmt::print("{}", table.help(parsed.help_all));
        return 0;
      }
      if (!parsed.unrecognized.empty()) {
        log_error("Unrecognized Options: " + python_list(parsed.unrecognized) + meant_options(table, parsed));
        // Polygraphy's status, but where that says something else.
        return tool->failure_status() == kFailed ? kFailed : kUsage;
      }
      tool->check_usage();
      install_interrupt_handler();
      return run_tool(*tool, logging, parsed, words);
    } catch (const UsageError& error) {
      return usage_error(table.usage(), table.program(), error.what());
    }
  }
  if (rest.size() > 1 && (rest[1] == "-h" || rest[1] == "--help"))
    if (const std::string help = group_help(rest[0]); !help.empty()) {
      fmt::print("{}", help);
      return 0;
    }
  std::string known;
  bool group = false;  // of tools of two words
  for (const ToolEntry& entry : tools()) {
    known += fmt::format("{}'{}'", known.empty() ? "" : ", ", entry.name);
    group = group || std::string(entry.name).starts_with(rest[0] + " ");
  }
  return usage_error(kUsageLine, "ulpscope",
                     fmt::format("argument TOOL: invalid choice: '{}' (choose from {}){}",
                                 group ? rest[0] + second_word(rest) : rest[0], known, instead_of(rest)));
}

}  // namespace ulpscope::cli
