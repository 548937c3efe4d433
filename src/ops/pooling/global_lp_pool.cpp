// GlobalLpPool, ai.onnx 1, 2, 22: the Lp norm of each channel.
#include <cmath>

#include "ops/adjoint_values.h"
#include "ops/pooling/global_pooling.h"

namespace ulpscope::ops {
namespace {

void run(KernelContext& ctx) {
  run_global_pool(ctx, [p = ctx.attributes().integer("p", 2)]<typename T>(const T* x, std::int64_t count) {
    T sum{};
    for (std::int64_t i = 0; i < count; ++i) {
      const T v = std::abs(x[i]);
      sum += p == 1 ? v : p == 2 ? v * v : std::pow(v, static_cast<T>(p));
    }
    return p == 1 ? sum : p == 2 ? std::sqrt(sum) : std::pow(sum, T{1} / static_cast<T>(p));
  });
}

void adjoint(AdjointContext& ctx) {
  const double p = static_cast<double>(ctx.attributes().integer("p", 2));
  const Value x = input(ctx, 0), y = output(ctx);
  // |x|^(p - 1) sign(x) y^(1 - p); a norm of 0 counts as 1.
  const Value norm = y + (1 - sign(y));
  const Value share = p == 1 ? gradient(ctx) : gradient(ctx) * (p == 2 ? 1 / norm : power(norm, 1 - p));
  const Value own = p == 1 ? sign(x) : p == 2 ? x : sign(x) * power(abs(x), p - 1);
  ctx.set(0, (own * share).id);
}

}  // namespace

OpDef global_lp_pool() {
  return {.name = "GlobalLpPool", .kind = OpKind::kPooling, .infer = infer_global_pool, .run = run, .adjoint = adjoint};
}

}  // namespace ulpscope::ops
