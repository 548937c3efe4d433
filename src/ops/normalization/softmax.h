// The rows of Softmax and its kin, shared with the losses.
#pragma once

#include <cmath>

#include "ops/elementwise.h"
#include "ops/rows.h"

namespace ulpscope::ops {

/// NaN when there is one; -inf for no elements.
template <typename T>
T largest_of(const T* row, std::int64_t length) {
  T largest = -std::numeric_limits<T>::infinity();
  for (std::int64_t i = 0; i < length; ++i) largest = larger(largest, row[i]);
  return largest;
}

/// out = x - log(sum(e^x)) for one row, without overflow.
inline constexpr auto kLogShares = []<typename T>(const T* in, T* out, std::int64_t length) {
  const T largest = largest_of(in, length);
  const T sum = pairwise_sum<T>(0, length, [&](std::int64_t i) { return std::exp(in[i] - largest); });
  const T log_sum = std::log(sum);
  for (std::int64_t i = 0; i < length; ++i) out[i] = (in[i] - largest) - log_sum;
};

/// out = kLogShares of every row over `axes`.
void log_softmax(const KernelContext& ctx, const Tensor& in, Tensor& out, const std::vector<std::int64_t>& axes);

}  // namespace ulpscope::ops
