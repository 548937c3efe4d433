#include "args/criterion.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace ulpscope::cli {
void check_criterion_usage(const CriterionArgs& args, const ComparisonArgs& comparison) {
  const auto refuse = [](bool wrong, const char* option, const std::string& why) {
    if (wrong) throw UsageError(fmt::format("argument {}: {}", option, why));
  };
  const bool tolerances = !args.metric && !args.metric_script;
  refuse(args.metric && args.metric_script, "--metric-script", "not allowed with argument --metric");
  refuse(tolerances && !args.threshold.empty(), "--threshold",
         "needs --metric or --metric-script; tolerances are --atol and --rtol");
  refuse(!tolerances && args.threshold.empty(), args.metric ? "--metric" : "--metric-script", "needs --threshold X");
  refuse(args.top_k && args.metric != "top-k", "--top-k", "needs --metric top-k");
  refuse(args.iou_level && args.metric != "iou", "--iou-level", "needs --metric iou");
  if (!tolerances) {
    const std::string instead = fmt::format("not allowed with argument {}, which has --threshold",
                                            args.metric ? "--metric" : "--metric-script");
    refuse(!comparison.atol.empty(), "--atol/--abs-tol", instead);
    refuse(!comparison.rtol.empty(), "--rtol/--rel-tol", instead);
    refuse(!comparison.check_error_stat.empty(), "--check-error-stat", instead);
    refuse(!comparison.error_quantile.empty(), "--error-quantile", instead);
  }
  for (const std::string& name : comparison.compare)
    refuse(name != "simple", "--compare/--compare-func",
           fmt::format("'{}' has no say in a search; try --metric ({})", name, fmt::join(metric_names(), ", ")));
  refuse(comparison.script.has_value(), "--compare-func-script", "has no say in a search; try --metric-script");
}

void CriterionArgs::declare(OptionTable& table) {
  table.section("Criterion", "what accuracy is good enough.");
  table
      .value({"--metric"}, metric, "NAME",
             "Judge by a metric instead of --atol and --rtol; the worst output and sample decide. Errors: rel-l2, "
             "rel-max, "
             "one-minus-cos, kl (nats, over the last axis); better if higher: psnr, snr (dB), top-k, iou")
      .choose(metric_names())
      .exclude("--metric-script")
      .ours();
  table
      .value(
          {"--metric-script"}, metric_script, "FILE.py[:FUNC]",
          "Python function `metric(golden, candidate)` over lists of dictionaries of arrays, one per sample; returns "
          "a number, or one per output. Lower is better unless it has an attribute higher_is_better = True")
      .exclude("--metric")
      .ours();
  table
      .list({"--threshold"}, threshold, "[OUTPUT:]X",
            "What the metric must meet; with names alone, only those outputs are judged")
      .ours();
  table.integer({"--top-k"}, top_k, "K", "For --metric top-k: the K largest of each row (default: 1)").ours();
  table.number({"--iou-level"}, iou_level, "X", "For --metric iou: masks are values above X (default: 0.5)").ours();
}

std::unique_ptr<Criterion> make_criterion(const CriterionArgs& args, const ComparisonArgs& comparison, ScriptHost& host,
                                          std::span<const std::string> outputs) {
  check_criterion_usage(args, comparison);
  if (!args.metric && !args.metric_script) {
    const CompareOptions options = comparison.options();
    check_output_names(options.atol, outputs, "--atol");
    check_output_names(options.rtol, outputs, "--rtol");
    check_output_names(options.error_stat, outputs, "--check-error-stat");
    check_output_names(options.error_quantile, outputs, "--error-quantile");
    return make_tolerance_criterion(options);
  }
  PerName<double> thresholds = parse_numbers("--threshold", args.threshold);
  check_output_names(thresholds, outputs, "--threshold");
  if (args.metric_script)
    return make_script_criterion(host, ScriptName::parse(*args.metric_script, "metric"), std::move(thresholds));
  MetricParameters parameters;
  parameters.k = args.top_k.value_or(1);
  parameters.iou_level = args.iou_level.value_or(0.5);
  return make_metric_criterion(*metric_from_name(*args.metric), std::move(thresholds), parameters,
                               comparison.infinities_compare_equal);
}

namespace {

/// Calls `list(option, values)` for each option with any number of values, `value(option, text)` for those with one.
template <typename Criterion, typename Comparison, typename List, typename Value>
void for_each_option(Criterion& criterion, Comparison& comparison, const List& list, const Value& value) {
  value("--metric", criterion.metric);
  value("--metric-script", criterion.metric_script);
  list("--threshold", criterion.threshold);
  value("--top-k", criterion.top_k);
  value("--iou-level", criterion.iou_level);
  list("--rtol", comparison.rtol);
  list("--atol", comparison.atol);
  list("--check-error-stat", comparison.check_error_stat);
  list("--error-quantile", comparison.error_quantile);
}

void parse(const std::string& text, std::string& result) { result = text; }
void parse(const std::string& text, int& result) { result = std::stoi(text); }
void parse(const std::string& text, double& result) { result = std::stod(text); }

}  // namespace

std::vector<std::string> criterion_words(const CriterionArgs& criterion, const ComparisonArgs& comparison) {
  std::vector<std::string> words;
  for_each_option(
      criterion, comparison,
      [&](const char* option, const std::vector<std::string>& values) {
        if (values.empty()) return;
        words.emplace_back(option);
        words.insert(words.end(), values.begin(), values.end());
      },
      [&](const char* option, const auto& value) {
        if (value) words.insert(words.end(), {option, fmt::format("{}", *value)});
      });
  if (comparison.infinities_compare_equal) words.emplace_back("--infinities-compare-equal");
  return words;
}

bool read_criterion_words(const std::vector<std::string>& words, CriterionArgs& criterion, ComparisonArgs& comparison) {
  for (std::size_t i = 0; i < words.size();) {
    const std::string& option = words[i++];
    std::vector<std::string> values;
    while (i < words.size() && !words[i].starts_with("--")) values.push_back(words[i++]);
    bool known = false;
    if (option == "--infinities-compare-equal") known = comparison.infinities_compare_equal = values.empty();
    try {
      for_each_option(
          criterion, comparison,
          [&](const char* name, std::vector<std::string>& list) {
            if (option != name) return;
            known = !values.empty();
            list = values;
          },
          [&](const char* name, auto& value) {
            if (option != name || values.size() != 1) return;
            known = true;
            parse(values.front(), value.emplace());
          });
    } catch (const std::exception&) {
      return false;
    }
    if (!known) return false;
  }
  return true;
}

}  // namespace ulpscope::cli
