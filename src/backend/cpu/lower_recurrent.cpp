// LSTM, GRU and RNN.
#include <fmt/format.h>

#include "backend/cpu/lowering.h"
#include "backend/cpu/recurrent.h"
#include "backend/recurrent_layer.h"

namespace ulpscope::cpu {

/// The products with all inputs do not wait for each other: they are one product, biases included, and only the
/// recurrence goes step by step. Gates are padded to whole vectors, so that its loops have no rests.
bool Lowering::lower_recurrent(const LayerKernel& kernel) {
  using Input = RecurrentInput;
  const auto form = recurrent_layer(spec_, kernel);
  if (!form) return false;
  const Layer& l = layer(kernel.layer);
  const ops::RecurrentSizes& s = form->sizes;
  const std::int64_t width = padded_gate(s.hidden), gates = form->gates;
  const auto named = [&](std::size_t i) { return constants_.key(kernel.operands[i]); };
  MatMulSpec product;
  product.m = s.seq * s.batch;
  product.n = s.directions * gates * width;
  product.k = s.input;
  product.transpose_b = true;
  product.key_b = fmt::format("{}|gates of {}", named(Input::kW), width);
  product.constant_b = [source = constants_.source(kernel.operands[Input::kW]), gates, hidden = s.hidden, width,
                        row = s.input] { return pad_gates(source(), gates, hidden, width, row); };
  RecurrentSpec spec{*form, constants_.source(kernel.operands[Input::kR]), named(Input::kR), {}, {}};
  if (l.input(Input::kB) != kNone) {
    const Tensor biases = constant(kernel.operands[Input::kB]);
    product.bias = pad_gates(ops::summed_biases(biases, *form), gates, s.hidden, width, 1).reshaped({product.n});
    if (form->linear_before_reset) spec.bias = pad_gates(ops::candidate_biases(biases, *form), 1, s.hidden, width, 1);
  }
  if (l.input(Input::kPeephole) != kNone)
    spec.peephole = pad_gates(constant(kernel.operands[Input::kPeephole]), 3, s.hidden, width, 1);

  const int sums = new_float_slot({product.m, product.n});
  add_step(make_matmul_kernel(product, object_cache()),
           {read_operand(kernel.layer, kernel.operands[Input::kX], Layout::kDense)}, {sums}, kernel.layer);
  std::vector<int> inputs{sums}, outputs;
  for (const std::size_t i : {Input::kHidden, Input::kCell})
    inputs.push_back(l.input(i) == kNone ? -1 : read_operand(kernel.layer, kernel.operands[i], Layout::kDense));
  for (const Store& output : kernel.outputs)
    outputs.push_back(output.tensor == kNone ? -1 : define(output.tensor, Layout::kDense));
  const std::vector<int> made = outputs;
  add_step(make_recurrent_kernel(std::move(spec), object_cache()), std::move(inputs), std::move(outputs), kernel.layer);
  for (std::size_t i = 0; i < made.size(); ++i)
    if (made[i] >= 0) store(made[i], kernel.outputs[i], kernel.layer);
  return true;
}

}  // namespace ulpscope::cpu
