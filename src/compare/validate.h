// Whether outputs are free of NaN and infinity.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "compare/results.h"

namespace ulpscope {

struct ValidateOptions {
  bool check_inf = true;
  bool check_nan = true;
  bool fail_fast = false;
};

struct ValidationResult {
  bool passed = true;
  /// The first output, in the order of the results, with a non-finite value.
  std::optional<std::string> first_non_finite;
  std::string runner;
  std::int64_t iteration = 0;
};

/// Logs the validation lines. When a runner gave several outputs (in network order, as `mark all` does), also logs the
/// first that is not finite, with how many NaN and infinities it has.
ValidationResult validate(const RunResults& results, const ValidateOptions& options = {});

}  // namespace ulpscope
