// LpNormalization, ai.onnx 1, 22: divides by the 1- or 2-norm along an axis; 0 where that is 0.
#include "ops/adjoint_values.h"
#include "ops/normalization/normalization.h"

namespace ulpscope::ops {
namespace {

void run_lp_normalization(KernelContext& ctx) {
  const Tensor& in = ctx.input(0);
  const std::int64_t p = ctx.attributes().integer("p", 2);
  if (p != 1 && p != 2) ctx.fail(fmt::format("expected p = 1 or 2, got {}", p));
  const std::int64_t axis = normalize_axis(ctx, ctx.attributes().integer("axis", -1), in.rank());
  with_type(FloatTypes{}, ctx, in.type(), [&](auto tag) {
    using T = decltype(tag);
    map_rows<T>(in, ctx.output(0), {axis}, [p](const T* x, T* y, std::int64_t length) {
      const T norm = p == 1 ? pairwise_sum<T>(0, length, [&](std::int64_t i) { return std::abs(x[i]); })
                            : std::sqrt(pairwise_sum<T>(0, length, [&](std::int64_t i) { return x[i] * x[i]; }));
      for (std::int64_t i = 0; i < length; ++i) y[i] = norm == 0 ? T{0} : x[i] / norm;
    });
  });
}

void adjoint_lp_normalization(AdjointContext& ctx) {
  const Value x = input(ctx, 0), y = output(ctx), g = gradient(ctx);
  const bool first = ctx.attributes().integer("p", 2) == 1;
  const std::vector<std::int64_t> axes{positive_axis(ctx.attributes().integer("axis", -1), ctx.input_shape(0).size())};
  const Value norm = first ? sum(abs(x), axes) : sqrt(sum(square(x), axes));
  const Value along = (first ? sign(x) : y) * sum(g * y, axes);
  ctx.set(0, ((g - along) * sign(norm) / (norm + (1 - sign(norm)))).id);  // 0 where the norm is
}

}  // namespace

OpDef lp_normalization() {
  return {.name = "LpNormalization",
          .types = {kFloats},
          .kind = OpKind::kNormalization,
          .infer = infer_same_as_first,
          .run = run_lp_normalization,
          .adjoint = adjoint_lp_normalization,
          .axes = axes_of_attribute<-1>};
}

}  // namespace ulpscope::ops
