// A user's metric as a criterion.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "precision/criterion.h"
#include "precision/sample_pairs.h"
#include "runners/script_metric.h"
#include "ulpscope/error.h"

namespace ulpscope {
namespace {

class ScriptCriterion final : public Criterion {
 public:
  ScriptCriterion(ScriptHost& host, ScriptName script, PerName<double> thresholds)
      : metric_(std::make_unique<ScriptMetric>(host, std::move(script))), thresholds_(std::move(thresholds)) {
    if (thresholds_.empty())
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("[criterion] {}: expected a threshold, got none; try --threshold X", place()));
    for (const auto& [name, value] : thresholds_.entries())
      if (!std::isfinite(value))
        throw Error(ErrorCode::kInvalidArgument,
                    fmt::format("[criterion] threshold of {}: expected a finite number, got {}", place(), value));
  }

  std::string description() const override {
    std::string text;
    for (const auto& [name, value] : thresholds_.entries())
      text += fmt::format("{}{}{:g}", text.empty() ? "" : " ", name.empty() ? "" : name + ":", value);
    return fmt::format("{} meets {}", place(), text);
  }

  Judgement judge(std::span<const TensorMap> golden, std::span<const TensorMap> candidate) const override {
    // Not every script survives a NaN, and none should have to judge one.
    Judgement result = foreign_values(golden, candidate);
    if (!result.problem.empty()) return result;
    const ScriptMetric::Result answer = metric_->evaluate(golden, candidate);
    check_names(answer.values);
    bool any = false;
    for (const auto& [name, value] : answer.values) {
      const double* threshold = thresholds_.find(name);
      if (threshold == nullptr) continue;
      const double used = answer.higher_is_better ? share_of_best(value, best_of(answer.best, name), *threshold)
                                                  : share(value, *threshold);
      result.outputs.push_back({name, used, value, -1});
      if (!any || used > result.used) {
        result.used = used;
        result.value = value;
        result.worst_output = name;
      }
      any = true;
    }
    if (std::isinf(result.used)) result.problem = fmt::format("{} gave {:g}", place(), result.value);
    return result;
  }

  Sensitivity sensitivity() const override { return Sensitivity::kRelativeL2; }
  double atol(const std::string&) const override { return 0; }
  double rtol(const std::string&) const override { return 0; }
  double threshold(const std::string& output) const override {
    const double* found = thresholds_.find(output);
    return found == nullptr ? std::numeric_limits<double>::infinity() : *found;
  }
  /// A function that returns one number looks at all outputs; which, nobody knows.
  bool judges(const std::string& output) const override { return thresholds_.find(output) != nullptr; }

 private:
  std::string place() const { return metric_->script().path + ":" + metric_->script().function; }

  /// A failure where the candidate has another shape, or is not finite and golden is; else an empty judgement.
  Judgement foreign_values(std::span<const TensorMap> golden, std::span<const TensorMap> candidate) const {
    Judgement result;
    visit_pairs(*this, golden, candidate, [&](const SamplePair& pair) {
      if (!result.problem.empty()) return;
      const std::string problem = problem_of(pair);
      if (problem.empty()) return;
      result.used = result.value = std::numeric_limits<double>::infinity();
      result.worst_output = pair.output;
      result.worst_sample = pair.sample;
      result.outputs.push_back(
          {pair.output, std::numeric_limits<double>::infinity(), std::numeric_limits<double>::infinity(), pair.sample});
      result.problem = problem;
    });
    return result;
  }

  /// The function must answer for every threshold.
  void check_names(const ScriptMetric::Values& values) const {
    for (const auto& [name, threshold] : thresholds_.entries()) {
      const bool answered = std::ranges::any_of(
          values, [&name = name](const auto& entry) { return name.empty() || entry.first == name; });
      if (answered) continue;
      throw Error(ErrorCode::kScript,
                  fmt::format("[script] {}: expected a value for output '{}', which has a threshold, "
                              "got {}; try a threshold without a name, or return a dict",
                              place(), name, values.front().first.empty() ? "a single number" : "other outputs"));
    }
  }

  double best_of(const ScriptMetric::Values& best, const std::string& name) const {
    for (const auto& [key, value] : best)
      if (key == name) return value;
    throw Error(ErrorCode::kScript,
                fmt::format("[script] {}: expected a value for output '{}' also for golden against golden, got none",
                            place(), name));
  }

  static double share(double value, double threshold) {
    if (value <= threshold) return threshold > 0 ? std::max(value / threshold, 0.0) : 0;
    return threshold > 0 ? std::max(value / threshold, std::nextafter(1.0, 2.0))
                         : std::numeric_limits<double>::infinity();
  }

  static double share_of_best(double value, double best, double threshold) {
    const double room = best - threshold, loss = best - value;
    if (value >= threshold) return room > 0 && std::isfinite(room) ? std::clamp(loss / room, 0.0, 1.0) : 0;
    return room > 0 ? std::max(loss / room, std::nextafter(1.0, 2.0)) : std::numeric_limits<double>::infinity();
  }

  std::unique_ptr<ScriptMetric> metric_;
  PerName<double> thresholds_;
};

}  // namespace

std::unique_ptr<Criterion> make_script_criterion(ScriptHost& host, ScriptName script, PerName<double> thresholds) {
  return std::make_unique<ScriptCriterion>(host, std::move(script), std::move(thresholds));
}

}  // namespace ulpscope
