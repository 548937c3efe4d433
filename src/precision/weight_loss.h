// What storing weights in a narrow format does to them, and why.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "formats/quantized.h"
#include "ulpscope/answer.h"
#include "ulpscope/tensor.h"

namespace ulpscope {

/// What a format does to constant weights. A share is what has one scale.
struct WeightLoss {
  double relative = 0;  ///< The root mean square of the error, as a share of that of the weights.

  /// Values that lie beyond the largest element times their scale by more than rounding does.
  std::int64_t saturated = 0;
  double most_beyond = 0;       ///< The most of these, over that.
  double saturation_share = 0;  ///< Of the squared error.

  /// Shares whose scale is more than twice what their largest value needs: scales cannot be as small.
  std::int64_t too_small = 0, shares = 0;
  double smallest_scale = 0;  ///< Of these.
  std::int64_t vanished = 0;  ///< Their values that become 0 and are not.
  std::int64_t gone = 0;      ///< Those of all shares, of formats without blocks.

  /// The channel with the largest root mean square, of those that share scales with others, against the median one;
  /// and what the others lose (as `relative`) that share a scale with it.
  struct Channel {
    int dimension = 0;
    std::int64_t number = 0;
    double ratio = 0, others_lose = 0;
  } channel;

  /// Blocks in which all but the largest value lose more than half (as `relative`), and of the worst of these how many
  /// times the root mean square of the others its largest is.
  std::int64_t swallowed = 0;
  double peak = 0;
};

/// `dimensions`: those whose channels share scales with each other.
WeightLoss weight_loss(const Tensor& values, const Quantized& stored, const Encoding& encoding,
                       const ScaleLayout& layout, const std::vector<int>& dimensions);

/// Sets the kind of the reason and its counts; returns what is to be said behind "the weights 'w' lose 3 % (rms)".
std::string explain_loss(const WeightLoss& loss, std::int64_t weights, Reason& reason);

}  // namespace ulpscope
