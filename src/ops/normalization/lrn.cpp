// LRN, ai.onnx 1, 13: x / (bias + alpha / size * sum of squares over `size` neighbouring channels)^beta.
#include <cmath>

#include "ops/adjoint_linear.h"
#include "ops/elementwise.h"

namespace ulpscope::ops {
namespace {

void infer_lrn(InferContext& ctx) {
  infer_same_as_first(ctx);
  if (ctx.rank(0) < 2) ctx.fail(fmt::format("expected an input (N, C, ...), got shape {}", to_string(ctx.shape(0))));
}

void run_lrn(KernelContext& ctx) {
  const Tensor& in = ctx.input(0);
  const std::int64_t size = ctx.attributes().required_integer("size");
  if (size < 1) ctx.fail(fmt::format("expected a positive size, got {}", size));
  const float alpha = ctx.attributes().real("alpha", 1e-4F), beta = ctx.attributes().real("beta", 0.75F);
  const float bias = ctx.attributes().real("bias", 1);
  const std::int64_t channels = in.shape()[1], inner = product(in.shape(), 2, in.shape().size());
  const std::int64_t before = (size - 1) / 2, after = size - 1 - before;
  with_type(FloatTypes{}, ctx, in.type(), [&](auto tag) {
    using T = decltype(tag);
    const T* x = in.data<T>();
    T* y = ctx.output(0).data<T>();
    const T factor = static_cast<T>(alpha) / static_cast<T>(size);
    parallel_for(
        in.shape()[0] * channels,
        std::max<std::int64_t>(1, kElementsPerTask / std::max<std::int64_t>(1, inner * std::min(size, channels))),
        [&](std::int64_t begin, std::int64_t end) {
          for (std::int64_t plane = begin; plane < end; ++plane) {
            const std::int64_t c = plane % channels;
            const T* sample = x + (plane - c) * inner;
            const std::int64_t first = std::max<std::int64_t>(0, c - before), last = std::min(channels - 1, c + after);
            for (std::int64_t i = 0; i < inner; ++i) {
              T sum = 0;
              for (std::int64_t k = first; k <= last; ++k) sum += sample[k * inner + i] * sample[k * inner + i];
              y[plane * inner + i] =
                  sample[c * inner + i] / std::pow(static_cast<T>(bias) + factor * sum, static_cast<T>(beta));
            }
          }
        });
  });
}

void adjoint_lrn(AdjointContext& ctx) {
  const std::int64_t size = ctx.attributes().required_integer("size"), channels = ctx.input_shape(0)[1];
  const double alpha = static_cast<double>(ctx.attributes().real("alpha", 1e-4F)),
               beta = static_cast<double>(ctx.attributes().real("beta", 0.75F)),
               bias = static_cast<double>(ctx.attributes().real("bias", 1));
  const std::int64_t before = (size - 1) / 2, after = size - 1 - before;
  // Which channels (rows) are in whose window (columns), and the transpose.
  Tensor members(DataType::kFloat64, {channels, channels}), owners(DataType::kFloat64, {channels, channels});
  for (std::int64_t k = 0; k < channels; ++k)
    for (std::int64_t c = 0; c < channels; ++c)
      members.data<double>()[k * channels + c] = owners.data<double>()[c * channels + k] =
          k >= c - before && k <= c + after ? 1 : 0;
  const double factor = alpha / static_cast<double>(size);
  const Value x = input(ctx, 0), g = gradient(ctx);
  const Value base = transposed_along_axis(square(x), members, 1) * factor + bias, scaled = g * power(base, -beta);
  const Value through = transposed_along_axis(scaled * x / base, owners, 1);
  ctx.set(0, (scaled - x * through * (2 * factor * beta)).id);
}

}  // namespace

OpDef lrn() {
  return {.name = "LRN",
          .types = {kFloats},
          .kind = OpKind::kNormalization,
          .infer = infer_lrn,
          .run = run_lrn,
          .adjoint = adjoint_lrn};
}

}  // namespace ulpscope::ops
