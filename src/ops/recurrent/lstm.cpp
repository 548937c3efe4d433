// LSTM, ai.onnx 1, 7, 14, 22: long short-term memory. Gates in the order input, output, forget, cell (iofc).
#include "ops/multiply_adds.h"
#include "ops/recurrent/recurrent.h"

namespace ulpscope::ops {
namespace {

// Inputs: X, W, R, B, sequence_lens, initial_h, initial_c, P (peepholes of i, o, f). Outputs: Y, Y_h, Y_c.
void infer_lstm(InferContext& ctx) { infer_recurrent(ctx, 4, 2); }

void run_lstm(KernelContext& ctx) {
  const RecurrentSizes s =
      recurrent_sizes(ctx.layer(), ctx.input(0).shape(), ctx.input(1).shape(), ctx.input(2).shape(), 4);
  const auto activations = activations_of(ctx.layer(), {"Sigmoid", "Tanh", "Tanh"}, s.directions);
  const bool input_forget = ctx.attributes().integer("input_forget", 0) != 0;
  if (ctx.has_input(7) && ctx.input(7).shape() != Shape{s.directions, 3 * s.hidden})
    ctx.fail(fmt::format("expected P of shape {}, got {}", to_string({s.directions, 3 * s.hidden}),
                         to_string(ctx.input(7).shape())));
  with_type(FloatTypes{}, ctx, ctx.input(0).type(), [&](auto tag) {
    using T = decltype(tag);
    const T clip = static_cast<T>(ctx.attributes().real("clip", 0));
    const std::int64_t h = s.hidden;
    Tensor cells = ctx.has_output(2) ? ctx.output(2) : Tensor(ctx.input(0).type(), s.state_shape());
    T* all_cells = cells.data<T>();
    if (ctx.has_input(6)) {
      const auto initial = ctx.input(6).values<T>();
      std::copy(initial.begin(), initial.end(), all_cells);
    } else {
      std::fill(all_cells, all_cells + cells.size(), T{});
    }
    run_recurrent<T>(ctx, s, 4, [&](const RecurrentStep<T>& step) {
      const T* r = ctx.input(2).data<T>() + step.direction * 4 * h * h;
      const T* bias = ctx.has_input(3) ? ctx.input(3).data<T>() + step.direction * 8 * h : nullptr;
      const T* peephole = ctx.has_input(7) ? ctx.input(7).data<T>() + step.direction * 3 * h : nullptr;
      const Activation* activation = activations.data() + step.direction * 3;
      T* cell = all_cells + s.state_at(step.direction, step.batch);
      std::vector<T> next(static_cast<std::size_t>(h));
      for (std::int64_t i = 0; i < h; ++i) {
        const auto sum = [&](std::int64_t gate) {
          const std::int64_t row = gate * h + i;
          const T value = step.from_input[row] + dot(r + row * h, step.hidden, h);
          return bias ? value + (bias[row] + bias[4 * h + row]) : value;
        };
        const auto peep = [&](std::int64_t gate, T state) { return peephole ? peephole[gate * h + i] * state : T{}; };
        const T in = activation[0](clipped(sum(0) + peep(0, cell[i]), clip));
        const T forget = input_forget ? T{1} - in : activation[0](clipped(sum(2) + peep(2, cell[i]), clip));
        const T candidate = activation[1](clipped(sum(3), clip));
        cell[i] = forget * cell[i] + in * candidate;
        const T out = activation[0](clipped(sum(1) + peep(1, cell[i]), clip));
        next[static_cast<std::size_t>(i)] = out * activation[2](cell[i]);
      }
      std::copy(next.begin(), next.end(), step.hidden);
    });
  });
}

}  // namespace

OpDef lstm() {
  return {.name = "LSTM",
          .inputs = {3, 8},
          .outputs = {0, 3},
          .types = {kFloats, kFloats, kFloats, kFloats, kIndices, kFloats},
          .weights = 0b10001110,
          .infer = infer_lstm,
          .run = run_lstm,
          .multiply_adds = multiply_adds_of_recurrent};
}

}  // namespace ulpscope::ops
