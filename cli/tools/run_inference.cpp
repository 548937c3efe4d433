#include "tools/run_inference.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "backend/cpu/limits.h"
#include "compare/data_loader.h"
#include "console.h"
#include "core/file.h"
#include "core/messages.h"
#include "interrupt.h"
#include "runners/engine_runner.h"
#include "runtime/engine.h"
#include "tools/network_setup.h"
#include "ulpscope/log.h"

namespace ulpscope::cli {
namespace {

/// Of the time that the machine needs at least, in what the step took.
double share_of_limit(const Engine::StepProfile& step, const cpu::MachineLimits& limits) {
  const double least = std::max(step.multiply_adds / limits.multiply_adds, step.bytes / limits.bytes);
  return step.microseconds > 0 ? least / step.microseconds : 0;
}

double gflops(const Engine::StepProfile& step) {
  return step.microseconds > 0 ? 2e-3 * step.multiply_adds / step.microseconds : 0;
}
double gigabytes(const Engine::StepProfile& step) {
  return step.microseconds > 0 ? 1e-3 * step.bytes / step.microseconds : 0;
}

std::string number_or_dash(double value) { return value > 0 ? fmt::format("{:.1f}", value) : "-"; }

/// One line per step: its time, what it does per second, and the share that this is of what the machine can do.
std::string profile_table(const std::vector<Engine::StepProfile>& steps, const cpu::MachineLimits& limits) {
  double total = 0;
  std::size_t width = 5;
  for (const Engine::StepProfile& step : steps) {
    total += step.microseconds;
    width = std::max(width, step.layer.size());
  }
  width = std::min<std::size_t>(width, 60);
  std::string text = fmt::format("{:>4}  {:{}}  {:20}  {:>10}  {:>6}  {:>8}  {:>7}  {:>6}  {}\n", "step", "layer",
                                 width, "operator", "us", "%", "GFLOP/s", "GB/s", "limit", "how");
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const Engine::StepProfile& step = steps[i];
    const std::string name =
        step.layer.size() > width ? "..." + step.layer.substr(step.layer.size() - width + 3) : step.layer;
    text +=
        fmt::format("{:>4}  {:{}}  {:20}  {:>10.1f}  {:>6.1f}  {:>8}  {:>7}  {:>5.0f}%  {}\n", i, name, width, step.op,
                    step.microseconds, total > 0 ? 100 * step.microseconds / total : 0, number_or_dash(gflops(step)),
                    number_or_dash(gigabytes(step)), 100 * share_of_limit(step, limits), step.what);
  }
  text += fmt::format(
      "{} steps, {:.1f} us: the least of several runs for each. Of what the machine did at best: {:.0f} GFLOP/s (a "
      "product of matrices), {:.1f} GB/s (a copy).",
      steps.size(), total, 2e-3 * limits.multiply_adds, 1e-3 * limits.bytes);
  return text;
}

/// The same as events, one behind the other, in Chrome's trace format (JSON), which Perfetto reads, too.
std::string profile_trace(const std::vector<Engine::StepProfile>& steps, const cpu::MachineLimits& limits) {
  nlohmann::ordered_json events = nlohmann::ordered_json::array();
  double start = 0;
  for (const Engine::StepProfile& step : steps) {
    events.push_back({{"name", step.layer.empty() ? step.what : step.layer},
                      {"cat", step.op.empty() ? "output" : step.op},
                      {"ph", "X"},
                      {"ts", start},
                      {"dur", step.microseconds},
                      {"pid", 0},
                      {"tid", 0},
                      {"args",
                       {{"how", step.what},
                        {"GFLOP/s", gflops(step)},
                        {"GB/s", gigabytes(step)},
                        {"share of limit", share_of_limit(step, limits)}}}});
    start += step.microseconds;
  }
  return nlohmann::ordered_json{{"traceEvents", std::move(events)}, {"displayTimeUnit", "ms"}}.dump(1) + "\n";
}

/// "onnxrt-runner-N0-11/21/26-01:13:26"; numbers count per kind.
void name_runners(std::vector<std::unique_ptr<Runner>>& runners) {
  const std::string date = local_time("%m/%d/%y-%H:%M:%S");
  std::map<std::string, int> counts;
  for (const auto& runner : runners)
    runner->set_name(fmt::format("{}-N{}-{}", runner->kind(), counts[runner->kind()]++, date));
}

std::string describe(const TensorMap& tensors) {
  std::string text = "{";
  for (const NamedTensor& each : tensors)
    text += fmt::format("{}{} [dtype={}, shape={}]", text.size() > 1 ? ",\n " : "", each.name,
                        name_of(each.tensor.type()), to_string(each.tensor.shape()));
  return text + "}";
}

/// The inputs of all iterations, made once the first runner tells what it wants.
class Inputs {
 public:
  Inputs(const RunOptions& options, ScriptHost& host, std::vector<std::pair<std::string, Shape>> default_shapes)
      : options_(options), host_(host), default_shapes_(std::move(default_shapes)) {}

