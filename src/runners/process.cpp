#include "runners/process.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include "compare/log_levels.h"
#include "core/messages.h"
#include "ulpscope/error.h"

extern char** environ;

namespace ulpscope {
namespace fs = std::filesystem;
namespace {

constexpr int kChildSocket = 3;
constexpr int kLevelsUp = 6;

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string() : std::string(value);
}

bool is_there(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

/// The folder and the folders around it.
std::vector<fs::path> ancestors(fs::path folder) {
  std::vector<fs::path> result;
  for (int i = 0; i < kLevelsUp && !folder.empty(); ++i) {
    result.push_back(folder);
    if (folder == folder.parent_path()) break;
    folder = folder.parent_path();
  }
  return result;
}

bool has_worker(const fs::path& python_path) { return is_there(python_path / "ulpscope" / "worker" / "__main__.py"); }

/// True for the root of an installation whose Python packages include ours.
bool installs_worker(const fs::path& root) {
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(root / "lib", ignored)) {
    if (entry.path().filename().string().rfind("python3", 0) != 0) continue;
    if (has_worker(entry.path() / "site-packages") || has_worker(entry.path() / "dist-packages")) return true;
  }
  return false;
}

std::string find_interpreter(const fs::path& executable) {
  for (const fs::path& folder : ancestors(executable.parent_path())) {
    const fs::path beside = folder / "bin" / "python3";
    if (is_there(beside) && (is_there(folder / "pyvenv.cfg") || installs_worker(folder))) return beside.string();
  }
  if (const std::string named = environment("ULPSCOPE_PYTHON"); !named.empty()) return named;
  for (const fs::path& folder : ancestors(executable.parent_path())) {  // a build inside of the source tree
    const fs::path own = folder / ".venv" / "bin" / "python3";
    if (has_worker(folder / "python") && is_there(own)) return own.string();
  }
  return "python3";
}

/// The shared library with this code, where another program uses it; else empty.
fs::path current_library() {
  Dl_info info{};
  if (::dladdr(reinterpret_cast<const void*>(&current_library), &info) == 0 || info.dli_fname == nullptr) return {};
  std::error_code ignored;
  return fs::equivalent(info.dli_fname, current_executable(), ignored) ? fs::path() : fs::path(info.dli_fname);
}

fs::path find_python_path(const fs::path& executable) {
  if (const std::string named = environment("ULPSCOPE_PYTHON_PATH"); !named.empty()) return named;
  for (const fs::path& file : {executable, current_library()})
    for (const fs::path& folder : ancestors(file.parent_path()))
      for (const fs::path& candidate : {folder / "lib" / "ulpscope" / "python", folder / "python", folder})
        if (has_worker(candidate)) return candidate;
  return {};
}

void set_nonblocking(int descriptor) { ::fcntl(descriptor, F_SETFL, ::fcntl(descriptor, F_GETFL) | O_NONBLOCK); }

[[noreturn]] void system_failure(const char* what) {
  throw error_of(ErrorCode::kIo, "[script] worker: {} failed: {}", what, std::strerror(errno));
}

std::vector<std::string> child_environment(const WorkerCommand& command) {
  std::vector<std::string> result;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    if (!command.python_path.empty() && text.rfind("PYTHONPATH=", 0) == 0) continue;
    result.emplace_back(text);
  }
  if (!command.python_path.empty()) {
    const std::string old = environment("PYTHONPATH");
    result.push_back("PYTHONPATH=" + command.python_path + (old.empty() ? "" : ":" + old));
  }
  return result;
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> result;
  for (std::string& text : texts) result.push_back(text.data());
  result.push_back(nullptr);
  return result;
}

}  // namespace

fs::path current_executable() {
  std::error_code ignored;
  return fs::read_symlink("/proc/self/exe", ignored);
}

WorkerCommand find_worker(const WorkerOptions& options, const fs::path& executable) {
  WorkerCommand command;
  command.interpreter = options.interpreter.empty() ? find_interpreter(executable) : options.interpreter.string();
  const fs::path python_path = options.python_path.empty() ? find_python_path(executable) : options.python_path;
  if (python_path.empty()) {
    command.arguments = {"-m", "ulpscope.worker"};
  } else {
    // By file: the package around it, with its compiled module, need not be there.
    command.arguments = {(python_path / "ulpscope" / "worker" / "__main__.py").string()};
    if (is_there(python_path / "ulpscope" / "__init__.py")) command.python_path = python_path.string();
  }
  command.arguments.push_back(options.shims == Shims::kFirst ? "--shims=first" : "--shims=fallback");
  command.arguments.push_back(fmt::format("--log-level={}", least_log_level()));
  if (options.one_thread) command.arguments.emplace_back("--one-thread");
  return command;
}

ChildProcess spawn_worker(const WorkerCommand& command) {
  int sockets[2], out[2], err[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) != 0) system_failure("socketpair");
  if (::pipe2(out, O_CLOEXEC) != 0) {
    ::close(sockets[0]), ::close(sockets[1]);
    system_failure("pipe");
  }
  if (::pipe2(err, O_CLOEXEC) != 0) {
    ::close(sockets[0]), ::close(sockets[1]), ::close(out[0]), ::close(out[1]);
    system_failure("pipe");
  }

  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, out[1], 1);
  posix_spawn_file_actions_adddup2(&actions, err[1], 2);
  posix_spawn_file_actions_adddup2(&actions, sockets[1], kChildSocket);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t none, reset;
  sigemptyset(&none);
  sigemptyset(&reset);
  for (int number : {SIGINT, SIGTERM, SIGPIPE, SIGHUP, SIGQUIT, SIGCHLD}) sigaddset(&reset, number);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &reset);
  posix_spawnattr_setpgroup(&attributes, 0);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);

  std::vector<std::string> words{command.interpreter};
  words.insert(words.end(), command.arguments.begin(), command.arguments.end());
  std::vector<std::string> variables = child_environment(command);
  ChildProcess child;
  const int failure = ::posix_spawnp(&child.pid, command.interpreter.c_str(), &actions, &attributes,
                                     pointers(words).data(), pointers(variables).data());
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  ::close(sockets[1]), ::close(out[1]), ::close(err[1]);
  if (failure != 0) {
    ::close(sockets[0]), ::close(out[0]), ::close(err[0]);
    throw error_of(
        ErrorCode::kNotFound,
        "[script] worker: expected a Python interpreter, got '{}': {}; ONNX Runtime and scripts need Python 3.9 or "
        "later: install it (apt install python3 python3-venv) or name one in the environment variable ULPSCOPE_PYTHON",
        command.interpreter, std::strerror(failure));
  }
  child.socket = sockets[0];
  child.out = out[0];
  child.err = err[0];
  set_nonblocking(child.socket);
  set_nonblocking(child.out);
  set_nonblocking(child.err);
  return child;
}

std::string describe_exit(int wait_status) {
  if (WIFEXITED(wait_status)) return fmt::format("exited with status {}", WEXITSTATUS(wait_status));
  if (WIFSIGNALED(wait_status))
    return fmt::format("was killed by signal {} ({})", WTERMSIG(wait_status), ::strsignal(WTERMSIG(wait_status)));
  return "ended";
}

}  // namespace ulpscope
