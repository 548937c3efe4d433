// What storing weights in a narrow format does to them.
#pragma once

#include "formats/encoding.h"
#include "ulpscope/tensor.h"

namespace ulpscope {

/// What a format does to constant weights.
struct WeightLoss {
  double relative = 0;  ///< The root mean square of the error, as a share of that of the weights.
  double peak = 0;      ///< In the scale's share with the largest error: the largest magnitude over the mean one.
};

/// `stored`: what the elements stand for. Both float32, of one shape.
WeightLoss weight_loss(const Tensor& values, const Tensor& stored, const ScaleLayout& layout);

}  // namespace ulpscope
