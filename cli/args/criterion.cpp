#include "args/criterion.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "compare/metrics.h"

namespace ulpscope::cli {
bool tolerance_given(const CriterionArgs& criterion, const ComparisonArgs& comparison) {
  return criterion.metric || criterion.metric_script || !criterion.threshold.empty() || !comparison.rtol.empty() ||
         !comparison.atol.empty();
}

void check_criterion_usage(const CriterionArgs& args, const ComparisonArgs& comparison, bool needs_threshold) {
  const auto refuse = [](bool wrong, const char* option, const std::string& why) {
    if (wrong) throw UsageError(fmt::format("argument {}: {}", option, why));
  };
  const char* judge = args.metric               ? "--metric"
                      : args.metric_script      ? "--metric-script"
                      : !args.threshold.empty() ? "--threshold"
                                                : nullptr;
  refuse(args.metric && args.metric_script, "--metric-script", "not allowed with argument --metric");
  refuse(judge && args.threshold.empty() && (needs_threshold || args.metric_script), judge, "needs --threshold X");
  refuse(args.top_k && args.metric != "top-k", "--top-k", "needs --metric top-k");
  refuse(args.iou_level && args.metric != "iou", "--iou-level", "needs --metric iou");
  if (judge) {
    const std::string instead =
        fmt::format("not allowed with argument {}", judge) +
        (args.metric || args.metric_script ? ", which has --threshold" : ", which is of a metric");
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
  table.ours()
      .value({"--metric"}, metric, "NAME",
             "Judge by a metric instead of --atol and --rtol; the worst output and sample decide. Errors: rel-l2, "
             "rel-max, one-minus-cos, kl (nats, over the last axis); better if higher: psnr, snr (dB), top-k, iou")
      .choose(metric_names())
      .exclude("--metric-script");
  table.ours()
      .value(
          {"--metric-script"}, metric_script, "FILE.py[:FUNC]",
          "Python function `metric(golden, candidate)` over lists of dictionaries of arrays, one per sample; returns "
          "a number, or one per output. Lower is better unless it has an attribute higher_is_better = True")
      .exclude("--metric");
  table.ours().list(
      {"--threshold"}, threshold, "[OUTPUT:]X",
      "What the metric must meet, rel-l2 without --metric; with names alone, only those outputs are judged");
  table.ours().value({"--top-k"}, top_k, "K", "For --metric top-k: the K largest of each row (default: 1)");
  table.ours().value({"--iou-level"}, iou_level, "X", "For --metric iou: masks are values above X (default: 0.5)");
}

CriterionOptions criterion_options(const CriterionArgs& args, const ComparisonArgs& comparison, bool needs_threshold) {
  check_criterion_usage(args, comparison, needs_threshold);
  static_cast<void>(comparison.options());  // refuses what no comparison has
  CriterionOptions result;
  result.metric = args.metric.value_or("");
  result.metric_script = args.metric_script.value_or("");
  result.threshold = parse_numbers("--threshold", args.threshold);
  result.top_k = args.top_k.value_or(result.top_k);
  result.iou_level = args.iou_level.value_or(result.iou_level);
  result.atol = parse_numbers("--atol", comparison.atol);
  result.rtol = parse_numbers("--rtol", comparison.rtol);
  result.error_stat = parse_strings("--check-error-stat", comparison.check_error_stat);
  result.error_quantile = parse_numbers("--error-quantile", comparison.error_quantile);
  result.infinities_equal = comparison.infinities_compare_equal;
  return result;
}

}  // namespace ulpscope::cli
