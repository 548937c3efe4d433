// Which Python runs the worker, and the process itself.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "runners/worker.h"

namespace ulpscope {

/// A command line for the worker.
struct WorkerCommand {
  std::string interpreter;             ///< A path, or a name to be found in PATH.
  std::vector<std::string> arguments;  ///< Without the interpreter.
  std::string python_path;             ///< In front of PYTHONPATH; empty: nothing.
};

/// Finds the interpreter and the package as WorkerOptions says. `executable` is the running program (for tests).
WorkerCommand find_worker(const WorkerOptions& options, const std::filesystem::path& executable);
std::filesystem::path current_executable();

/// A child with our ends of its socket (its descriptor 3) and of its output pipes, all non-blocking. It leads a process
/// group of its own, so that Ctrl-C in a terminal reaches us only, and its children can be ended with it.
struct ChildProcess {
  int pid = -1;
  int socket = -1, out = -1, err = -1;
};

/// Throws Error(kNotFound) when the interpreter cannot be run.
ChildProcess spawn_worker(const WorkerCommand& command);

/// "exited with status 3", "was killed by signal 11 (Segmentation fault)".
std::string describe_exit(int wait_status);

}  // namespace ulpscope
