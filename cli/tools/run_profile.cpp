#include "tools/run_profile.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

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

}  // namespace

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

}  // namespace ulpscope::cli
