#include "compare/accuracy.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "compare/compare_functions.h"
#include "core/file.h"
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
  throw Error(ErrorCode::kInvalidArgument,
              "[compare] output '" + output + "': no average can be checked, " + why + "; try " + remedy);
}

ErrorMetrics average_metrics(const std::vector<const OutputVerdict*>& verdicts) {
  const auto mean = [&](double ErrorMetrics::*member) {
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

MetricNames names_of(Metric metric) {
  switch (metric) {
    case Metric::kL2:
      return {"l2_norm", "L2Result", "L2Threshold"};
    case Metric::kCosineSimilarity:
      return {"cosine_similarity", "CosineSimilarityResult", "CosineSimilarityThreshold"};
    case Metric::kPsnr:
      return {"psnr", "PsnrResult", "PsnrThreshold"};
    case Metric::kSnr:
      return {"snr", "SnrResult", "SnrThreshold"};
  }
  throw InternalError("names_of: unknown metric");
}

/// A JSON text that grows; Python's NaN and Infinity included, which JSON proper lacks.
class Writer {
 public:
  std::string take() { return std::move(text_); }

  void open(char bracket) {
    text_ += bracket;
    brackets_ += bracket == '{' ? '}' : ']';
    first_ = true;
  }
  void close() {
    const char bracket = brackets_.back();
    brackets_.pop_back();
    if (!first_) line();
    text_ += bracket;
    first_ = false;
  }
  void item() {
    if (!first_) text_ += ',';
    first_ = false;
    line();
  }
  void key(const std::string& name) {
    item();
    text_ += quoted(name) + ": ";
  }
  void raw(const std::string& value) { text_ += value; }
  void field(const std::string& name, const std::string& value) {
    key(name);
    text_ += quoted(value);
  }
  void field(const std::string& name, std::optional<double> value) {
    key(name);
    text_ += value ? number(*value) : "null";
  }

  static std::string quoted(const std::string& text) {
    return nlohmann::json(text).dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
  }

 private:
  static std::string number(double value) {
    if (std::isnan(value)) return "NaN";
    if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
    return python_float(value);
  }
  void line() {
    text_ += '\n';
    text_.append(4 * brackets_.size(), ' ');
  }

  std::string text_, brackets_;
  bool first_ = true;
};

constexpr const char* kClass = "polygraphy_class";

void write_simple(Writer& json, const OutputVerdict& verdict) {
  const ErrorMetrics& metrics = *verdict.metrics;
  json.open('{');
  json.field("max_absdiff", metrics.max_abs);
  json.field("max_reldiff", metrics.max_rel);
  json.field("mean_absdiff", metrics.mean_abs);
  json.field("mean_reldiff", metrics.mean_rel);
  json.field("median_absdiff", metrics.median_abs);
  json.field("median_reldiff", metrics.median_rel);
  json.field("quantile_absdiff", metrics.quantile_abs);
  json.field("quantile_reldiff", metrics.quantile_rel);
  json.key("thresholds");
  json.open('{');
  json.field("check_error_stat", verdict.tolerance.stat);
  json.field("atol", verdict.tolerance.absolute);
  json.field("rtol", verdict.tolerance.relative);
  json.field(kClass, "SimpleThreshold");
  json.close();
  json.key("passed");  // the numbers tell the verdict, except that on single elements
  json.raw(verdict.tolerance.stat != "elemwise" ? "null" : verdict.passed ? "true" : "false");
  json.field(kClass, "OutputCompareResult");
  json.close();
}

void write_metric(Writer& json, const MetricCheck& check) {
  const MetricNames names = names_of(check.metric);
  json.open('{');
  json.field(names.field, check.value);
  json.key("thresholds");
  json.open('{');
  json.field("threshold", check.threshold);
  json.field(kClass, names.threshold);
  json.close();
  json.field(kClass, names.result);
  json.close();
}

/// Check number `check` of the verdicts of one function.
void write_function(Writer& json, const AccuracyResult& accuracy, std::size_t function, std::size_t check) {
  json.item();
  json.open('{');
  json.key("lst");
  json.open('[');
  for (const PairVerdict& pair : accuracy.pairs) {
    json.item();
    json.open('[');
    json.item();
    json.open('[');
    for (const std::string* name : {&pair.first, &pair.second}) {
      json.item();
      json.raw(Writer::quoted(*name));
    }
    json.close();
    json.item();
    json.open('[');
    for (const IterationVerdict& iteration : pair.iterations) {
      json.item();
      json.open('{');
      for (const OutputVerdict& verdict : iteration) {
        if (verdict.function != function) continue;
        json.key(verdict.output);
        if (verdict.metrics) {
          write_simple(json, verdict);
        } else if (check < verdict.checks.size()) {
          write_metric(json, verdict.checks[check]);
        } else {
          json.raw(verdict.passed ? "true" : "false");
        }
      }
      json.close();
    }
    json.close();
    json.close();
  }
  json.close();
  json.field("aggregation", accuracy.averaged ? "average" : "per_sample");
  json.field(kClass, "AccuracyResult");
  json.close();
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
  Writer json;
  json.open('{');
  json.key("lst");
  json.open('[');
  for (std::size_t function = 0; function < accuracy.functions; ++function) {
    const std::size_t checks = checks_of(accuracy, function);
    for (std::size_t check = 0; check < checks; ++check) write_function(json, accuracy, function, check);
  }
  json.close();
  json.field(kClass, "AccuracyResults");
  json.close();
  return json.take();
}

void save_accuracy(const std::filesystem::path& path, const AccuracyResult& accuracy) {
  write_file(path, accuracy_to_json(accuracy));
}

}  // namespace ulpscope
