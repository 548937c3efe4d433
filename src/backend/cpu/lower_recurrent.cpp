// LSTM, GRU and RNN.
#include <fmt/format.h>

#include <algorithm>

#include "backend/cpu/lowering.h"
#include "backend/cpu/recurrent.h"

namespace ulpscope::cpu {
namespace {

/// Wb + Rb, per gate; the candidate of a GRU that resets sums has Rb by itself. `biases`: [directions, 2 * gates * h].
Tensor input_bias(const Tensor& biases, const ops::RecurrentForm& form, std::int64_t width) {
  const std::int64_t h = form.sizes.hidden, rows = form.gates * h;
  Tensor sums(DataType::kFloat32, {form.sizes.directions, rows});
  for (std::int64_t d = 0; d < form.sizes.directions; ++d)
    for (std::int64_t i = 0; i < rows; ++i) {
      const float* of_input = biases.data<float>() + d * 2 * rows;
      const bool separate = form.linear_before_reset && i >= 2 * h;
      sums.data<float>()[d * rows + i] = separate ? of_input[i] : of_input[i] + of_input[rows + i];
    }
  return pad_gates(sums, form.gates, h, width, 1).reshaped({form.sizes.directions * form.gates * width});
}

/// Rb of the candidate of a GRU.
Tensor candidate_bias(const Tensor& biases, const ops::RecurrentForm& form, std::int64_t width) {
  const std::int64_t h = form.sizes.hidden, all = 2 * form.gates * h;
  Tensor result(DataType::kFloat32, {form.sizes.directions, h});
  for (std::int64_t d = 0; d < form.sizes.directions; ++d)
    std::copy_n(biases.data<float>() + (d + 1) * all - h, h, result.data<float>() + d * h);
  return pad_gates(result, 1, h, width, 1);
}

}  // namespace

bool Lowering::lower_recurrent(const LayerKernel& kernel) {
  const Layer& l = layer(kernel.layer);
  if (kernel.open || !ops::is_recurrent(l)) return false;
  constexpr std::size_t kX = 0, kW = 1, kR = 2, kB = 3, kHidden = 5, kCell = 6, kPeephole = 7;
  for (const std::size_t i : {kW, kR, kB, kPeephole})
    if (const TensorId id = l.input(i); id != kNone && (!spec_.is_constant(id) || kernel.operands[i].integers))
      return false;
  const TensorId x = l.inputs[kX];
  if (physical_type(spec_.type(x)) != DataType::kFloat32) return false;
  const auto form = ops::recurrent_form(l, shape(x), shape(l.inputs[kW]), shape(l.inputs[kR]));
  if (!form || num_elements(shape(x)) == 0 || form->sizes.hidden == 0) return false;

  const ops::RecurrentSizes& s = form->sizes;
  const std::int64_t width = padded_gate(s.hidden), gates = form->gates;
  const auto named = [&](std::size_t i) {
    const Operand& operand = kernel.operands[i];
    return fmt::format("{}|{}|{}", constants_.key(operand.tensor), static_cast<int>(operand.first),
                       static_cast<int>(operand.rounding));
  };
  MatMulSpec product;
  product.m = s.seq * s.batch;
  product.n = s.directions * gates * width;
  product.k = s.input;
  product.transpose_b = true;
  product.key_b = fmt::format("{}|gates of {}", named(kW), width);
  product.constant_b = [source = constants_.source(kernel.operands[kW]), gates, hidden = s.hidden, width,
                        row = s.input] { return pad_gates(source(), gates, hidden, width, row); };
  RecurrentSpec spec{*form, constants_.source(kernel.operands[kR]), named(kR), {}, {}};
  if (l.input(kB) != kNone) {
    const Tensor biases = constant(kernel.operands[kB]);
    product.bias = input_bias(biases, *form, width);
    if (form->linear_before_reset) spec.bias = candidate_bias(biases, *form, width);
  }
  if (l.input(kPeephole) != kNone)
    spec.peephole = pad_gates(constant(kernel.operands[kPeephole]), 3, s.hidden, width, 1);

  const int sums = new_float_slot({product.m, product.n});
  add_step(make_matmul_kernel(product, object_cache()),
           {read_operand(kernel.layer, kernel.operands[kX], Layout::kDense)}, {sums}, kernel.layer);
  std::vector<int> inputs{sums}, outputs;
  for (const std::size_t i : {kHidden, kCell})
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
