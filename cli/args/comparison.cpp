#include "args/comparison.h"

namespace ulpscope::cli {

void ComparisonArgs::declare(OptionTable& table) {
  const std::string later = "this metric is not part of this release; try --compare simple or --compare-func-script";
  const std::string plots = "plots are not part of this release; the histograms of the log show the errors";

  table.section("Comparator Comparisons", "comparing outputs.");
  table.flag({"--no-shape-check"}, no_shape_check,
             "Compare outputs of different shapes where one can be permuted or "
             "reshaped to the other");
  table.flag({"--validate"}, validate, "Check every output for NaN and infinity");
  table.flag({"--fail-fast"}, fail_fast, "Stop after the first failure");
  table.words({"--check-average"}, Arity::kNone, "", "Judge the average over all iterations")
      .refuse("every iteration is judged by itself");
  table.flag({"--sequential-runners"}, sequential, "Run one runner after another, which is what is always done");
  table
      .list({"--compare", "--compare-func"}, compare, "NAME",
            "simple: absolute and relative tolerances (default); "
            "indices: positions of values, after --postprocess top-K. Other metrics are not part of this release")
      .choose({"simple", "indices", "l2", "cosine_similarity", "distance_metrics", "psnr", "snr", "quality_metrics",
               "perceptual_metrics"});
  table.value({"--compare-func-script"}, script, "FILE.py[:FUNC]",
              "Python function `compare_outputs(result0, result1)` "
              "that judges instead");
  table.list({"--load-outputs", "--load-results"}, load_outputs, "FILE",
             "Also compare with the results in these files");
  table.words({"--save-accuracy-results"}, Arity::kOne, "FILE", "Write metrics and verdicts (JSON)")
      .refuse("write the outputs with --save-outputs, and compare later with --load-outputs");

  table.section("Comparison Function: `simple`", "the `simple` comparison function.");
  table.list({"--rtol", "--rel-tol"}, rtol, "[NAME:]X",
             "Relative tolerance (default: 1e-5), relative to the second result");
  table.list({"--atol", "--abs-tol"}, atol, "[NAME:]X", "Absolute tolerance (default: 1e-5)");
  table.list({"--check-error-stat"}, check_error_stat, "[NAME:]STAT",
             "What is held against the tolerances: elemwise "
             "(default: each element), max, mean, median or quantile");
  table.flag({"--infinities-compare-equal"}, infinities_compare_equal, "Equal infinities have difference 0, not NaN");
  table.words({"--save-heatmaps"}, Arity::kOne, "DIR", "Plot errors").refuse(plots);
  table.words({"--show-heatmaps"}, Arity::kNone, "", "Plot errors").refuse(plots);
  table.words({"--save-error-metrics-plot"}, Arity::kOne, "DIR", "Plot errors").refuse(plots);
  table.words({"--show-error-metrics-plot"}, Arity::kNone, "", "Plot errors").refuse(plots);
  table.list({"--error-quantile"}, error_quantile, "[NAME:]Q", "For --check-error-stat quantile (default: 0.99)");

  table.section("Comparison Function: `indices`", "the `indices` comparison function.");
  table.list({"--index-tolerance"}, index_tolerance, "[NAME:]N", "How far apart equal values may be (default: 0)");

  table.section("Other Comparison Functions", "metrics that are not part of this release.");
  table.words({"--l2-threshold", "--l2-tolerance"}, Arity::kSome, "[NAME:]X", "For l2").refuse(later);
  table.words({"--cosine-similarity-threshold"}, Arity::kSome, "[NAME:]X", "For cosine_similarity").refuse(later);
  table.words({"--psnr-threshold", "--psnr-tolerance"}, Arity::kSome, "[NAME:]X", "For psnr").refuse(later);
  table.words({"--snr-threshold", "--snr-tolerance"}, Arity::kSome, "[NAME:]X", "For snr").refuse(later);
  table.words({"--lpips-threshold", "--lpips-tolerance"}, Arity::kSome, "[NAME:]X", "For perceptual_metrics")
      .refuse(later);
}

}  // namespace ulpscope::cli
