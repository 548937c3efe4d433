// GRU, ai.onnx 1, 3, 7, 14, 22: gated recurrent unit. Gates in the order update (z), reset (r), hidden (h).
#include "ops/multiply_adds.h"
#include "ops/recurrent/recurrent.h"

namespace ulpscope::ops {
namespace {

// Inputs: X, W, R, B, sequence_lens, initial_h. Outputs: Y, Y_h.
void infer_gru(InferContext& ctx) { infer_recurrent(ctx, 3, 1); }

void run_gru(KernelContext& ctx) {
  const RecurrentSizes s =
      recurrent_sizes(ctx.layer(), ctx.input(0).shape(), ctx.input(1).shape(), ctx.input(2).shape(), 3);
  const auto activations = activations_of(ctx.layer(), {"Sigmoid", "Tanh"}, s.directions);
  const bool linear_before_reset = ctx.attributes().integer("linear_before_reset", 0) != 0;
  with_type(FloatTypes{}, ctx, ctx.input(0).type(), [&](auto tag) {
    using T = decltype(tag);
    const T clip = static_cast<T>(ctx.attributes().real("clip", 0));
    const std::int64_t h = s.hidden;
    run_recurrent<T>(ctx, s, 3, [&](const RecurrentStep<T>& step) {
      const T* r = ctx.input(2).data<T>() + step.direction * 3 * h * h;
      const T* bias = ctx.has_input(3) ? ctx.input(3).data<T>() + step.direction * 6 * h : nullptr;
      const Activation* activation = activations.data() + step.direction * 2;
      const auto w_bias = [&](std::int64_t i) { return bias ? bias[i] : T{}; };
      const auto r_bias = [&](std::int64_t i) { return bias ? bias[3 * h + i] : T{}; };
      std::vector<T> update(static_cast<std::size_t>(h)), reset(update), next(update);
      const auto gate = [&](std::int64_t i) {  // i counts rows of W and R
        const T sum = step.from_input[i] + dot(r + i * h, step.hidden, h) + (w_bias(i) + r_bias(i));
        return activation[0](clipped(sum, clip));
      };
      for (std::size_t i = 0; i < update.size(); ++i) {
        update[i] = gate(static_cast<std::int64_t>(i));
        reset[i] = gate(h + static_cast<std::int64_t>(i));
      }
      std::vector<T> scaled(step.hidden, step.hidden + h);
      if (!linear_before_reset)
        for (std::size_t i = 0; i < scaled.size(); ++i) scaled[i] *= reset[i];
      for (std::size_t i = 0; i < next.size(); ++i) {
        const std::int64_t row = 2 * h + static_cast<std::int64_t>(i);
        T recurrent = dot(r + row * h, scaled.data(), h) + r_bias(row);
        if (linear_before_reset) recurrent *= reset[i];
        const T candidate = activation[1](clipped(step.from_input[row] + recurrent + w_bias(row), clip));
        next[i] = (T{1} - update[i]) * candidate + update[i] * step.hidden[i];
      }
      std::copy(next.begin(), next.end(), step.hidden);
    });
  });
}

}  // namespace

OpDef gru() {
  return {.name = "GRU",
          .inputs = {3, 6},
          .outputs = {0, 2},
          .types = {kFloats, kFloats, kFloats, kFloats, kIndices, kFloats},
          .weights = 0b1110,
          .infer = infer_gru,
          .run = run_gru,
          .multiply_adds = multiply_adds_of_recurrent};
}

}  // namespace ulpscope::ops
