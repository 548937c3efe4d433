// GlobalAveragePool, ai.onnx 1, 22: the mean of each channel.
#include "ops/adjoint_values.h"
#include "ops/pooling/global_pooling.h"

namespace ulpscope::ops {
namespace {

void run(KernelContext& ctx) {
  run_global_pool(ctx, []<typename T>(const T* x, std::int64_t count) {
    T sum{};
    for (std::int64_t i = 0; i < count; ++i) sum += x[i];
    return sum / static_cast<T>(count);
  });
}

void adjoint(AdjointContext& ctx) {
  const Shape& shape = ctx.input_shape(0);
  ctx.set(0, ctx.broadcast_to(ctx.gradient(0), shape, 1 / static_cast<double>(product(shape, 2, shape.size()))));
}

}  // namespace

OpDef global_average_pool() {
  return {.name = "GlobalAveragePool",
          .kind = OpKind::kPooling,
          .infer = infer_global_pool,
          .run = run,
          .adjoint = adjoint};
}

}  // namespace ulpscope::ops
