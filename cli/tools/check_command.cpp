#include "tools/check_command.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <thread>

#include "core/messages.h"
#include "interrupt.h"
#include "ulpscope/error.h"
#include "ulpscope/log.h"

extern char** environ;

namespace ulpscope::cli {
namespace {

constexpr int kPollMilliseconds = 20;

struct Pipe {
  int read = -1, write = -1;
  Pipe() {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0)
      throw error_of(ErrorCode::kIo, "[check] cannot make a pipe: {}", std::strerror(errno));
    read = ends[0];
    write = ends[1];
    fcntl(read, F_SETFL, O_NONBLOCK);
  }
  ~Pipe() {
    close_write();
    if (read >= 0) close(read);
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  void close_write() {
    if (write >= 0) close(write);
    write = -1;
  }
};

/// Appends what is there; false at the end.
bool drain(int descriptor, std::string& text) {
  std::array<char, 65536> buffer;
  while (true) {
    const ssize_t count = read(descriptor, buffer.data(), buffer.size());
    if (count > 0)
      text.append(buffer.data(), static_cast<std::size_t>(count));
    else if (count == 0)
      return false;
    else if (errno != EINTR)
      return errno == EAGAIN;
  }
}

/// A child that is ended when we are.
class Child {
 public:
  explicit Child(pid_t pid) : pid_(pid) {}
  ~Child() {
    if (pid_ <= 0) return;
    kill(pid_, SIGTERM);
    for (int i = 0; i < 10; ++i) {
      if (exited()) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  bool exited() {
    if (pid_ <= 0) return true;
    const pid_t done = waitpid(pid_, &status_, WNOHANG);
    if (done == 0 || (done < 0 && errno == EINTR)) return false;
    pid_ = -1;
    return true;
  }
  int status() const { return WIFSIGNALED(status_) ? -WTERMSIG(status_) : WEXITSTATUS(status_); }

 private:
  pid_t pid_;
  int status_ = 0;
};

pid_t spawn(const std::vector<std::string>& words, const Pipe& out, const Pipe& err) {
  std::vector<char*> arguments;
  for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, out.write, STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, err.write, STDERR_FILENO);
  pid_t pid = -1;
  const int error = posix_spawnp(&pid, arguments[0], &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0)
    throw error_of(ErrorCode::kNotFound,
                   "[check] '{}': expected a command that can be run, got: {}; try its whole path", words[0],
                   std::strerror(error));
  return pid;
}

std::regex compiled(const std::string& text) {
  try {
#ifdef __GLIBCXX__
    // Its other matcher recurses once per character: long outputs would overflow the stack. This one knows no back
    // references.
    return std::regex(text, std::regex::ECMAScript | std::regex_constants::__polynomial);
#else
    return std::regex(text);
#endif
  } catch (const std::regex_error& error) {
    throw invalid_argument(
        "[check] --fail-regex '{}': expected a regular expression as ECMAScript has them (no back references, no "
        "(?...) but (?:...) and lookahead): {}",
        text, error.what());
  }
}

/// A line of the standard input.
std::string read_verdict() {
  std::string line;
  while (true) {
    char c = 0;
    const ssize_t count = read(STDIN_FILENO, &c, 1);
    check_interrupted();
    if (count < 0 && errno == EINTR) continue;
    if (count == 0 && !line.empty()) return line;  // The last line of a file may end without a newline.
    if (count <= 0)
      throw invalid_argument("[check] expected p or f, got the end of the input; try --check with a command");
    if (c == '\n') return line;
    line += c;
  }
}

char ask(const std::string& question) {
  fmt::print(">>> {} ", question);
  std::fflush(stdout);
  const std::string answer = read_verdict();
  return answer.empty() ? '\0' : static_cast<char>(std::tolower(static_cast<unsigned char>(answer[0])));
}

}  // namespace

CommandOutcome run_command(const std::vector<std::string>& words) {
  Pipe out, err;
  std::fflush(stdout);
  Child child(spawn(words, out, err));
  out.close_write();
  err.close_write();
  CommandOutcome outcome;
  bool out_open = true, err_open = true;
  while (true) {
    // In this order: what was written before the end is read after it.
    const bool ended = child.exited();
    out_open = out_open && drain(out.read, outcome.out);
    err_open = err_open && drain(err.read, outcome.err);
    if (ended) break;
    check_interrupted();
    std::array<pollfd, 2> files{{{out_open ? out.read : -1, POLLIN, 0}, {err_open ? err.read : -1, POLLIN, 0}}};
    poll(files.data(), files.size(), kPollMilliseconds);
  }
  // Ctrl-C in a terminal reaches the command as well: its failure is no verdict.
  check_interrupted();
  outcome.status = child.status();
  return outcome;
}

Check::Check(const CheckArgs& args) : args_(args) {
  for (const std::string& code : args.fail_codes) fail_codes_.push_back(std::stoi(code));
  for (const std::string& code : args.ignore_fail_codes) ignored_codes_.push_back(std::stoi(code));
  for (const std::string& regex : args.fail_regex) regexes_.push_back(compiled(regex));
}

bool Check::failed(const CommandOutcome& outcome) const {
  if (std::ranges::find(ignored_codes_, outcome.status) != ignored_codes_.end()) return false;
  const std::string output = regexes_.empty() ? "" : outcome.out + outcome.err;
  const bool matched =
      std::ranges::any_of(regexes_, [&](const std::regex& regex) { return std::regex_search(output, regex); });
  if (!fail_codes_.empty())
    return std::ranges::find(fail_codes_, outcome.status) != fail_codes_.end() && (regexes_.empty() || matched);
  return regexes_.empty() ? outcome.status != 0 : matched;
}

bool Check::passes(const std::string& subject) const {
  if (args_.command.empty()) {
    char answer = ask(fmt::format("Did '{}' [p]ass or [f]ail?", subject));
    while (answer != 'p' && answer != 'f') answer = ask("Please choose either: 'p' or 'f':");
    return answer == 'p';
  }
  log_info("Running check command: {}", fmt::join(args_.command, " "));
  const CommandOutcome outcome = run_command(args_.command);
  const bool passed = !failed(outcome);
  if (args_.show_output || (!passed && !args_.hide_fail_output)) {
    log_info("========== CAPTURED STDOUT ==========\n" + outcome.out);
    log(passed ? LogLevel::kWarning : LogLevel::kError, "========== CAPTURED STDERR ==========\n" + outcome.err);
  }
  return passed;
}

}  // namespace ulpscope::cli
