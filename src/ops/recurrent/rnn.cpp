// RNN, ai.onnx 1, 7, 14, 22: a simple recurrent layer, H(t) = f(W x(t) + R H(t-1) + Wb + Rb).
#include "ops/multiply_adds.h"
#include "ops/recurrent/recurrent.h"

namespace ulpscope::ops {
namespace {

// Inputs: X, W, R, B, sequence_lens, initial_h. Outputs: Y, Y_h.
void infer_rnn(InferContext& ctx) { infer_recurrent(ctx, 1, 1); }

void run_rnn(KernelContext& ctx) {
  const RecurrentSizes s =
      recurrent_sizes(ctx.layer(), ctx.input(0).shape(), ctx.input(1).shape(), ctx.input(2).shape(), 1);
  const auto activations = activations_of(ctx.layer(), {"Tanh"}, s.directions);
  with_type(FloatTypes{}, ctx, ctx.input(0).type(), [&](auto tag) {
    using T = decltype(tag);
    const T clip = static_cast<T>(ctx.attributes().real("clip", 0));
    const std::int64_t h = s.hidden;
    run_recurrent<T>(ctx, s, 1, [&](const RecurrentStep<T>& step) {
      const T* r = ctx.input(2).data<T>() + step.direction * h * h;
      const T* bias = ctx.has_input(3) ? ctx.input(3).data<T>() + step.direction * 2 * h : nullptr;
      std::vector<T> next(static_cast<std::size_t>(h));
      for (std::int64_t i = 0; i < h; ++i) {
        T sum = step.from_input[i] + dot(r + i * h, step.hidden, h);
        if (bias) sum += bias[i] + bias[h + i];
        next[static_cast<std::size_t>(i)] = activations[static_cast<std::size_t>(step.direction)](clipped(sum, clip));
      }
      std::copy(next.begin(), next.end(), step.hidden);
    });
  });
}

}  // namespace

OpDef rnn() {
  return {.name = "RNN",
          .inputs = {3, 6},
          .outputs = {0, 2},
          .types = {kFloats, kFloats, kFloats, kFloats, kIndices, kFloats},
          .weights = 0b1110,
          .infer = infer_rnn,
          .run = run_rnn,
          .multiply_adds = multiply_adds_of_recurrent};
}

}  // namespace ulpscope::ops
