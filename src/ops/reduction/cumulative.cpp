// CumSum and CumProd: running sums and products along one axis.
#include "ops/adjoint_values.h"
#include "ops/elementwise.h"

namespace ulpscope::ops {
namespace {

/// out[i] = function(out[i - 1], x[i]) from `start`. Attributes exclusive (up to each element, without it) and reverse.
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

void run_cum_sum(KernelContext& ctx) {
  run_cumulative(ctx, 0, [](auto a, auto b) { return plus(a, b); });
}
void run_cum_prod(KernelContext& ctx) {
  run_cumulative(ctx, 1, [](auto a, auto b) { return times(a, b); });
}

void adjoint_cum_sum(AdjointContext& ctx) {
  const Attributes& attributes = ctx.attributes();
  ctx.set(0, ctx.add("CumSum", {ctx.gradient(0), ctx.input(1)},
                     {{"exclusive", attributes.integer("exclusive", 0)},
                      {"reverse", std::int64_t{attributes.integer("reverse", 0) == 0}}}));
}

OpDef cumulative_row(std::string_view name, int since_version, void (*run)(KernelContext&),
                     void (*adjoint)(AdjointContext&) = nullptr) {
  return {.name = name,
          .since_version = since_version,
          .inputs = {2, 2},
          .types = {kNumbers, kIndices},
          .weights = 0b10,
          .parameters = 0b10,
          .infer = infer_same_as_first,
          .run = run,
          .adjoint = adjoint};
}

}  // namespace

OpTable cumulative() {
  return {
      // CumSum, ai.onnx 11, 14.
      cumulative_row("CumSum", 11, run_cum_sum, adjoint_cum_sum),
      // CumProd, ai.onnx 26.
      cumulative_row("CumProd", 26, run_cum_prod),
  };
}

}  // namespace ulpscope::ops
