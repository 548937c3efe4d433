// Golden and candidate outputs side by side.
#pragma once

#include <functional>
#include <span>
#include <string>

#include "precision/criterion.h"

namespace ulpscope {

struct SamplePair {
  const std::string& output;
  int sample;
  const Tensor& golden;
  const Tensor& candidate;
};

/// Calls `visit` for every judged output of every sample, samples first, in the order of the golden outputs. Throws
/// Error(kInvalidArgument) for different numbers of samples, a missing output, and when there is nothing to judge.
void visit_pairs(const Criterion& criterion, std::span<const TensorMap> golden, std::span<const TensorMap> candidate,
                 const std::function<void(const SamplePair&)>& visit);

/// Why no number can tell how far the candidate is off: another shape, or NaN and infinities that golden does not have.
/// Empty where one can.
std::string problem_of(const SamplePair& pair);

/// "'a', 'b'" or "none".
std::string output_list(const TensorMap& tensors);

}  // namespace ulpscope
