// STFT, ai.onnx 17: Fourier transforms of overlapping, windowed frames of a signal.
#include "core/parallel.h"
#include "ops/movement.h"
#include "ops/signal/spectrum.h"
#include "ops/type_rules.h"

namespace ulpscope::ops {
namespace {

struct StftPlan {
  std::int64_t step = 0, length = 0, frames = 0, bins = 0;
};

// Inputs: signal (batch, length, 1 or 2), frame_step, window, frame_length.
template <typename Context>
StftPlan stft_plan(const Context& ctx) {
  const Shape& x = shape_of(ctx, 0);
  if (x.size() != 3 || (x[2] != 1 && x[2] != 2))
    ctx.fail(fmt::format("expected a signal (batch, length, 1 or 2), got shape {}", to_string(x)));
  StftPlan p;
  p.step = single_integer(ctx, 1);
  p.length = x[1];
  if (ctx.has_input(3))
    p.length = single_integer(ctx, 3);
  else if (ctx.has_input(2))
    p.length = num_elements(shape_of(ctx, 2));
  if (p.step < 1 || p.length < 1 || p.length > x[1])
    ctx.fail(fmt::format("frames of {} elements every {} do not fit a signal of {}", p.length, p.step, x[1]));
  if (ctx.has_input(2) && shape_of(ctx, 2) != Shape{p.length})
    ctx.fail(fmt::format("expected a window of {} elements, got shape {}", p.length, to_string(shape_of(ctx, 2))));
  p.frames = (x[1] - p.length) / p.step + 1;
  const bool onesided = ctx.attributes().integer("onesided", 1) != 0;
  if (onesided && x[2] == 2) ctx.fail("a one-sided transform needs a real signal; try onesided = 0");
  p.bins = onesided ? p.length / 2 + 1 : p.length;
  return p;
}

void infer_stft(InferContext& ctx) {
  ctx.set_type(0, ctx.type(0));
  require_type_of_first(ctx, {2});
  const StftPlan p = stft_plan(ctx);
  ctx.set_shape(0, {ctx.shape(0)[0], p.frames, p.bins, 2});
}

void run_stft(KernelContext& ctx) {
  const StftPlan p = stft_plan(ctx);
  const Shape& x = ctx.input(0).shape();
  const FourierTransform transform(p.length);
  with_type(FloatTypes{}, ctx, ctx.input(0).type(), [&](auto tag) {
    using T = decltype(tag);
    const T* signal = ctx.input(0).data<T>();
    const T* window = ctx.has_input(2) ? ctx.input(2).data<T>() : nullptr;
    T* out = ctx.output(0).data<T>();
    parallel_for(x[0] * p.frames, 1, [&](std::int64_t begin, std::int64_t end) {
      FourierTransform::Values values(static_cast<std::size_t>(p.length));
      for (std::int64_t frame = begin; frame < end; ++frame) {
        const T* start = signal + (frame / p.frames * x[1] + frame % p.frames * p.step) * x[2];
        for (std::int64_t i = 0; i < p.length; ++i) {
          const double weight = window ? window[i] : 1;
          values[static_cast<std::size_t>(i)] = {weight * start[i * x[2]], x[2] == 2 ? weight * start[i * 2 + 1] : 0};
        }
        transform.forward(values);
        for (std::int64_t k = 0; k < p.bins; ++k) {
          out[(frame * p.bins + k) * 2] = static_cast<T>(values[static_cast<std::size_t>(k)].real());
          out[(frame * p.bins + k) * 2 + 1] = static_cast<T>(values[static_cast<std::size_t>(k)].imag());
        }
      }
    });
  });
}

}  // namespace

OpDef stft() {
  return {.name = "STFT",
          .since_version = 17,
          .inputs = {2, 4},
          .types = {kFloats, kIndices, kFloats, kIndices},
          .weights = 0b1110,
          .infer = infer_stft,
          .run = run_stft};
}

}  // namespace ulpscope::ops
