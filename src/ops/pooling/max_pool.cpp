// MaxPool, ai.onnx 1, 8, 10, 11, 12, 22: the largest element of each window, and where it was.
#include <limits>

#include "ops/adjoint_linear.h"
#include "ops/common.h"
#include "ops/pooling/pooling.h"

namespace ulpscope::ops {
namespace {

using PooledTypes = TypeList<float, double, std::int8_t, std::uint8_t>;

void infer_max_pool(InferContext& ctx) {
  ctx.set_type(0, ctx.type(0));
  ctx.set_type(1, DataType::kInt64);
  const Shape shape = pool_geometry(ctx.layer(), ctx.shape(0)).output_shape();
  ctx.set_shape(0, shape);
  ctx.set_shape(1, shape);
}

void run_max_pool(KernelContext& ctx) {
  const WindowGeometry g = pool_geometry(ctx.layer(), ctx.input(0).shape());
  const Window3 w = to_window3(ctx.layer(), g);
  const bool column_major = ctx.attributes().integer("storage_order", 0) != 0;
  const std::int64_t in_volume = Window3::volume(w.input), out_volume = Window3::volume(w.output);
  std::int64_t* indices = ctx.has_output(1) ? ctx.output(1).data<std::int64_t>() : nullptr;
  with_type(PooledTypes{}, ctx, ctx.input(0).type(), [&](auto tag) {
    using T = decltype(tag);
    using Limits = std::numeric_limits<T>;
    const T* x = ctx.input(0).data<T>();
    T* out = ctx.output(0).data<T>();
    for_each_window(g.batch * g.in_channels, w,
                    [&](std::int64_t plane, std::int64_t index, const auto& at, const auto& first, const auto& last) {
                      const T* image = x + plane * in_volume;
                      T best = Limits::has_infinity ? -Limits::infinity() : Limits::lowest();
                      std::int64_t where = -1;
                      visit_window(w, at, first, last, [&](std::int64_t i) {
                        // The first of equal elements wins; NaN is larger than everything.
                        if (where >= 0 && !(image[i] > best) && image[i] == image[i]) return;
                        if (best != best) return;
                        best = image[i];
                        where = i;
                      });
                      out[plane * out_volume + index] = best;
                      if (indices == nullptr) return;
                      if (column_major && where >= 0) {
                        const std::int64_t column = where % w.input[2], row = where / w.input[2] % w.input[1];
                        const std::int64_t slice = where / (w.input[2] * w.input[1]);
                        where = (column * w.input[1] + row) * w.input[0] + slice;
                      }
                      indices[plane * out_volume + index] = where < 0 ? -1 : plane * in_volume + where;
                    });
  });
}

void adjoint_max_pool(AdjointContext& ctx) {
  const WindowGeometry g = pool_geometry(ctx.layer(), ctx.input_shape(0));
  if (ctx.gradient(0) == kNone) return;
  std::vector<std::int64_t> pads = g.pads_begin;
  pads.insert(pads.end(), g.pads_end.begin(), g.pads_end.end());
  const std::vector<TensorId> again = ctx.add_multiple("MaxPool", std::array{ctx.input(0)}, 2,
                                                       {{"kernel_shape", g.kernel},
                                                        {"strides", g.strides},
                                                        {"dilations", g.dilations},
                                                        {"pads", pads},
                                                        {"ceil_mode", ctx.attributes().integer("ceil_mode", 0)}});
  ctx.set(0, scatter_flat(gradient(ctx), {&ctx, again[1]}, ctx.input_shape(0)).id);
}

}  // namespace

OpDef max_pool() {
  return {.name = "MaxPool",
          .outputs = {1, 2},
          .types = {set_of(PooledTypes{})},
          .kind = OpKind::kPooling,
          .function = Function::kMaxPool,
          .exactness = Exactness::kSelects,
          .infer = infer_max_pool,
          .run = run_max_pool,
          .adjoint = adjoint_max_pool};
}

}  // namespace ulpscope::ops