  void prepare(const std::vector<InputBinding>& bindings) {
    if (prepared_) return;
    prepared_ = true;
    all_ = make_inputs(options_.model, options_.data, host_, bindings, default_shapes_);
  }

  const std::vector<TensorMap>& all() const { return all_; }
  std::vector<TensorMap> take() { return std::move(all_); }

 private:
  const RunOptions& options_;
  ScriptHost& host_;
  std::vector<std::pair<std::string, Shape>> default_shapes_;
  bool prepared_ = false;
  std::vector<TensorMap> all_;
};

void warm_up(Runner& runner, int count, const std::vector<TensorMap>& inputs,
             const std::vector<InputBinding>& bindings) {
  if (count == 0) return;
  log(kStartLevel, fmt::format("{:35} | Running {} warm-up run(s)", runner.name(), count));
  if (inputs.empty()) {
    log_warning("{} warm-up run(s) were requested, but data loader did not supply any data. Skipping warm-up run(s)",
                count);
    return;
  }
  const TensorMap first = adapt_inputs(inputs[0], bindings);
  for (int i = 0; i < count; ++i) {
    check_interrupted();
    runner.infer(first);
  }
  log(kFinishLevel, fmt::format("{:35} | Finished {} warm-up run(s)", runner.name(), count));
}

void show_profile(const RunOptions& options, Runner& runner, const TensorMap& feed) {
  if (!options.profile && !options.profile_trace) return;
  const auto steps = profile_runner(runner, feed);
  if (!steps) return;
  if (steps->empty()) return log_warning("[run] {}: this backend has no times of steps", runner.name());
  const cpu::MachineLimits limits = cpu::measure_limits();
  if (options.profile) log_info("{:35}\n---- Profile ----\n{}", runner.name(), profile_table(*steps, limits));
  if (!options.profile_trace) return;
  log_info("Saving profile to " + *options.profile_trace);
  const WritingFile writing;
  write_file(*options.profile_trace, profile_trace(*steps, limits));
}

std::vector<IterationResult> infer_all(const RunOptions& options, Runner& runner, Inputs& inputs) {
  const std::vector<InputBinding>& bindings = runner.input_bindings();
  inputs.prepare(bindings);
  warm_up(runner, options.inference.warm_up.value_or(0), inputs.all(), bindings);
  if (inputs.all().empty()) log_once(LogLevel::kWarning, "Data loader did not yield any input data.");
  std::vector<IterationResult> results;
  double seconds = 0;
  Progress progress;
  for (const TensorMap& loaded : inputs.all()) {
    check_interrupted();
    const TensorMap feed = adapt_inputs(loaded, bindings);
    log_once(LogLevel::kInfo, "{:35}\n---- Inference Input(s) ----\n{}", runner.name(), describe(feed));
    IterationResult result;
    result.outputs = runner.infer(feed);
    result.runtime = runner.last_inference_seconds();
    result.runner_name = runner.name();
    seconds += *result.runtime;
    log_once(LogLevel::kInfo, "{:35}\n---- Inference Output(s) ----\n{}", runner.name(), describe(result.outputs));
    results.push_back(std::move(result));
    progress.show(fmt::format("{} | iteration {} of {}", runner.name(), results.size(), inputs.all().size()));
  }
  const auto count = static_cast<double>(std::max<std::size_t>(results.size(), 1));
  log(kFinishLevel, fmt::format("{:35} | Completed {} iteration(s) in {:.4g} ms | Average inference time: {:.4g} ms.",
                                runner.name(), results.size(), seconds * 1e3, seconds * 1e3 / count));
  if (!inputs.all().empty()) show_profile(options, runner, adapt_inputs(inputs.all()[0], bindings));
  return results;
}

}  // namespace

InferenceOutcome run_inference(const RunOptions& options, std::vector<std::unique_ptr<Runner>>& runners,
                               ScriptHost& host, const std::vector<std::pair<std::string, Shape>>& default_shapes) {
  name_runners(runners);
  Inputs inputs(options, host, default_shapes);
  InferenceOutcome outcome;
  for (const auto& runner : runners) {
    check_interrupted();
    log(kStartLevel, fmt::format("{:35} | Activating and starting inference", runner->name()));
    runner->activate();
    outcome.results.emplace_back(runner->name(), infer_all(options, *runner, inputs));
    runner->deactivate();
  }
  outcome.inputs = inputs.take();
  return outcome;
}

}  // namespace ulpscope::cli
