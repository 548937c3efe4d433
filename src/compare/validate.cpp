#include "compare/validate.h"

#include <fmt/format.h>

#include <cmath>

#include "compare/log_levels.h"
#include "compare/results.h"
#include "compare/statistics_log.h"
#include "compare/visit.h"

namespace ulpscope {
namespace {

constexpr std::int64_t kShownPositions = 20;

struct NonFinitePositions {
  std::int64_t nans = 0, infinities = 0;
  std::string nan_positions, positions;  ///< Flat indices of the first ones, of NaN alone and of all.
};

NonFinitePositions find_non_finite(const Tensor& tensor) {
  NonFinitePositions result;
  if (!is_floating(tensor.type())) return result;
  const Tensor data = widen(tensor);
  const auto note = [](std::string& positions, std::int64_t index, std::int64_t seen) {
    if (seen > kShownPositions) return;
    positions += seen == kShownPositions ? " ..." : fmt::format("{}{}", positions.empty() ? "" : " ", index);
  };
  visit_type(data.type(), [&]<typename T>(T) {
    if constexpr (std::is_floating_point_v<T>) {
      const T* values = data.data<T>();
      for (std::int64_t i = 0; i < data.size(); ++i) {
        if (std::isfinite(values[i])) continue;
        note(result.positions, i, result.nans + result.infinities);
        if (std::isnan(values[i])) {
          note(result.nan_positions, i, result.nans);
          ++result.nans;
        } else {
          ++result.infinities;
        }
      }
    }
  });
  return result;
}

std::string python_bool(bool value) { return value ? "True" : "False"; }

bool validate_output(const std::string& runner, const NamedTensor& output, const NonFinitePositions& found,
                     const ValidateOptions& options) {
  log_start(fmt::format("{:35} | Validating output: {} (check_inf={}, check_nan={})", runner, output.name,
                        python_bool(options.check_inf), python_bool(options.check_nan)));
  const LogIndent indent;
  log_statistics(output.tensor, false, "");
  bool valid = true;
  if (options.check_nan && found.nans > 0) {
    valid = false;
    log_error("NaN Detected | One or more NaNs were encountered in this output");
    log_once(LogLevel::kInfo, "Note: Use -vv or set logging verbosity to EXTRA_VERBOSE to display locations of NaNs");
    log(LogLevel::kExtraVerbose, "Note: NaNs at:\n" + found.nan_positions);
  }
  if (options.check_inf && found.nans + found.infinities > 0) {
    valid = false;
    log_error("Inf Detected | One or more non-finite values were encountered in this output");
    log_once(LogLevel::kInfo, "Note: Use -vv or set logging verbosity to EXTRA_VERBOSE to display non-finite values");
    log(LogLevel::kExtraVerbose, "Note: non-finite values at:\n" + found.positions);
  }
  log_result(valid, valid ? "PASSED | Output: " + output.name + " is valid"
                          : "FAILED | Errors detected in output: " + output.name);
  return valid;
}

}  // namespace

ValidationResult validate(const RunResults& results, const ValidateOptions& options) {
  ValidationResult result;
  std::vector<std::string> runners;
  for (const auto& runner : results) runners.push_back(runner.first);
  log_start("Output Validation | Runners: " + python_list(runners));
  const LogIndent indent;
  for (const auto& [runner, iterations] : results) {
    bool named = false;
    for (std::size_t k = 0; k < iterations.size(); ++k) {
      for (const NamedTensor& output : iterations[k].outputs) {
        const NonFinitePositions found = find_non_finite(output.tensor);
        const bool valid = validate_output(runner, output, found, options);
        result.passed = result.passed && valid;
        const bool counts =
            (options.check_nan && found.nans > 0) || (options.check_inf && found.nans + found.infinities > 0);
        if (counts && !result.first_non_finite) {
          result.first_non_finite = output.name;
          result.runner = runner;
          result.iteration = static_cast<std::int64_t>(k);
        }
        if (counts && !named && iterations[k].outputs.size() > 1) {
          named = true;
          log_error("First non-finite output of " + runner + ": '" + output.name + "' (iteration " + std::to_string(k) +
                    "): " + std::to_string(found.nans) + " NaN and " + std::to_string(found.infinities) +
                    " Inf among " + std::to_string(output.tensor.size()) + " elements");
        }
        if (!result.passed && options.fail_fast) return result;
      }
    }
  }
  log_result(result.passed, result.passed ? "PASSED | Output Validation" : "FAILED | Output Validation");
  return result;
}

}  // namespace ulpscope
