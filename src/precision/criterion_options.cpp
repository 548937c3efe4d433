#include "precision/criterion_options.h"

#include <fmt/format.h>

#include "core/messages.h"

namespace ulpscope {
namespace {

const CriterionOptions kDefaults;

/// Calls `list(option, values)` for each option with a value per output, `value(option, member, default)` for those
/// with one.
template <typename Options, typename List, typename Value>
void for_each_option(Options& options, const List& list, const Value& value) {
  value("--metric", options.metric, kDefaults.metric);
  value("--metric-script", options.metric_script, kDefaults.metric_script);
  list("--threshold", options.threshold);
  value("--top-k", options.top_k, kDefaults.top_k);
  value("--iou-level", options.iou_level, kDefaults.iou_level);
  list("--rtol", options.rtol);
  list("--atol", options.atol);
  list("--check-error-stat", options.error_stat);
  list("--error-quantile", options.error_quantile);
}

void parse(const std::string& text, std::string& result) { result = text; }
void parse(const std::string& text, int& result) { result = std::stoi(text); }
void parse(const std::string& text, double& result) { result = std::stod(text); }

void parse(const char* option, const std::vector<std::string>& words, PerName<double>& result) {
  result = parse_numbers(option, words);
}
void parse(const char* option, const std::vector<std::string>& words, PerName<std::string>& result) {
  result = parse_strings(option, words);
}

/// A threshold alone is of rel-l2.
std::string metric_of(const CriterionOptions& options) {
  const bool alone = options.metric.empty() && options.metric_script.empty() && !options.metric_function;
  return alone && !options.threshold.empty() ? "rel-l2" : options.metric;
}

}  // namespace

std::unique_ptr<Criterion> make_criterion(const CriterionOptions& options, ScriptHost& host,
                                          std::span<const std::string> outputs) {
  if (options.metric_function) {
    check_output_names(options.threshold, outputs, "threshold");
    return make_function_criterion(*options.metric_function, options.threshold);
  }
  const std::string metric = metric_of(options);
  if (metric.empty() && options.metric_script.empty()) {
    CompareOptions tolerances;
    tolerances.atol.set(options.atol);
    tolerances.rtol.set(options.rtol);
    tolerances.error_stat.set(options.error_stat);
    tolerances.error_quantile.set(options.error_quantile);
    tolerances.infinities_compare_equal = options.infinities_equal;
    check_output_names(tolerances.atol, outputs, "--atol");
    check_output_names(tolerances.rtol, outputs, "--rtol");
    check_output_names(tolerances.error_stat, outputs, "--check-error-stat");
    check_output_names(tolerances.error_quantile, outputs, "--error-quantile");
    return make_tolerance_criterion(tolerances);
  }
  if (!metric.empty() && !options.metric_script.empty())
    throw invalid_argument("[criterion] expected a metric or a metric script, got both");
  if (!options.atol.empty() || !options.rtol.empty())
    throw invalid_argument("[criterion] expected a threshold for the metric, or rtol and atol, got both");
  check_output_names(options.threshold, outputs, "--threshold");
  if (!options.metric_script.empty())
    return make_script_criterion(host, ScriptName::parse(options.metric_script, "metric"), options.threshold);
  const auto kind = metric_from_name(metric);
  if (!kind)
    throw invalid_argument("[criterion] metric: expected one of {}, got '{}'", fmt::join(metric_names(), ", "), metric);
  MetricParameters parameters;
  parameters.k = options.top_k;
  parameters.iou_level = options.iou_level;
  return make_metric_criterion(*kind, options.threshold, parameters, options.infinities_equal);
}

CriterionOptions with_usual_tolerance(CriterionOptions options, const BuildOptions& build) {
  options.metric = metric_of(options);
  if (!options.metric.empty() || !options.metric_script.empty() || options.metric_function) return options;
  if (!options.atol.empty() || !options.rtol.empty()) return options;
  const auto alone = [](bool given, const char* option, const char* beside) {
    if (given) throw invalid_argument("[criterion] {}: expected {} beside it, got none", option, beside);
  };
  alone(!options.error_stat.empty(), "--check-error-stat", "--atol or --rtol");
  alone(!options.error_quantile.empty(), "--error-quantile", "--atol or --rtol");
  // Of those that lose as much, the lowest.
  const LayerForm* lowest = &form_of(Precision::kTF32);
  for (const Precision p : build.enabled.members())
    if (form_of(p).usual_error >= lowest->usual_error) lowest = &form_of(p);
  const double threshold = lowest->usual_error;
  log_warning(
      "[search] No tolerance was given: metric rel-l2 with threshold {} is taken, which is usual for {}; try the one "
      "that your application needs",
      threshold, lowest->name);
  options.metric = "rel-l2";
  options.threshold = threshold;
  return options;
}

std::vector<std::string> criterion_words(const CriterionOptions& options) {
  std::vector<std::string> words;
  if (options.metric_function) return words;
  for_each_option(
      options,
      [&](const char* option, const auto& values) {
        if (!values.empty()) words.emplace_back(option);
        for (const auto& [name, value] : values.entries())
          words.push_back(fmt::format("{}{}{}", name, name.empty() ? "" : ":", value));
      },
      [&](const char* option, const auto& value, const auto& otherwise) {
        if (value != otherwise) words.insert(words.end(), {option, fmt::format("{}", value)});
      });
  if (options.infinities_equal) words.emplace_back("--infinities-compare-equal");
  return words;
}

std::optional<CriterionOptions> read_criterion_words(const std::vector<std::string>& words) {
  CriterionOptions options;
  for (std::size_t i = 0; i < words.size();) {
    const std::string& option = words[i++];
    std::vector<std::string> values;
    while (i < words.size() && !words[i].starts_with("--")) values.push_back(words[i++]);
    bool known = false;
    if (option == "--infinities-compare-equal") known = options.infinities_equal = values.empty();
    try {
      for_each_option(
          options,
          [&](const char* name, auto& list) {
            if (option != name) return;
            known = !values.empty();
            parse(name, values, list);
          },
          [&](const char* name, auto& value, const auto&) {
            if (option != name || values.size() != 1) return;
            known = true;
            parse(values.front(), value);
          });
    } catch (const std::exception&) {
      return std::nullopt;
    }
    if (!known) return std::nullopt;
  }
  return options;
}

}  // namespace ulpscope
