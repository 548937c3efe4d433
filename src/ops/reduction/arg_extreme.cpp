// ArgMax and ArgMin: where the extreme element along an axis is.
#include "ops/elementwise.h"
#include "ops/rows.h"

namespace ulpscope::ops {
namespace {

void infer_arg_extreme(InferContext& ctx) {
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

/// The first NaN goes before everything. Of equals the first, or the last with select_last_index.
template <bool smallest>
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
          if (row[i] != row[i] || (smallest ? row[i] < row[best] : row[i] > row[best]) || (last && row[i] == row[best]))
            best = i;
        out[r] = best;
      }
    });
  });
}

OpDef arg_extreme_row(std::string_view name, void (*run)(KernelContext&)) {
  return {.name = name,
          .types = {kNumbers},
          .precision = PrecisionRule::kFixed,
          .infer = infer_arg_extreme,
          .run = run,
          .axes = axes_of_attribute<0>};
}

}  // namespace

OpTable arg_extreme() {
  return {
      // ArgMax, ai.onnx 1, 11, 12, 13: the index of the largest element along an axis.
      arg_extreme_row("ArgMax", run_arg_extreme<false>),
      // ArgMin, ai.onnx 1, 11, 12, 13: the index of the smallest element along an axis.
      arg_extreme_row("ArgMin", run_arg_extreme<true>),
  };
}

}  // namespace ulpscope::ops
