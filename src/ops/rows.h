// Rows: a tensor seen as rows that run over some of its axes, for reductions, softmax and normalization.
#pragma once

#include <algorithm>
#include <vector>

#include "core/parallel.h"
#include "ops/common.h"

namespace ulpscope::ops {

/// A tensor whose last axes are the ones to work over. `tensor` shares the input's bytes where that already holds.
struct Rows {
  Tensor tensor;  ///< Dense; `count` rows of `length` elements. Its shape is permuted when `perm` is not empty.
  std::int64_t count = 1;
  std::int64_t length = 1;
  std::vector<std::int64_t> perm;  ///< Dimension d of `tensor` is dimension perm[d] of the input. Empty: none moved.
};

/// `axes` are distinct and in [0, rank), in any order.
Rows to_rows(const Tensor& tensor, const std::vector<std::int64_t>& axes);

/// Writes rows that have the layout of to_rows' result back into `out`, which has the shape of the input of to_rows.
void from_rows(const Rows& rows, Tensor& out);

/// How many rows of this length one task takes.
inline std::int64_t rows_per_task(std::int64_t length) {
  return std::max<std::int64_t>(1, (1 << 14) / std::max<std::int64_t>(1, length));
}

/// The sum of value(i) for i in [0, count), pairwise over blocks of 128 with eight running sums each: the error grows
/// with the logarithm of `count` (Higham, "The accuracy of floating point summation", 1993). Always in the same order.
template <typename Sum, typename Function>
Sum pairwise_sum(std::int64_t begin, std::int64_t end, const Function& value) {
  const std::int64_t count = end - begin;
  if (count > 128) {
    const std::int64_t middle = begin + count / 2 / 8 * 8;
    return pairwise_sum<Sum>(begin, middle, value) + pairwise_sum<Sum>(middle, end, value);
  }
  Sum sums[8] = {};
  std::int64_t i = begin;
  for (; i + 8 <= end; i += 8)
    for (int k = 0; k < 8; ++k) sums[k] += static_cast<Sum>(value(i + k));
  Sum rest{};
  for (; i < end; ++i) rest += static_cast<Sum>(value(i));
  return ((sums[0] + sums[4]) + (sums[1] + sums[5])) + ((sums[2] + sums[6]) + (sums[3] + sums[7])) + rest;
}

/// Calls function(const T* in, T* out, length) for every row of input 0 and of output 0 (both of the same shape).
template <typename T, typename Function>
void map_rows(const Tensor& in, Tensor& out, const std::vector<std::int64_t>& axes, const Function& function) {
  const Rows from = to_rows(in, axes);
  Rows to = from;
  to.tensor = from.perm.empty() ? out : Tensor(out.type(), from.tensor.shape());
  const T* x = from.tensor.data<T>();
  T* y = to.tensor.data<T>();
  parallel_each(from.count, rows_per_task(from.length),
                [&](std::int64_t row) { function(x + row * from.length, y + row * from.length, from.length); });
  if (!from.perm.empty()) from_rows(to, out);
}

/// All axes from `first` on.
std::vector<std::int64_t> axes_from(std::int64_t first, std::int64_t rank);

/// Axes in [-rank, rank) as ascending ones in [0, rank); nothing when one is outside or listed twice.
std::optional<std::vector<std::int64_t>> sorted_axes(std::vector<std::int64_t> axes, std::int64_t rank);

/// OpDef::axes of an operator that works along its attribute `axis`, whose default is `absent`.
template <std::int64_t absent>
std::optional<std::vector<std::int64_t>> axes_of_attribute(const Layer& layer, std::int64_t rank, const Tensor*) {
  return sorted_axes({layer.attributes.integer("axis", absent)}, rank);
}

}  // namespace ulpscope::ops
