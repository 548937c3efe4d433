// How outputs are compared, and with what.
#pragma once

#include <map>

#include "args/option_table.h"
#include "compare/comparison.h"

namespace ulpscope::cli {

struct ComparisonArgs {
  bool no_shape_check = false, validate = false, fail_fast = false, sequential = false;
  std::vector<std::string> compare, load_outputs;
  std::optional<std::string> script;
  std::vector<std::string> rtol, atol, check_error_stat, error_quantile, index_tolerance;
  std::vector<std::string> l2_threshold, cosine_similarity_threshold, psnr_threshold, snr_threshold;
  bool infinities_compare_equal = false;

  void declare(OptionTable& table);
  /// Tolerances and thresholds, parsed. Throws Error for values that do not fit.
  CompareOptions options() const;
};

}  // namespace ulpscope::cli
