// GlobalLpPool, ai.onnx 1, 2, 22: the Lp norm of each channel.
#include <cmath>

#include "ops/global_pooling.h"

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

}  // namespace

OpDef global_lp_pool() {
  return {.name = "GlobalLpPool", .kind = OpKind::kPooling, .infer = infer_global_pool, .run = run};
}

}  // namespace ulpscope::ops
