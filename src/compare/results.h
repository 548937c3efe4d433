// What runners gave: outputs per runner and iteration.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "compare/tensor_map.h"

namespace ulpscope {

/// The outputs of one inference.
struct IterationResult {
  TensorMap outputs;
  /// Seconds; nothing when unknown.
  std::optional<double> runtime;
  std::string runner_name;

  /// The output of that name, or null.
  const Tensor* find(std::string_view name) const;
};

/// Runners in order; names may repeat.
using RunResults = std::vector<std::pair<std::string, std::vector<IterationResult>>>;

/// "['a', 'b']", as Python prints a list of strings.
std::string python_list(const std::vector<std::string>& names);
/// "'a'", as Python's repr prints a string.
std::string python_string(std::string_view text);
/// As Python prints a float: "1e-05", "0.2", "1.0", "inf", "nan"; the shortest text that reads back the same.
std::string python_float(double value);

}  // namespace ulpscope
