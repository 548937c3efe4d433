#include "args/comparison.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "core/messages.h"

namespace ulpscope::cli {

void ComparisonArgs::declare(OptionTable& table, bool all_iterations) {
  table.section("Comparator Comparisons", "comparing outputs.");
  table.flag({"--no-shape-check"}, no_shape_check,
             "Compare outputs of different shapes where one can be permuted or reshaped to the other");
  table.flag({"--validate"}, validate, "Check every output for NaN and infinity");
  table.flag({"--fail-fast"}, fail_fast, "Stop after the first failure");
  if (all_iterations) {
    table.flag({"--check-average"}, check_average,
               "Judge the average of each number over all iterations instead of every iteration; not with --fail-fast, "
               "--compare indices, or --check-error-stat elemwise (the default)");
  } else {
    table.words({"--check-average"}, Arity::kNone, "", "Judge the average over all iterations")
        .refuse("only `ulpscope run` compares whole runs");
  }
  table.flag({"--sequential-runners"}, sequential,
             "Run one runner after another, which is what is always done; --load-outputs takes no folders then");
  table
      .list({"--compare", "--compare-func"}, compare, "NAME",
            "simple: absolute and relative tolerances (default); indices: positions of values, after --postprocess "
            "top-K; l2 and cosine_similarity (both: distance_metrics); psnr and snr (both: quality_metrics). "
            "perceptual_metrics is not part of this program: give LPIPS with --compare-func-script")
      .choose({"simple", "indices", "l2", "cosine_similarity", "distance_metrics", "psnr", "snr", "quality_metrics",
               "perceptual_metrics"});
  table.value({"--compare-func-script"}, script, "FILE.py[:FUNC]",
              "Python function `compare_outputs(result0, result1)` that judges instead");
  table.list({"--load-outputs", "--load-results"}, load_outputs, "FILE",
             "Also compare with the results in these files (or folders, of a file per iteration)");
  if (all_iterations) {
    table.value({"--save-accuracy-results"}, save_accuracy_results, "FILE",
                "Write the numbers of every comparison and what they were held against (JSON); `polygraphy check "
                "accuracy` judges them by other thresholds");
  } else {
    table.words({"--save-accuracy-results"}, Arity::kOne, "FILE", "Write metrics and verdicts (JSON)")
        .refuse("only `ulpscope run` compares whole runs");
  }
  declare_simple(table);
  declare_other_functions(table);
}

void ComparisonArgs::declare_simple(OptionTable& table) {
  table.section("Comparison Function: `simple`", "the `simple` comparison function.");
  table.list({"--rtol", "--rel-tol"}, rtol, "[NAME:]X",
             "Relative tolerance (default: 1e-5), relative to the second result");
  table.list({"--atol", "--abs-tol"}, atol, "[NAME:]X", "Absolute tolerance (default: 1e-5)");
  table.list({"--check-error-stat"}, check_error_stat, "[NAME:]STAT",
             "What is held against the tolerances: elemwise (default: each element), max, mean, median or quantile");
  table.flag({"--infinities-compare-equal"}, infinities_compare_equal, "Equal infinities have difference 0, not NaN");
  table.value({"--save-heatmaps"}, save_heatmaps, "DIR",
              "Draw the absolute and relative error of every output as images (SVG), with matplotlib");
  table.flag({"--show-heatmaps"}, show_heatmaps, "Show these images in windows");
  table.value({"--save-error-metrics-plot"}, save_error_metrics_plot, "DIR",
              "Draw the errors of every output against the magnitude of its values (PNG), with matplotlib");
  table.flag({"--show-error-metrics-plot"}, show_error_metrics_plot, "Show these plots in windows");
  table.list({"--error-quantile"}, error_quantile, "[NAME:]Q", "For --check-error-stat quantile (default: 0.99)");
}

void ComparisonArgs::declare_other_functions(OptionTable& table) {
  table.section("Comparison Function: `indices`", "the `indices` comparison function.");
  table.list({"--index-tolerance"}, index_tolerance, "[NAME:]N", "How far apart equal values may be (default: 0)");

  table.section("Other Comparison Functions", "comparison functions of one number per output.");
  table.list({"--l2-threshold", "--l2-tolerance"}, l2_threshold, "[NAME:]X",
             "For l2: largest Euclidean distance (default: 1e-5)");
  table.list({"--cosine-similarity-threshold"}, cosine_similarity_threshold, "[NAME:]X",
             "For cosine_similarity: least similarity, from -1 to 1 (default: 0.997)");
  table.list(
      {"--psnr-threshold", "--psnr-tolerance"}, psnr_threshold, "[NAME:]X",
      "For psnr: least peak signal-to-noise ratio in dB (default: 30); the peak is the largest value of the first "
      "result");
  table.list({"--snr-threshold", "--snr-tolerance"}, snr_threshold, "[NAME:]X",
             "For snr: least signal-to-noise ratio in dB (default: 20); the signal is the first result");
  table.list({"--lpips-threshold", "--lpips-tolerance"}, lpips_threshold, "[NAME:]X",
             "For perceptual_metrics, which is not part of this program");
}

void ComparisonArgs::warn_of_unused() const {
  const std::vector<std::string> chosen = compare.empty() ? std::vector<std::string>{"simple"} : compare;
  const auto belongs = [&](std::initializer_list<std::pair<bool, const char*>> options,
                           const std::vector<std::string>& functions) {
    if (std::ranges::find_first_of(functions, chosen) != functions.end()) return;
    for (const auto& [given, option] : options)
      if (given)
        log_warning(
            "Option: {} is only valid for comparison function(s): ['{}']. The selected comparison functions are: "
            "['{}'], so this option will be ignored.",
            option, fmt::join(functions, "', '"), fmt::join(chosen, "', '"));
  };
  belongs({{!rtol.empty(), "--rtol/--rel-tol"},
           {!atol.empty(), "--atol/--abs-tol"},
           {!check_error_stat.empty(), "--check-error-stat"},
           {infinities_compare_equal, "--infinities-compare-equal"},
           {save_heatmaps.has_value(), "--save-heatmaps"},
           {show_heatmaps, "--show-heatmaps"},
           {save_error_metrics_plot.has_value(), "--save-error-metrics-plot"},
           {show_error_metrics_plot, "--show-error-metrics-plot"},
           {!error_quantile.empty(), "--error-quantile"}},
          {"simple"});
  belongs({{!index_tolerance.empty(), "--index-tolerance"}}, {"indices"});
  belongs({{!l2_threshold.empty(), "--l2-threshold/--l2-tolerance"}}, {"l2", "distance_metrics"});
  belongs({{!cosine_similarity_threshold.empty(), "--cosine-similarity-threshold"}},
          {"cosine_similarity", "distance_metrics"});
  belongs({{!psnr_threshold.empty(), "--psnr-threshold/--psnr-tolerance"}}, {"psnr", "quality_metrics"});
  belongs({{!snr_threshold.empty(), "--snr-threshold/--snr-tolerance"}}, {"snr", "quality_metrics"});
  belongs({{!lpips_threshold.empty(), "--lpips-threshold/--lpips-tolerance"}}, {"perceptual_metrics"});
}

void ComparisonArgs::check() const {
  warn_of_unused();
  if (!check_average) return;
  const auto refuse = [](const char* why, const char* short_form) {
    throw invalid_argument("[options] {}: {}", short_form, why);
  };
  if (fail_fast)
    refuse("it needs every iteration, so --fail-fast does not go with it; try without one of them",
           "--check-average cannot be combined with --fail-fast");
  if (script)
    refuse(
        "--compare-func-script gives verdicts, of which there is no average; try averaging in the script, or "
        "--compare with --check-error-stat mean",
        "--check-average cannot be combined with --compare-func-script");
  if (std::ranges::find(compare, "indices") != compare.end())
    refuse("--compare indices gives no number to average; try without one of them",
           "'indices' does not produce averageable metrics");
  if (!compare.empty() && std::ranges::find(compare, "simple") == compare.end()) return;
  const PerName<std::string> stats = options().error_stat;
  for (const auto& [name, stat] : stats.entries())
    if (stat == "elemwise")
      refuse(
          "--check-error-stat elemwise (the default) judges single elements, of which there is no average; try "
          "--check-error-stat max, mean, median or quantile",
          "--check-average is not supported with check_error_stat='elemwise'");
}

CompareOptions ComparisonArgs::options() const {
  CompareOptions result;
  result.check_shapes = !no_shape_check;
  result.fail_fast = fail_fast;
  result.atol.set(parse_numbers("--atol", atol));
  result.rtol.set(parse_numbers("--rtol", rtol));
  result.atol_text = number_texts(atol);
  result.rtol_text = number_texts(rtol);
  result.error_stat.set(parse_strings("--check-error-stat", check_error_stat));
  check_error_stats(result.error_stat);
  result.error_quantile.set(parse_numbers("--error-quantile", error_quantile));
  for (const auto& [name, quantile] : result.error_quantile.entries())
    if (!(quantile >= 0 && quantile <= 1))
      throw invalid_argument("[options] --error-quantile: expected a number from 0 to 1, got {}", quantile);
  result.index_tolerance.set(parse_integers("--index-tolerance", index_tolerance));
  result.l2_tolerance.set(parse_numbers("--l2-threshold", l2_threshold));
  result.cosine_similarity_threshold.set(parse_numbers("--cosine-similarity-threshold", cosine_similarity_threshold));
  result.psnr_tolerance.set(parse_numbers("--psnr-threshold", psnr_threshold));
  result.snr_tolerance.set(parse_numbers("--snr-threshold", snr_threshold));
  result.infinities_compare_equal = infinities_compare_equal;
  return result;
}

}  // namespace ulpscope::cli
