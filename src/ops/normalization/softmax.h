// What Softmax, LogSoftmax and Hardmax share.
#pragma once

#include <cmath>

#include "ops/elementwise.h"
#include "ops/rows.h"

namespace ulpscope::ops {

/// The axes of a row. Opset 13 on: the axis. Before: that axis (default 1) and all after it.
template <typename Context>
std::vector<std::int64_t> softmax_axes(const Context& ctx, std::int64_t rank) {
  const bool one_axis = ctx.opset() >= 13;
  std::int64_t axis = ctx.attributes().integer("axis", one_axis ? -1 : 1);
  // The flattening of old opsets takes axis == rank: rows of one element.
  if (!one_axis && axis == rank) return {};
  axis = normalize_axis(ctx, axis, rank);
  return one_axis ? std::vector<std::int64_t>{axis} : axes_from(axis, rank);
}

inline void infer_softmax(InferContext& ctx) {
  infer_same_as_first(ctx);
  softmax_axes(ctx, ctx.rank(0));
}

/// Function{}(const T* in, T* out, length) for every row.
template <typename Types, typename Function>
void run_softmax(KernelContext& ctx) {
  const std::vector<std::int64_t> axes = softmax_axes(ctx, ctx.input(0).rank());
  with_type(Types{}, ctx, ctx.input(0).type(),
            [&](auto tag) { map_rows<decltype(tag)>(ctx.input(0), ctx.output(0), axes, Function{}); });
}

/// NaN when there is one; -inf for no elements.
template <typename T>
T largest_of(const T* row, std::int64_t length) {
  T largest = -std::numeric_limits<T>::infinity();
  for (std::int64_t i = 0; i < length; ++i) largest = larger(largest, row[i]);
  return largest;
}

/// out = x - log(sum(e^x)) for one row, without overflow.
struct LogShares {
  template <typename T>
  void operator()(const T* in, T* out, std::int64_t length) const {
    const T largest = largest_of(in, length);
    const T sum = pairwise_sum<T>(0, length, [&](std::int64_t i) { return std::exp(in[i] - largest); });
    const T log_sum = std::log(sum);
    for (std::int64_t i = 0; i < length; ++i) out[i] = (in[i] - largest) - log_sum;
  }
};

}  // namespace ulpscope::ops
