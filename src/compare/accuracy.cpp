#include "compare/accuracy.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>

#include "compare/compare_functions.h"
#include "compare/json_access.h"
#include "core/file.h"
#include "core/messages.h"
#include "ulpscope/error.h"

namespace ulpscope {
namespace {

/// Sums members of the verdicts of one output, then divides.
template <typename Get>
double average(const std::vector<const OutputVerdict*>& verdicts, const Get& get) {
  double sum = 0;
  for (const OutputVerdict* verdict : verdicts) sum += get(*verdict);
  return sum / static_cast<double>(verdicts.size());
}

[[noreturn]] void refuse(const std::string& output, const std::string& why, const std::string& remedy) {
  throw invalid_argument("[compare] output '" + output + "': no average can be checked, " + why + "; try " + remedy);
}

ErrorMetrics average_metrics(const std::vector<const OutputVerdict*>& verdicts) {
  const auto mean = [&](double ErrorMetrics::* member) {
    return average(verdicts, [&](const OutputVerdict& verdict) { return (*verdict.metrics).*member; });
  };
  ErrorMetrics result{mean(&ErrorMetrics::max_abs),  mean(&ErrorMetrics::max_rel),    mean(&ErrorMetrics::mean_abs),
                      mean(&ErrorMetrics::mean_rel), mean(&ErrorMetrics::median_abs), mean(&ErrorMetrics::median_rel)};
  if (verdicts.front()->metrics->quantile_abs) {
    result.quantile_abs = average(verdicts, [](const OutputVerdict& v) { return *v.metrics->quantile_abs; });
    result.quantile_rel = average(verdicts, [](const OutputVerdict& v) { return *v.metrics->quantile_rel; });
  }
  return result;
}

OutputVerdict average_of(const std::vector<const OutputVerdict*>& verdicts) {
  OutputVerdict result = *verdicts.front();
  for (const OutputVerdict* verdict : verdicts)
    if (!verdict->metrics && verdict->checks.empty())
      refuse(result.output, "since at least one iteration gave no numbers (shapes that differ, indices, a script)",
             "without --check-average, to see the verdict on every iteration");
  if (!result.metrics) {
    result.passed = true;
    for (std::size_t i = 0; i < result.checks.size(); ++i) {
      result.checks[i].value = average(verdicts, [&](const OutputVerdict& verdict) { return verdict.checks[i].value; });
      result.passed = result.passed && result.checks[i].passed();
    }
    return result;
  }
  if (result.tolerance.stat == "elemwise")
    refuse(result.output, "since elemwise judges single elements", "--check-error-stat max, mean, median or quantile");
  result.metrics = average_metrics(verdicts);
  const auto [absolute, relative] = selected_error(*result.metrics, result.tolerance.stat);
  result.passed = absolute <= result.tolerance.absolute || relative <= result.tolerance.relative;
  return result;
}

struct MetricNames {
  const char *field, *result, *threshold;
};

/// In the order of Metric.
constexpr std::array<MetricNames, 4> kMetricNames{
    {{"l2_norm", "L2Result", "L2Threshold"},
     {"cosine_similarity", "CosineSimilarityResult", "CosineSimilarityThreshold"},
     {"psnr", "PsnrResult", "PsnrThreshold"},
     {"snr", "SnrResult", "SnrThreshold"}}};

using Json = nlohmann::ordered_json;

/// Python's NaN and infinities, which JSON lacks, are texts that begin with this character until the end.
constexpr char kNoText = '\x01';

Json number(std::optional<double> value) {
  if (!value) return nullptr;
  if (std::isfinite(*value)) return *value;
  return kNoText + std::string(std::isnan(*value) ? "NaN" : *value > 0 ? "Infinity" : "-Infinity");
}

std::string dump(const Json& json) {
  std::string text = json.dump(4, ' ', true, Json::error_handler_t::replace);
  for (const std::string word : {"NaN", "Infinity", "-Infinity"})
    for (std::size_t at = 0; (at = text.find("\"\\u0001" + word + '"', at)) != std::string::npos;)
      text.replace(at, word.size() + 8, word);
  return text;
}

Json simple_json(const OutputVerdict& verdict) {
  const ErrorMetrics& metrics = *verdict.metrics;
  const ErrorTolerance& tolerance = verdict.tolerance;
  return {{"max_absdiff", number(metrics.max_abs)},
          {"max_reldiff", number(metrics.max_rel)},
          {"mean_absdiff", number(metrics.mean_abs)},
          {"mean_reldiff", number(metrics.mean_rel)},
          {"median_absdiff", number(metrics.median_abs)},
          {"median_reldiff", number(metrics.median_rel)},
          {"quantile_absdiff", number(metrics.quantile_abs)},
          {"quantile_reldiff", number(metrics.quantile_rel)},
          {"thresholds",
           {{"check_error_stat", tolerance.stat},
            {"atol", number(tolerance.absolute)},
            {"rtol", number(tolerance.relative)},
            {kClass, "SimpleThreshold"}}},
          // The numbers tell the verdict, except that on single elements.
          {"passed", tolerance.stat == "elemwise" ? Json(verdict.passed) : Json()},
          {kClass, "OutputCompareResult"}};
}

Json metric_json(const MetricCheck& check) {
  const MetricNames& names = kMetricNames[static_cast<std::size_t>(check.metric)];
  return {{names.field, number(check.value)},
          {"thresholds", {{"threshold", number(check.threshold)}, {kClass, names.threshold}}},
          {kClass, names.result}};
}

/// Check number `check` of the verdicts of one function.
Json function_json(const AccuracyResult& accuracy, std::size_t function, std::size_t check) {
  Json pairs = Json::array();
  for (const PairVerdict& pair : accuracy.pairs) {
    Json iterations = Json::array();
    for (const IterationVerdict& iteration : pair.iterations) {
      Json& outputs = iterations.emplace_back(Json::object());
      for (const OutputVerdict& verdict : iteration)
        if (verdict.function == function)
          outputs[verdict.output] = verdict.metrics                 ? simple_json(verdict)
                                    : check < verdict.checks.size() ? metric_json(verdict.checks[check])
                                                                    : Json(verdict.passed);
    }
    pairs.push_back(Json::array({Json::array({pair.first, pair.second}), std::move(iterations)}));
  }
  return {{"lst", std::move(pairs)},
          {"aggregation", accuracy.averaged ? "average" : "per_sample"},
          {kClass, "AccuracyResult"}};
}

std::size_t checks_of(const AccuracyResult& accuracy, std::size_t function) {
  std::size_t count = 1;
  for (const PairVerdict& pair : accuracy.pairs)
    for (const IterationVerdict& iteration : pair.iterations)
      for (const OutputVerdict& verdict : iteration)
        if (verdict.function == function) count = std::max(count, verdict.checks.size());
  return count;
}

}  // namespace

IterationVerdict average_verdicts(const std::vector<IterationVerdict>& iterations) {
  std::vector<std::vector<const OutputVerdict*>> groups;
  for (const IterationVerdict& iteration : iterations)
    for (const OutputVerdict& verdict : iteration) {
      const auto group = std::ranges::find_if(groups, [&](const auto& each) {
        return each.front()->function == verdict.function && each.front()->output == verdict.output;
      });
      (group == groups.end() ? groups.emplace_back() : *group).push_back(&verdict);
    }
  IterationVerdict result;
  for (const auto& group : groups) result.push_back(average_of(group));
  return result;
}

std::string accuracy_to_json(const AccuracyResult& accuracy) {
  Json functions = Json::array();
  for (std::size_t function = 0; function < accuracy.functions; ++function)
    for (std::size_t check = 0; check < checks_of(accuracy, function); ++check)
      functions.push_back(function_json(accuracy, function, check));
  return dump({{"lst", std::move(functions)}, {kClass, "AccuracyResults"}});
}

void save_accuracy(const std::filesystem::path& path, const AccuracyResult& accuracy) {
  write_file(path, accuracy_to_json(accuracy));
}

}  // namespace ulpscope
