// The Python process in which scripts, ONNX Runtime and a real TensorRT run.
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "runners/value.h"

namespace ulpscope {

/// Which `tensorrt` a script imports.
enum class Shims : std::uint8_t {
  kFallback,  ///< The installed one, ours where there is none: for data loaders, comparisons and runners.
  kFirst,     ///< Always ours: scripts that edit a network of ulpscope.
};

struct WorkerOptions {
  Shims shims = Shims::kFallback;
  bool one_thread =
      false;  ///< NumPy starts none besides, which takes as long as to import it: for what computes little.
  /// Python to use; empty: the one beside the program (if it belongs to the same environment), else the environment
  /// variable ULPSCOPE_PYTHON, else `python3`.
  std::filesystem::path interpreter;
  /// The folder that holds the package `ulpscope`; empty: ULPSCOPE_PYTHON_PATH, else found near the program, else
  /// whatever the interpreter can import.
  std::filesystem::path python_path;
  /// Limits for the start and for each call (zero: none). Beyond it the worker is killed and the call is an Error. The
  /// start may take as long as a call, too.
  std::chrono::milliseconds start_limit{30000};
  std::chrono::milliseconds call_limit{0};
  /// The limit for scripts that only describe networks and builds, where it is shorter (zero: call_limit).
  std::chrono::milliseconds description_limit{0};
  /// Receives what scripts print. Default: our own stdout and stderr.
  std::function<void(bool is_stderr, std::string_view text)> output;
  /// Asked every 100 ms and whenever a signal interrupts waiting; true kills the worker: Error(kInterrupted).
  std::function<bool()> interrupted;
};

/// What all workers of the process use where their options leave it open. For the program's start (before threads).
void set_default_worker_options(WorkerOptions options);
/// A copy of those defaults, to start from.
WorkerOptions default_worker_options();

/// A worker process. Methods may be called from any thread; calls are serialized. A failure of the process (crash,
/// exit(), time limit) makes the call that meets it, and every later one, an Error(kScript). The destructor ends the
/// process and its children.
class Worker {
 public:
  /// Answers a request that the worker makes during a call. May throw Error: the script sees an exception.
  using Handler = std::function<Value(const std::string& method, const Value& args)>;

  /// Starts the process and waits until it is ready. Throws Error: kNotFound names what is missing (Python, NumPy) and
  /// the command that installs it; kScript when it does not start.
  static std::shared_ptr<Worker> start(WorkerOptions options = default_worker_options());
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  /// Runs `method` in the worker and returns its result; `args` is a map (or null). Tensors travel in shared memory:
  /// one copy on this side when sending, none when receiving.
  /// Throws Error(kScript) with the script's traceback; kNotFound for a missing script, function or Python package;
  /// kInvalidArgument where the worker says so.
  Value call(const std::string& method, Value args = {}, const Handler& handler = {});

  /// A time limit for the following calls, instead of the one in the options.
  void set_call_limit(std::chrono::milliseconds limit);

  bool alive() const noexcept;
  int pid() const noexcept;

 private:
  struct Impl;
  explicit Worker(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace ulpscope
