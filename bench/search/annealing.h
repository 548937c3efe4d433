// The fastest assignment that passes by prediction, against what simulated annealing finds.
#pragma once

#include "cases.h"

namespace ulpscope::bench {

struct AnnealingOptions {
  std::filesystem::path models;
  int threads = 0;
  double seconds = 600, margin = 0.5;
  std::string target = "h200";
};

/// Prints a line: both times for the same predictor, limit and costs, their ratio, and what bounds them (everything in
/// the lowest and in the highest precision). Simulated annealing (Kirkpatrick, Gelatt and Vecchi, 1983) starts from
/// everything high and moves layers and whole kernels; it has the seconds of a wall clock.
void anneal_case(const Case& which, const AnnealingOptions& options);

}  // namespace ulpscope::bench
