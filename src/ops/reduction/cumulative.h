// Running sums and products along one axis.
#pragma once

#include "ops/elementwise.h"

namespace ulpscope::ops {

/// The kernel of CumSum and CumProd: out[i] = function(out[i - 1], x[i]) from `start`. Attributes exclusive and
/// reverse.
template <typename Function>
void run_cumulative(KernelContext& ctx, int start, Function function) {
  const Tensor& in = ctx.input(0);
  const bool exclusive = ctx.attributes().integer("exclusive", 0) != 0;
  const bool reverse = ctx.attributes().integer("reverse", 0) != 0;
  const std::vector<std::int64_t> axes = ctx.integers(1);
  if (axes.size() != 1) ctx.fail(fmt::format("expected one axis, got {}", axes.size()));
  const auto axis = static_cast<std::size_t>(normalize_axis(ctx, axes[0], in.rank()));
  const Shape& shape = in.shape();
  const std::int64_t length = shape[axis], inner = product(shape, axis + 1, shape.size());
  const std::int64_t outer = product(shape, 0, axis);
  with_type(NumericTypes{}, ctx, in.type(), [&](auto tag) {
    using T = decltype(tag);
    const T* x = in.data<T>();
    T* y = ctx.output(0).template data<T>();
    parallel_for(outer * inner, std::max<std::int64_t>(1, kElementsPerTask / std::max<std::int64_t>(1, length)),
                 [&](std::int64_t begin, std::int64_t end) {
                   for (std::int64_t line = begin; line < end; ++line) {
                     const std::int64_t base = line / inner * length * inner + line % inner;
                     T total = static_cast<T>(start);
                     for (std::int64_t i = 0; i < length; ++i) {
                       const std::int64_t at = base + (reverse ? length - 1 - i : i) * inner;
                       if (exclusive) y[at] = total;
                       total = function(total, x[at]);
                       if (!exclusive) y[at] = total;
                     }
                   }
                 });
  });
}

}  // namespace ulpscope::ops
