// GPUs as the cost model sees them.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "graph/assignment.h"

namespace ulpscope {

/// A roofline (Williams, Waterman and Patterson, 2009): time = launch + max(operations / rate, bytes / bandwidth).
struct Target {
  std::string name;
  std::array<double, 6> tflops{};  ///< Dense peak per Precision; 0: the GPU has no such arithmetic.
  double bandwidth_gb_per_s = 0;
  double launch_us = 0;

  bool has(Precision p) const noexcept { return tflops[static_cast<std::size_t>(p)] > 0; }
  /// Microseconds of the work alone, without the launch.
  double work_us(double operations, double bytes, Precision p) const noexcept;
};

/// One of `target_names()`, or the path of a JSON file of the same form (data/targets). Throws Error(kNotFound) listing
/// the names, Error(kInvalidFile).
Target find_target(const std::string& name);
std::vector<std::string> target_names();

}  // namespace ulpscope
