// DFT, ai.onnx 17, 20: the discrete Fourier transform along one axis.
#include "core/parallel.h"
#include "ops/movement.h"
#include "ops/signal/spectrum.h"

namespace ulpscope::ops {
namespace {

struct DftPlan {
  std::int64_t axis = 0, length = 0;
  bool inverse = false, onesided = false;
  Shape output;
};

// Inputs: input (d..., 1 or 2), dft_length, axis (opset 20; an attribute before).
template <typename Context>
DftPlan dft_plan(const Context& ctx) {
  const Shape& x = shape_of(ctx, 0);
  const std::int64_t rank = static_cast<std::int64_t>(x.size());
  if (rank < 2 || (x.back() != 1 && x.back() != 2))
    ctx.fail(fmt::format("expected an input (..., 1) or (..., 2), got shape {}", to_string(x)));
  DftPlan p;
  p.inverse = ctx.attributes().integer("inverse", 0) != 0;
  p.onesided = ctx.attributes().integer("onesided", 0) != 0;
  const std::int64_t default_axis = ctx.opset() < 20 ? 1 : -2;
  p.axis = ctx.has_input(2) ? single_integer(ctx, 2) : ctx.attributes().integer("axis", default_axis);
  p.axis = normalize_axis(ctx, p.axis, rank);
  if (p.axis == rank - 1) ctx.fail("the last axis holds the real and the imaginary part; it cannot be transformed");
  if (p.onesided && !p.inverse && x.back() != 1) ctx.fail("a one-sided transform needs a real input");
  const std::int64_t size = x[static_cast<std::size_t>(p.axis)];
  p.length = ctx.has_input(1) ? single_integer(ctx, 1) : p.inverse && p.onesided ? 2 * (size - 1) : size;
  if (p.length < 1) ctx.fail(fmt::format("expected a length >= 1, got {}", p.length));
  p.output = x;
  p.output[static_cast<std::size_t>(p.axis)] = p.onesided && !p.inverse ? p.length / 2 + 1 : p.length;
  p.output.back() = p.onesided && p.inverse ? 1 : 2;
  return p;
}

void infer_dft(InferContext& ctx) {
  ctx.set_type(0, ctx.type(0));
  ctx.set_shape(0, dft_plan(ctx).output);
}

void run_dft(KernelContext& ctx) {
  const DftPlan p = dft_plan(ctx);
  const Shape& x = ctx.input(0).shape();
  const auto axis = static_cast<std::size_t>(p.axis);
  const std::int64_t in_parts = x.back(), out_parts = p.output.back();
  const std::int64_t outer = product(x, 0, axis), inner = product(x, axis + 1, x.size() - 1);
  const std::int64_t in_size = x[axis], out_size = p.output[axis];
  const FourierTransform transform(p.length);
  with_type(FloatTypes{}, ctx, ctx.input(0).type(), [&](auto tag) {
    using T = decltype(tag);
    const T* in = ctx.input(0).data<T>();
    T* out = ctx.output(0).data<T>();
    parallel_for(outer * inner, 1, [&](std::int64_t begin, std::int64_t end) {
      FourierTransform::Values values;
      for (std::int64_t line = begin; line < end; ++line) {
        const std::int64_t o = line / inner, i = line % inner;
        values.assign(static_cast<std::size_t>(p.length), {});
        for (std::int64_t k = 0; k < std::min(in_size, p.length); ++k) {
          const T* at = in + ((o * in_size + k) * inner + i) * in_parts;
          values[static_cast<std::size_t>(k)] = {at[0], in_parts == 2 ? at[1] : T{}};
        }
        if (p.inverse && p.onesided)  // The other half mirrors the first one.
          for (std::int64_t k = p.length / 2 + 1; k < p.length; ++k)
            values[static_cast<std::size_t>(k)] = std::conj(values[static_cast<std::size_t>(p.length - k)]);
        if (p.inverse)
          transform.inverse(values);
        else
          transform.forward(values);
        for (std::int64_t k = 0; k < out_size; ++k) {
          T* at = out + ((o * out_size + k) * inner + i) * out_parts;
          at[0] = static_cast<T>(values[static_cast<std::size_t>(k)].real());
          if (out_parts == 2) at[1] = static_cast<T>(values[static_cast<std::size_t>(k)].imag());
        }
      }
    });
  });
}

}  // namespace

OpDef dft() {
  return {.name = "DFT",
          .since_version = 17,
          .inputs = {1, 3},
          .types = {kFloats, kIndices},
          .weights = 0b110,
          .infer = infer_dft,
          .run = run_dft};
}

}  // namespace ulpscope::ops
