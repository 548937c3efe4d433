// LSTM, GRU and RNN.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "backend/cpu/integer_product.h"
#include "backend/cpu/lowering.h"
#include "backend/cpu/recurrent.h"
#include "backend/recurrent_layer.h"
#include "core/parallel.h"
#include "core/vector_clones.h"
#include "ops/quantization/quantization.h"

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
  add_recurrence(kernel, std::move(spec), sums);
  return true;
}

void Lowering::add_recurrence(const LayerKernel& kernel, RecurrentSpec spec, int sums) {
  using Input = RecurrentInput;
  const Layer& l = layer(kernel.layer);
  std::vector<int> inputs{sums}, outputs;
  for (const std::size_t i : {Input::kHidden, Input::kCell})
    inputs.push_back(l.input(i) == kNone ? -1 : read_operand(kernel.layer, kernel.operands[i], Layout::kDense));
  for (const Store& output : kernel.outputs)
    outputs.push_back(output.tensor == kNone ? -1 : define(output.tensor, Layout::kDense));
  const std::vector<int> made = outputs;
  add_step(make_recurrent_kernel(std::move(spec), object_cache()), std::move(inputs), std::move(outputs), kernel.layer);
  for (std::size_t i = 0; i < made.size(); ++i)
    if (made[i] >= 0) store(made[i], kernel.outputs[i], kernel.layer);
}

namespace {

/// [directions, k, gates * hidden] as [directions, gates * width, k]; what fills up a gate is 0.
template <typename To>
Tensor turned_gates(const Tensor& matrix, std::int64_t hidden, std::int64_t width, DataType type) {
  const Shape& s = matrix.shape();
  const std::int64_t gates = s[2] / hidden;
  Tensor result(type, {s[0], gates * width, s[1]});
  std::fill_n(result.data<To>(), result.size(), To{});
  for (std::int64_t d = 0; d < s[0]; ++d)
    for (std::int64_t p = 0; p < s[1]; ++p)
      for (std::int64_t c = 0; c < s[2]; ++c)
        result.data<To>()[(d * gates * width + c / hidden * width + c % hidden) * s[1] + p] =
            static_cast<To>(matrix.data<std::int32_t>()[(d * s[1] + p) * s[2] + c]);
  return result;
}

ULPSCOPE_VECTOR_CLONES void scale_sums(const std::int32_t* sums, float scale, const float* scales, const float* bias,
                                       std::int64_t count, float* out) {
  for (std::int64_t i = 0; i < count; ++i) out[i] = static_cast<float>(sums[i]) * (scale * scales[i]) + bias[i];
}

bool is_held_by_int8(const Tensor& matrix) {
  return std::ranges::all_of(matrix.values<std::int32_t>(), [](std::int32_t v) { return v == std::int8_t(v); });
}

/// Sums of products of these and of bytes less a zero point are whole numbers that float32 holds.
bool has_small_sums(const Tensor& matrix) {
  const Shape& s = matrix.shape();
  for (std::int64_t d = 0; d < s[0]; ++d)
    for (std::int64_t c = 0; c < s[2]; ++c) {
      std::int64_t sum = 0;
      for (std::int64_t p = 0; p < s[1]; ++p) sum += std::abs(matrix.data<std::int32_t>()[(d * s[1] + p) * s[2] + c]);
      if (sum * 255 > (1 << 24)) return false;
    }
  return true;
}

}  // namespace

