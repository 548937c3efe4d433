// What ArgMax and ArgMin share.
#pragma once

#include "ops/elementwise.h"
#include "ops/rows.h"

namespace ulpscope::ops {

inline void infer_arg_extreme(InferContext& ctx) {
  ctx.set_type(0, DataType::kInt64);
  Shape shape = ctx.shape(0);
  const std::int64_t axis = normalize_axis(ctx, ctx.attributes().integer("axis", 0), ctx.rank(0));
  const auto at = shape.begin() + static_cast<std::ptrdiff_t>(axis);
  if (*at == 0) ctx.fail("the axis has no elements to choose from");
  if (ctx.attributes().integer("keepdims", 1) != 0)
    *at = 1;
  else
    shape.erase(at);
  ctx.set_shape(0, std::move(shape));
}

/// Better{}(a, b): a goes before b. The first NaN goes before everything. Of equals the first, or the last with
/// select_last_index.
template <typename Better>
void run_arg_extreme(KernelContext& ctx) {
  const Tensor& in = ctx.input(0);
  const std::int64_t axis = normalize_axis(ctx, ctx.attributes().integer("axis", 0), in.rank());
  const bool last = ctx.attributes().integer("select_last_index", 0) != 0;
  const Rows rows = to_rows(in, {axis});
  with_type(NumericTypes{}, ctx, in.type(), [&](auto tag) {
    using T = decltype(tag);
    const T* x = rows.tensor.data<T>();
    std::int64_t* out = ctx.output(0).data<std::int64_t>();
    parallel_for(rows.count, rows_per_task(rows.length), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t r = begin; r < end; ++r) {
        const T* row = x + r * rows.length;
        std::int64_t best = 0;
        for (std::int64_t i = 1; i < rows.length && row[best] == row[best]; ++i)
          if (row[i] != row[i] || Better{}(row[i], row[best]) || (last && row[i] == row[best])) best = i;
        out[r] = best;
      }
    });
  });
}

}  // namespace ulpscope::ops
