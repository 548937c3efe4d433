// LpPool, ai.onnx 1, 2, 11, 18, 22: the Lp norm of each window.
#include <cmath>

#include "ops/adjoint_linear.h"
#include "ops/common.h"
#include "ops/pooling/pooling.h"

namespace ulpscope::ops {
namespace {

void infer_lp_pool(InferContext& ctx) {
  ctx.set_type(0, ctx.type(0));
  ctx.set_shape(0, pool_geometry(ctx.layer(), ctx.shape(0)).output_shape());
}

void run_lp_pool(KernelContext& ctx) {
  const WindowGeometry g = pool_geometry(ctx.layer(), ctx.input(0).shape());
  const Window3 w = to_window3(ctx.layer(), g);
  const std::int64_t p = ctx.attributes().integer("p", 2);
  const std::int64_t in_volume = Window3::volume(w.input), out_volume = Window3::volume(w.output);
  with_type(FloatTypes{}, ctx, ctx.input(0).type(), [&](auto tag) {
    using T = decltype(tag);
    const T* x = ctx.input(0).data<T>();
    T* out = ctx.output(0).data<T>();
    for_each_window(g.batch * g.in_channels, w,
                    [&](std::int64_t plane, std::int64_t index, const auto& at, const auto& first, const auto& last) {
                      const T* image = x + plane * in_volume;
                      T sum{};
                      visit_window(w, at, first, last, [&](std::int64_t i) {
                        const T v = std::abs(image[i]);
                        sum += p == 1 ? v : p == 2 ? v * v : std::pow(v, static_cast<T>(p));
                      });
                      out[plane * out_volume + index] = p == 1   ? sum
                                                        : p == 2 ? std::sqrt(sum)
                                                                 : std::pow(sum, T{1} / static_cast<T>(p));
                    });
  });
}

void adjoint_lp_pool(AdjointContext& ctx) {
  const double p = static_cast<double>(ctx.attributes().integer("p", 2));
  const Value x = input(ctx, 0), y = output(ctx);
  // |x|^(p - 1) sign(x) y^(1 - p); a norm of 0 counts as 1.
  const Value norm = y + (1 - sign(y));
  const Value share = p == 1 ? gradient(ctx) : gradient(ctx) * (p == 2 ? 1 / norm : power(norm, 1 - p));
  const Value own = p == 1 ? sign(x) : p == 2 ? x : sign(x) * power(abs(x), p - 1);
  ctx.set(0, (own * window_sums_adjoint(share, pool_geometry(ctx.layer(), ctx.input_shape(0)))).id);
}

}  // namespace

OpDef lp_pool() {
  return {.name = "LpPool",
          .types = {kFloats},
          .kind = OpKind::kPooling,
          .infer = infer_lp_pool,
          .run = run_lp_pool,
          .adjoint = adjoint_lp_pool};
}

}  // namespace ulpscope::ops
