#include "tools/run_plots.h"

#include <fmt/format.h>

#include "console.h"
#include "core/messages.h"
#include "ulpscope/log.h"

namespace ulpscope::cli {
namespace {

/// Paths are relative to the working directory, which the worker may have left.
std::string absolute(const std::optional<std::string>& folder) {
  return folder ? std::filesystem::absolute(*folder).string() : "";
}

void log_files(const Value& files, const std::string& what) {
  for (const std::string& file : files.strings()) log_info("Saving {} to: '{}'", what, file);
}

/// NumPy has no narrow floats to draw.
Tensor drawable(const Tensor& tensor) { return tensor.cast(DataType::kFloat64); }

}  // namespace

std::function<void(const ComparedOutput&)> make_plotter(const ComparisonArgs& args, ScriptHost& host) {
  if (!args.plots()) return {};
  const std::shared_ptr<Worker> worker = host.data_worker();
  std::vector<std::string> folders;
  for (const auto* folder : {&args.save_heatmaps, &args.save_error_metrics_plot})
    if (*folder) folders.push_back(absolute(*folder));
  const bool show = args.show_heatmaps || args.show_error_metrics_plot;
  worker->call("check_plots", Value::Map{{"show", show}, {"folders", Value::of_strings(folders)}});
  return [&args, worker, show](const ComparedOutput& output) {
    // Windows stay open as long as somebody looks at them.
    if (show) worker->set_call_limit(std::chrono::milliseconds(0));
    if (args.save_error_metrics_plot || args.show_error_metrics_plot) {
      log(kStartLevel, fmt::format("Building error metrics plot for {}. This may take a while...", output.name));
      const LogIndent indent;
      log_files(worker->call("error_metrics", Value::Map{{"absolute", drawable(output.absolute)},
                                                         {"relative", drawable(output.relative)},
                                                         {"reference", drawable(output.reference)},
                                                         {"first", output.first.runner_name},
                                                         {"second", output.second.runner_name},
                                                         {"output", output.name},
                                                         {"other_output", output.other_name},
                                                         {"folder", absolute(args.save_error_metrics_plot)},
                                                         {"show", args.show_error_metrics_plot}}),
                "error metrics plot");
    }
    if (!args.save_heatmaps && !args.show_heatmaps) return;
    const auto draw = [&](const char* kind, const Tensor& error, bool log_scale) {
      const std::string title = fmt::format("{} Error | {}", kind, output.name);
      log(kStartLevel, fmt::format("Building heatmaps for {}. This may take a while...", title));
      const LogIndent indent;
      log_files(worker->call("heatmaps", Value::Map{{"array", drawable(error)},
                                                    {"title", title},
                                                    {"folder", absolute(args.save_heatmaps)},
                                                    {"show", args.show_heatmaps},
                                                    {"log_scale", log_scale}}),
                fmt::format("'{}' heatmap", title));
    };
    draw("Absolute", output.absolute, false);
    draw("Relative", output.relative, true);
  };
}

}  // namespace ulpscope::cli
