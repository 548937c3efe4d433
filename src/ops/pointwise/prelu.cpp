// PRelu, ai.onnx 1, 6, 7, 9, 16: x, scaled by a slope below 0 that is broadcast to x.
#include "ops/adjoint_values.h"
#include "ops/elementwise.h"

namespace ulpscope::ops {
namespace {

using Types = TypeList<float, double, std::int32_t, std::uint32_t, std::int64_t, std::uint64_t>;

struct Sloped {
  template <typename T>
  T operator()(T x, T slope) const {
    return x < T{0} ? times(x, slope) : x;
  }
};

void infer(InferContext& ctx) {
  infer_broadcast(ctx);
  const Shape& shape = ctx.shape(0);
  if (broadcast(shape, ctx.shape(1)) != shape)
    ctx.fail(fmt::format("a slope of shape {} cannot be broadcast to {}", to_string(ctx.shape(1)), to_string(shape)));
  ctx.set_shape(0, shape);
}

void adjoint(AdjointContext& ctx) {
  const Value g = gradient(ctx), x = input(ctx, 0);
  if (ctx.wants(0)) ctx.set(0, (g * (1 + step(-x) * (input(ctx, 1) - 1))).id);
  if (ctx.wants(1)) set(ctx, 1, g * minimum(x, scalar(ctx, 0)));
}

}  // namespace

OpDef prelu() {
  return {.name = "PRelu",
          .inputs = {2, 2},
          .kind = OpKind::kPointwise,
          .infer = infer,
          .run = run_binary<Types, Sloped>,
          .adjoint = adjoint};
}

}  // namespace ulpscope::ops