/// W x and the biases of a DynamicQuantizeLSTM: X is quantized as a whole, and its product is one of bytes.
int Lowering::add_dynamic_product(const LayerKernel& kernel, const ops::RecurrentForm& form,
                                  const ops::DynamicMatrix& w) {
  using Input = RecurrentInput;
  const Layer& l = layer(kernel.layer);
  const ops::RecurrentSizes& s = form.sizes;
  const std::int64_t width = padded_gate(s.hidden);
  MatMulSpec product;
  product.m = s.seq * s.batch;
  product.n = s.directions * 4 * width;
  product.k = s.input;
  product.transpose_b = true;
  product.type_a = DataType::kUInt8;
  product.key_b = fmt::format("{}|gates of {}, less {}", constants_.key(l.inputs[1]), width,
                              l.input(9) == kNone ? std::string() : constants_.key(l.inputs[9]));
  if (is_held_by_int8(w.centered)) product.type_b = DataType::kInt8;
  product.constant_b = [w = w.centered, hidden = s.hidden, width, shape = Shape{product.n, product.k}] {
    return turned_gates<std::int16_t>(w, hidden, width, DataType::kInt16).reshaped(shape);
  };
  Tensor bias = Tensor(DataType::kFloat32, {product.n});
  std::fill_n(bias.data<float>(), product.n, 0.0F);
  const auto padded = [&](const Tensor& rows) { return pad_gates(rows, 4, s.hidden, width, 1).reshaped({product.n}); };
  if (const TensorId id = l.input(Input::kB); id != kNone)
    bias = padded(ops::summed_biases(spec_.value(id).in_memory(), form));

  const int bytes = new_slot(DataType::kUInt8, shape(l.inputs[0])), scale = new_float_slot({1});
  const int zero = new_slot(DataType::kUInt8, Shape{1}),
            integers = new_slot(DataType::kInt32, Shape{product.m, product.n});
  add_step(make_kernel("dynamic quantization",
                       [](Kernel::Inputs in, Kernel::Outputs out) {
                         const auto x = in[0]->values<float>();
                         const ops::DynamicScale by = ops::dynamic_scale(x);
                         ops::quantize_dynamically(x, by, out[0]->data<std::uint8_t>());
                         *out[1]->data<float>() = by.scale;
                         *out[2]->data<std::uint8_t>() = by.zero;
                       }),
           {read_operand(kernel.layer, kernel.operands[Input::kX], Layout::kDense)}, {bytes, scale, zero},
           kernel.layer);
  add_step(make_matmul_integer_kernel(product, object_cache()), {bytes, zero}, {integers}, kernel.layer);
  const int sums = new_float_slot({product.m, product.n});
  add_step(make_kernel("sums to real numbers",
                       [scales = padded(w.scales), bias, rows = product.m, n = product.n](Kernel::Inputs in,
                                                                                          Kernel::Outputs out) {
                         parallel_each(rows, items_per_task(rows, n), [&](std::int64_t row) {
                           scale_sums(in[0]->data<std::int32_t>() + row * n, *in[1]->data<float>(),
                                      scales.data<float>(), bias.data<float>(), n, out[0]->data<float>() + row * n);
                         });
                       }),
           {integers, scale}, {sums}, kernel.layer);
  return sums;
}

/// The recurrence multiplies bytes, or holds the integers as floats.
bool Lowering::lower_dynamic_lstm(const LayerKernel& kernel) {
  using Input = RecurrentInput;
  const Layer& l = layer(kernel.layer);
  if (kernel.open || !ops::is_dynamic_lstm(l)) return false;
  for (const int i : {1, 2, 3, 7, 8, 9, 10, 11})
    if (l.input(i) != kNone && !spec_.is_constant(l.input(i))) return false;
  const auto form = ops::dynamic_form(l, shape(l.inputs[0]), shape(l.inputs[1]), shape(l.inputs[2]));
  if (!form || num_elements(shape(l.inputs[0])) == 0 || form->sizes.hidden == 0) return false;
  const ops::RecurrentSizes& s = form->sizes;
  if (l.input(7) != kNone && shape(l.inputs[7]) != Shape{s.directions, 3 * s.hidden}) return false;
  const auto value = [&](int i) { return l.input(i) == kNone ? Tensor() : spec_.value(l.inputs[i]).in_memory(); };
  const ops::DynamicMatrix w = ops::dynamic_matrix(value(1), value(8), value(9)),
                           r = ops::dynamic_matrix(value(2), value(10), value(11));
  const bool by_bytes = multiplies_bytes_with_zeros(s.hidden) && is_held_by_int8(r.centered);
  if (!multiplies_centered_integers(s.input) || (!by_bytes && !has_small_sums(r.centered))) return false;
  const std::int64_t width = padded_gate(s.hidden);
  const auto padded = [&](const Tensor& rows, std::int64_t gates) {
    return pad_gates(rows, gates, s.hidden, width, 1).reshaped({s.directions * gates * width});
  };
  const auto of_state = [r = r.centered, by_bytes, hidden = s.hidden, width] {
    return by_bytes ? turned_gates<std::int16_t>(r, hidden, width, DataType::kInt16)
                    : turned_gates<float>(r, hidden, hidden, DataType::kFloat32);
  };
  RecurrentSpec spec{*form,
                     of_state,
                     fmt::format("{}|{}, less {}", constants_.key(l.inputs[2]), by_bytes ? "bytes" : "turned",
                                 l.input(11) == kNone ? std::string() : constants_.key(l.inputs[11])),
                     {},
                     {}};
  if (l.input(Input::kPeephole) != kNone) spec.peephole = padded(value(Input::kPeephole), 3);
  spec.state_scales = padded(r.scales, 4);
  spec.by_bytes = by_bytes;
  add_recurrence(kernel, std::move(spec), add_dynamic_product(kernel, *form, w));
  return true;
}

}  // namespace ulpscope::cpu
