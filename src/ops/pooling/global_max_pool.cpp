// GlobalMaxPool, ai.onnx 1, 22: the largest element of each channel.
#include <limits>

#include "ops/adjoint_values.h"
#include "ops/pooling/global_pooling.h"

namespace ulpscope::ops {
namespace {

void run(KernelContext& ctx) {
  run_global_pool(ctx, []<typename T>(const T* x, std::int64_t count) {
    T best = -std::numeric_limits<T>::infinity();
    for (std::int64_t i = 0; i < count; ++i)
      if (x[i] > best || x[i] != x[i]) best = x[i];
    return best;
  });
}

void adjoint(AdjointContext& ctx) {
  const Value chosen = 1 - abs(sign(input(ctx, 0) - output(ctx)));
  ctx.set(0, (chosen * (gradient(ctx) / sum(chosen, axes_after(2, ctx.input_shape(0).size())))).id);
}

}  // namespace

OpDef global_max_pool() {
  return {
      .name = "GlobalMaxPool", .kind = OpKind::kPooling, .infer = infer_global_pool, .run = run, .adjoint = adjoint};
}

}  // namespace ulpscope::ops
