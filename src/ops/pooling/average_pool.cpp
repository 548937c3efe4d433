// AveragePool, ai.onnx 1, 7, 10, 11, 19, 22: the mean of each window.
#include "ops/adjoint_linear.h"
#include "ops/common.h"
#include "ops/pooling/pooling.h"

namespace ulpscope::ops {
namespace {

void infer_average_pool(InferContext& ctx) {
  ctx.set_type(0, ctx.type(0));
  ctx.set_shape(0, pool_geometry(ctx.layer(), ctx.shape(0)).output_shape());
}

/// Kernel positions of the window at `at` that lie inside of the input or its pads: windows that ceil_mode adds reach
/// beyond the pads, and what is there does not count.
std::int64_t positions_with_pads(const Window3& w, const Window3::Triple& at) {
  std::int64_t count = 1;
  for (std::size_t d = 0; d < 3; ++d) {
    const std::int64_t offset = at[d] * w.strides[d];
    const OutputRange r =
        valid_outputs(w.kernel[d], w.pads_begin[d] + w.input[d] + w.pads_end[d], w.dilations[d], offset);
    count *= r.end - r.begin;
  }
  return count;
}

void run_average_pool(KernelContext& ctx) {
  const WindowGeometry g = pool_geometry(ctx.layer(), ctx.input(0).shape());
  const Window3 w = to_window3(ctx.layer(), g);
  const bool include_pad = ctx.attributes().integer("count_include_pad", 0) != 0;
  const std::int64_t in_volume = Window3::volume(w.input), out_volume = Window3::volume(w.output);
  with_type(FloatTypes{}, ctx, ctx.input(0).type(), [&](auto tag) {
    using T = decltype(tag);
    const T* x = ctx.input(0).data<T>();
    T* out = ctx.output(0).data<T>();
    for_each_window(g.batch * g.in_channels, w,
                    [&](std::int64_t plane, std::int64_t index, const auto& at, const auto& first, const auto& last) {
                      const T* image = x + plane * in_volume;
                      T sum{};
                      std::int64_t count = 0;
                      visit_window(w, at, first, last, [&](std::int64_t i) {
                        sum += image[i];
                        ++count;
                      });
                      if (include_pad) count = positions_with_pads(w, at);
                      out[plane * out_volume + index] = count == 0 ? T{} : sum / static_cast<T>(count);
                    });
  });
}

void adjoint_average_pool(AdjointContext& ctx) {
  const WindowGeometry g = pool_geometry(ctx.layer(), ctx.input_shape(0));
  const Window3 w = to_window3(ctx.layer(), g);
  const bool include_pad = ctx.attributes().integer("count_include_pad", 0) != 0;
  // One over the number of elements of each window.
  Shape windows{1, 1};
  windows.insert(windows.end(), g.output.begin(), g.output.end());
  Tensor shares(DataType::kFloat64, windows);
  double* share = shares.data<double>();
  for_each_window(1, w, [&](std::int64_t, std::int64_t index, const auto& at, const auto& first, const auto& last) {
    std::int64_t count = 1;
    for (std::size_t d = 0; d < 3; ++d) count *= std::max<std::int64_t>(0, last[d] - first[d]);
    if (include_pad && count > 0) count = positions_with_pads(w, at);
    share[index] = count == 0 ? 0 : 1 / static_cast<double>(count);
  });
  const bool same = std::all_of(share, share + shares.size(), [&](double s) { return s == share[0]; });
  const double factor = same && shares.size() > 0 ? share[0] : 1;
  const Value weighted = same ? gradient(ctx) : gradient(ctx) * Value{&ctx, ctx.constant(shares)};
  ctx.set(0, window_sums_adjoint(weighted, g, factor).id);
}

}  // namespace

OpDef average_pool() {
  return {.name = "AveragePool",
          .types = {kFloats},
          .kind = OpKind::kPooling,
          .function = Function::kAveragePool,
          .infer = infer_average_pool,
          .run = run_average_pool,
          .adjoint = adjoint_average_pool};
}

}  // namespace ulpscope::ops
