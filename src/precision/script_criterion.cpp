// Metrics of users as criteria.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/messages.h"
#include "precision/criterion.h"
#include "precision/sample_pairs.h"
#include "runners/script_metric.h"
#include "ulpscope/error.h"

namespace ulpscope {
namespace {

/// What all metrics of users have in common: thresholds per output.
class UserCriterion : public Criterion {
 public:
  explicit UserCriterion(PerName<double> thresholds) : thresholds_(std::move(thresholds)) {}

  std::string description() const override { return fmt::format("{} meets {}", place(), thresholds_text(thresholds_)); }
  Sensitivity sensitivity() const override { return Sensitivity::kRelativeL2; }
  double threshold(const std::string& output) const override {
    const double* found = thresholds_.find(output);
    return found == nullptr ? std::numeric_limits<double>::infinity() : *found;
  }
  /// A function that returns one number looks at all outputs; which, nobody knows.
  bool judges(const std::string& output) const override { return thresholds_.find(output) != nullptr; }

 protected:
  /// How messages name the metric.
  virtual std::string place() const = 0;

  void check_thresholds() const {
    if (thresholds_.empty())
      throw invalid_argument("[criterion] {}: expected a threshold, got none; try --threshold X", place());
    for (const auto& [name, value] : thresholds_.entries())
      if (!std::isfinite(value))
        throw invalid_argument("[criterion] threshold of {}: expected a finite number, got {}", place(), value);
  }

  /// A failure where the candidate has another shape, or is not finite and golden is; else an empty judgement.
  Judgement foreign_values(std::span<const TensorMap> golden, std::span<const TensorMap> candidate) const {
    Judgement result;
    visit_pairs(*this, golden, candidate, [&](const SamplePair& pair) {
      if (!result.problem.empty()) return;
      const std::string problem = problem_of(pair);
      if (problem.empty()) return;
      constexpr double kInfinity = std::numeric_limits<double>::infinity();
      note({pair.output, kInfinity, kInfinity, pair.sample}, result);
      result.problem = problem;
    });
    return result;
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

  PerName<double> thresholds_;
};

class ScriptCriterion final : public UserCriterion {
 public:
  ScriptCriterion(ScriptHost& host, ScriptName script, PerName<double> thresholds)
      : UserCriterion(std::move(thresholds)), metric_(std::make_unique<ScriptMetric>(host, std::move(script))) {
    check_thresholds();
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

 private:
  std::string place() const override { return metric_->script().path + ":" + metric_->script().function; }

  /// The function must answer for every threshold.
  void check_names(const ScriptMetric::Values& values) const {
    for (const auto& [name, threshold] : thresholds_.entries()) {
      const bool answered = std::ranges::any_of(
          values, [&name = name](const auto& entry) { return name.empty() || entry.first == name; });
      if (answered) continue;
      throw error_of(ErrorCode::kScript,
                     "[script] {}: expected a value for output '{}', which has a threshold, got {}; try a threshold "
                     "without a name, or return a dict",
                     place(), name, values.front().first.empty() ? "a single number" : "other outputs");
    }
  }

  double best_of(const ScriptMetric::Values& best, const std::string& name) const {
    for (const auto& [key, value] : best)
      if (key == name) return value;
    throw error_of(ErrorCode::kScript,
                   "[script] {}: expected a value for output '{}' also for golden against golden, got none", place(),
                   name);
  }

  std::unique_ptr<ScriptMetric> metric_;
};

class FunctionCriterion final : public UserCriterion {
 public:
  FunctionCriterion(MetricFunction function, PerName<double> thresholds)
      : UserCriterion(std::move(thresholds)), function_(std::move(function)) {
    check_thresholds();
  }

  Judgement judge(std::span<const TensorMap> golden, std::span<const TensorMap> candidate) const override {
    Judgement result = foreign_values(golden, candidate);
    if (!result.problem.empty()) return result;
    for (std::size_t s = 0; s < golden.size(); ++s) add(static_cast<int>(s), golden[s], candidate[s], result);
    if (std::isinf(result.used)) result.problem = fmt::format("{} gave {:g}", place(), result.value);
    return result;
  }

 private:
  std::string place() const override { return function_.name; }

  static std::map<std::string, Tensor> by_name(const TensorMap& tensors) {
    std::map<std::string, Tensor> result;
    for (const NamedTensor& each : tensors) result.emplace(each.name, each.tensor);
    return result;
  }

  /// The value of an output with a threshold.
  double value_of(const std::map<std::string, double>& values, const std::string& output, int sample) const {
    const auto found = values.find(output);
    if (found != values.end() && !std::isnan(found->second)) return found->second;
    throw error_of(ErrorCode::kScript, "[criterion] {}, sample {}: expected {}{}, got {}", place(), sample,
                   output.empty() ? "a number" : fmt::format("a number for output '{}'", output),
                   output.empty() ? "" : ", which has a threshold", found == values.end() ? "none" : "NaN");
  }

  /// One sample. A threshold without a name is for every output that the function names.
  void add(int sample, const TensorMap& golden, const TensorMap& candidate, Judgement& result) const {
    const auto exact = by_name(golden);
    const auto values = function_.evaluate(exact, by_name(candidate));
    const auto best = function_.higher_is_better ? function_.evaluate(exact, exact) : values;
    std::vector<std::string> outputs;
    for (const auto& [name, value] : values)
      if (thresholds_.find(name) != nullptr) outputs.push_back(name);
    for (const auto& [name, threshold] : thresholds_.entries())
      if (std::ranges::find(outputs, name) == outputs.end() && (!name.empty() || outputs.empty()))
        outputs.push_back(name);
    for (const std::string& name : outputs) {
      const double value = value_of(values, name, sample), threshold = *thresholds_.find(name);
      const double used = function_.higher_is_better ? share_of_best(value, value_of(best, name, sample), threshold)
                                                     : share(value, threshold);
      note({name, used, value, sample}, result);
    }
  }

  MetricFunction function_;
};

}  // namespace

std::unique_ptr<Criterion> make_script_criterion(ScriptHost& host, ScriptName script, PerName<double> thresholds) {
  return std::make_unique<ScriptCriterion>(host, std::move(script), std::move(thresholds));
}

std::unique_ptr<Criterion> make_function_criterion(MetricFunction function, PerName<double> thresholds) {
  return std::make_unique<FunctionCriterion>(std::move(function), std::move(thresholds));
}

}  // namespace ulpscope
