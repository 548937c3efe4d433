// How outputs are compared, and with what.
#pragma once

#include "args/option_table.h"
#include "compare/comparison.h"

namespace ulpscope::cli {

struct ComparisonArgs {
  bool no_shape_check = false, validate = false, fail_fast = false, sequential = false, check_average = false;
  std::optional<std::string> save_accuracy_results;
  std::vector<std::string> compare, load_outputs;
  std::optional<std::string> script;
  std::vector<std::string> rtol, atol, check_error_stat, error_quantile, index_tolerance;
  std::vector<std::string> l2_threshold, cosine_similarity_threshold, psnr_threshold, snr_threshold, lpips_threshold;
  bool infinities_compare_equal = false;

  std::optional<std::string> save_heatmaps, save_error_metrics_plot;  ///< Folders.
  bool show_heatmaps = false, show_error_metrics_plot = false;

  /// `all_iterations`: with the options about the results of a whole run, which are refused otherwise.
  void declare(OptionTable& table, bool all_iterations = false);
  /// Throws Error(kInvalidArgument) for options that contradict each other. Warns of those that have no effect.
  void check() const;
  /// Tolerances and thresholds, parsed. Throws Error for values that do not fit.
  CompareOptions options() const;
  /// One line for each option that belongs to a comparison function that was not chosen.
  void warn_of_unused() const;
  bool plots() const { return save_heatmaps || save_error_metrics_plot || show_heatmaps || show_error_metrics_plot; }

 private:
  void declare_simple(OptionTable& table);
  void declare_other_functions(OptionTable& table);
};

}  // namespace ulpscope::cli
