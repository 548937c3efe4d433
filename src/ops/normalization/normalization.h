// What the normalization operators share. Statistics are computed in the type of the elements (float32 or double) in
// two passes, with pairwise sums.
#pragma once

#include "ops/adjoint_values.h"
#include "ops/elementwise.h"
#include "ops/rows.h"

namespace ulpscope::ops {

template <typename T>
T mean_of(const T* row, std::int64_t length) {
  return pairwise_sum<T>(0, length, [&](std::int64_t i) { return row[i]; }) / static_cast<T>(length);
}

/// The population variance.
template <typename T>
T variance_of(const T* row, std::int64_t length, T mean) {
  const T sum = pairwise_sum<T>(0, length, [&](std::int64_t i) {
    const T difference = row[i] - mean;
    return difference * difference;
  });
  return sum / static_cast<T>(length);
}

/// A parameter of an own float type in the type of the elements.
inline Tensor parameter_as(const Tensor& tensor, DataType type) {
  return tensor.type() == type ? tensor : tensor.cast(type);
}

}  // namespace ulpscope::ops
