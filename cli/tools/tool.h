// One subcommand.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "args/logging.h"
#include "args/option_table.h"

namespace ulpscope::cli {

/// The exit status where a check had nothing to judge.
inline constexpr int kUnjudged = 4;

class Tool {
 public:
  virtual ~Tool() = default;

  /// What the tool's own help says behind its summary.
  virtual std::string description() const { return ""; }

  /// Adds the options, all but those for logging. The tool outlives the table.
  virtual void declare(OptionTable& table) = 0;

  /// Options that do not go together, once all are read and before anything is loaded. Throws UsageError.
  virtual void check_usage() const {}

  /// Whether the lines "RUNNING | Command" and "PASSED | Runtime" frame the run.
  virtual bool announces() const { return false; }

  /// Whether stdout is for what the tool was asked for alone. All log lines go to stderr then, from the first on.
  virtual bool owns_stdout() const { return false; }

  /// The exit status where an Error ends the run.
  virtual int failure_status() const { return 1; }

  /// Throws UsageError, Error. Returns the exit status: 0, or 1 when a check failed.
  virtual int run() = 0;

  std::string name;  ///< ToolEntry::name.
  /// The command line that this run came from, for tools that write it down.
  std::string command;
  std::vector<std::string> words;  ///< Of it, behind the program's name.
};

/// One function per tool; tools.cpp lists them.
std::unique_ptr<Tool> make_convert_tool();
std::unique_ptr<Tool> make_debug_precision_tool();
std::unique_ptr<Tool> make_debug_reduce_tool();
std::unique_ptr<Tool> make_precision_search_tool();
std::unique_ptr<Tool> make_precision_bisect_tool();
std::unique_ptr<Tool> make_precision_linear_tool();
std::unique_ptr<Tool> make_precision_worst_first_tool();
std::unique_ptr<Tool> make_report_tool();
std::unique_ptr<Tool> make_run_tool();
std::unique_ptr<Tool> make_target_measure_tool();
std::unique_ptr<Tool> make_verify_tool();
std::unique_ptr<Tool> make_inspect_model_tool();
std::unique_ptr<Tool> make_inspect_data_tool();
std::unique_ptr<Tool> make_inspect_diff_tool();
std::unique_ptr<Tool> make_trt_network_template_tool();
std::unique_ptr<Tool> make_trt_config_template_tool();
std::unique_ptr<Tool> make_onnx_gs_template_tool();

struct ToolEntry {
  const char* name;     ///< The word on the command line, or two ("template trt-network").
  const char* summary;  ///< One line for the program's help.
  std::unique_ptr<Tool> (*make)();
};

/// All subcommands, in the order of the help text. The only place to add one.
std::span<const ToolEntry> tools();

}  // namespace ulpscope::cli
