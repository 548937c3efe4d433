// Layers of bytes around products of integers: sums, products, functions, means and maxima, and what is side by side.
#include <algorithm>

#include "backend/cpu/layer_kernels.h"
#include "backend/cpu/lowering.h"
#include "backend/cpu/quantized_layers.h"
#include "ops/window.h"

namespace ulpscope::cpu {
namespace {

using ops::ByteLayer;

/// As it lies.
Shape in_memory(Shape shape, Layout layout) {
  if (layout == Layout::kChannelsLast) std::rotate(shape.begin() + 1, shape.begin() + 2, shape.end());
  return shape;
}

bool is_image(const Shape& shape) { return shape.size() == 3 || shape.size() == 4; }

}  // namespace

std::optional<ops::ByteScale> Lowering::byte_scale(const Layer& l, int i) const {
  ops::ByteScale result;
  for (int k : {i, i + 1}) {
    const TensorId id = l.input(k);
    if (id == kNone ? k == i : !spec_.is_constant(id) || spec_.value(id).size() != 1) return std::nullopt;
  }
  if (spec_.type(l.inputs[i]) != DataType::kFloat32) return std::nullopt;
  result.scale = spec_.value(l.inputs[i]).in_memory().data<float>()[0];
  if (const TensorId zero = l.input(i + 1); zero != kNone) {
    const Tensor value = spec_.value(zero).cast(DataType::kInt32);
    result.zero = value.data<std::int32_t>()[0];
  }
  return result;
}

Layout Lowering::shared_layout(const Layer& l, std::span<const int> inputs) const {
  for (int i : inputs)
    if (!spec_.is_constant(l.inputs[i]) && location(l.inputs[i]).layout == Layout::kChannelsLast)
      return Layout::kChannelsLast;
  return Layout::kDense;
}

bool Lowering::lower_byte_layer(const LayerKernel& kernel) {
  const Layer& l = layer(kernel.layer);
  if (lower_byte_maximum(kernel) || lower_one_scale(kernel)) return true;
  const auto form = ops::byte_layer(l);
  if (!form || known_count(l.outputs[0]).value_or(0) == 0) return false;
  switch (*form) {
    case ByteLayer::kAdd:
    case ByteLayer::kMul:
      return lower_byte_arithmetic(kernel, *form == ByteLayer::kMul);
    case ByteLayer::kSigmoid:
    case ByteLayer::kLeakyRelu:
      return lower_one_scale(kernel);
    case ByteLayer::kGlobalAveragePool:
    case ByteLayer::kAveragePool:
      return lower_byte_means(kernel, *form == ByteLayer::kGlobalAveragePool);
    case ByteLayer::kConcat:
      return lower_byte_concat(kernel);
  }
  return false;
}

bool Lowering::lower_byte_arithmetic(const LayerKernel& kernel, bool multiplies) {
  const Layer& l = layer(kernel.layer);
  const auto a = byte_scale(l, 1), b = byte_scale(l, 4), out = byte_scale(l, 6);
  if (!a || !b || !out) return false;
  constexpr std::array kOperands{0, 3};
  const Shape& result = shape(l.outputs[0]);
  Layout layout = shared_layout(l, kOperands);
  for (int i : kOperands)
    if (shape(l.inputs[i]).size() != result.size()) layout = Layout::kDense;
  const ops::ByteArithmetic form{multiplies, byte_sign(l.outputs[0]), *a, *b, *out};
  std::vector<int> inputs;
  for (int i : kOperands) inputs.push_back(read(kernel.operands[i], layout, kernel.layer));
  const Shape of_a = in_memory(shape(l.inputs[0]), layout), of_b = in_memory(shape(l.inputs[3]), layout);
  add_step(make_kernel(multiplies ? "product of bytes" : "sum of bytes",
                       [=, of_out = in_memory(result, layout)](Kernel::Inputs in, Kernel::Outputs to) {
                         ops::run_byte_arithmetic(form, in[0]->raw(), of_a, in[1]->raw(), of_b, to[0]->raw(), of_out);
                       }),
           std::move(inputs), {define(l.outputs[0], layout)}, kernel.layer);
  settle(kernel.outputs[0], kernel.layer);
  return true;
}

bool Lowering::lower_byte_means(const LayerKernel& kernel, bool of_all) {
  const Layer& l = layer(kernel.layer);
  const auto from = byte_scale(l, 1), to = byte_scale(l, 3);
  const Shape& in = shape(l.inputs[0]);
  if (!from || !to || !is_image(in) || location(l.inputs[0]).layout != Layout::kChannelsLast) return false;
  const int source = read(kernel.operands[0], Layout::kChannelsLast, kernel.layer);
  const ops::ByteSign sign = byte_sign(l.outputs[0]);
  std::unique_ptr<Kernel> step;
  if (of_all) {
    const std::array sizes{in[0], in[1], positions_of(in)};
    step = make_kernel("mean of bytes", [=, from = *from, to = *to](Kernel::Inputs x, Kernel::Outputs y) {
      ops::average_bytes(sign, from, to, x[0]->raw(), sizes, true, y[0]->raw());
    });
  } else {
    const ops::WindowGeometry g = ops::pool_geometry(l, in);
    const ops::ByteWindows form{g.batch, g.in_channels, ops::to_window3(l, g),
                                l.attributes.integer("count_include_pad", 0) != 0};
    step = make_kernel("means of windows of bytes", [=, from = *from, to = *to](Kernel::Inputs x, Kernel::Outputs y) {
      ops::average_windows(sign, from, to, form, x[0]->raw(), true, y[0]->raw());
    });
  }
  add_step(std::move(step), {source}, {define(l.outputs[0], image_layout(l.outputs[0]))}, kernel.layer);
  settle(kernel.outputs[0], kernel.layer);
  return true;
}

bool Lowering::lower_byte_concat(const LayerKernel& kernel) {
  const Layer& l = layer(kernel.layer);
  const Shape& out = shape(l.outputs[0]);
  const auto rank = static_cast<std::int64_t>(out.size());
  const auto to = byte_scale(l, 0);
  std::vector<int> operands;
  std::vector<ops::ByteScale> scales;
  for (int i = 2; i < static_cast<int>(l.inputs.size()); i += 3) {
    const auto from = byte_scale(l, i + 1);
    if (!from || !spec_.shape(l.inputs[i])) return false;
    operands.push_back(i);
    scales.push_back(*from);
  }
  if (!to) return false;
  const Layout layout = shared_layout(l, operands);
  auto axis = l.attributes.integer("axis", 0);
  if (axis < 0) axis += rank;
  if (layout == Layout::kChannelsLast && axis > 0) axis = axis == 1 ? rank - 1 : axis - 1;
  const Shape memory = in_memory(out, layout);
  std::int64_t outer = 1, inner = 1;
  for (std::int64_t d = 0; d < rank; ++d)
    if (d != axis) (d < axis ? outer : inner) *= memory[static_cast<std::size_t>(d)];
  std::vector<int> inputs;
  std::vector<std::int64_t> widths;
  for (int i : operands) {
    inputs.push_back(read(kernel.operands[i], layout, kernel.layer));
    widths.push_back(in_memory(shape(l.inputs[i]), layout)[static_cast<std::size_t>(axis)] * inner);
  }
  const std::int64_t stride = memory[static_cast<std::size_t>(axis)] * inner;
  add_step(make_kernel("bytes side by side",
                       [=, sign = byte_sign(l.outputs[0]), to = *to](Kernel::Inputs in, Kernel::Outputs results) {
                         auto* place = static_cast<std::uint8_t*>(results[0]->raw());
                         for (std::size_t i = 0; i < in.size(); place += widths[i++])
                           ops::place_bytes(sign, scales[i], to, in[i]->raw(), outer, widths[i], place, stride);
                       }),
           std::move(inputs), {define(l.outputs[0], layout)}, kernel.layer);
  settle(kernel.outputs[0], kernel.layer);
  return true;
}

bool Lowering::lower_byte_maximum(const LayerKernel& kernel) {
  const Layer& l = layer(kernel.layer);
  const DataType type = spec_.type(l.outputs[0]);
  if (l.op->function != Function::kMaxPool || (type != DataType::kInt8 && type != DataType::kUInt8)) return false;
  const Shape &input = shape(l.inputs[0]), &output = shape(l.outputs[0]);
  if (!is_image(input) || spec_.is_constant(l.inputs[0]) || num_elements(output) == 0) return false;
  const auto pooling = ops::pooling_of(l, input);
  if (!pooling) return false;
  const ops::WindowGeometry& g = pooling->windows;
  const PoolSpec spec{pooling->form, input, output, g.kernel, g.strides, g.dilations, g.pads_begin, g.pads_end};
  const int source = read(kernel.operands[0], Layout::kChannelsLast, kernel.layer);
  add_step(make_byte_max_pool_kernel(spec, type == DataType::kInt8), {source},
           {define(l.outputs[0], image_layout(l.outputs[0]))}, kernel.layer);
  settle(kernel.outputs[0], kernel.layer);
  return true;
}

bool Lowering::lower_quantize(const LayerKernel& kernel) {
  const Layer& l = layer(kernel.layer);
  const TensorId in = l.inputs[0], out = l.outputs[0];
  const DataType type = spec_.type(out);
  if (!ops::is_quantize(l) || (type != DataType::kInt8 && type != DataType::kUInt8) || spec_.is_constant(in) ||
      spec_.type(in) != DataType::kFloat32 || l.attributes.integer("precision", 0) != 0)
    return false;
  const auto by = byte_scale(l, 1);
  const Shape& s = shape(in);
  if (!by || s.empty() || num_elements(s) == 0 || slot_of(in).dynamic) return false;
  const Layout layout = location(in).layout;
  const int source = read_operand(kernel.layer, kernel.operands[0], layout);
  add_quantization(to_bytes(by->scale, type == DataType::kUInt8), IntegerForm::kBytes, s, layout, source,
                   define(out, layout), kernel.layer, by->zero);
  settle(kernel.outputs[0], kernel.layer);
  return true;
}

/// What each element becomes does not depend on where it is: the operator's kernel takes any order of them, and what
/// reads it may want another one, which floats and bytes can be put into.
bool Lowering::lower_one_scale(const LayerKernel& kernel) {
  if (lower_quantize(kernel)) return true;
  const Layer& l = layer(kernel.layer);
  const auto form = ops::byte_layer(l);
  const bool of_bytes = form == ByteLayer::kSigmoid || form == ByteLayer::kLeakyRelu;
  if (!of_bytes && !ops::is_quantize(l) && !ops::is_dequantize(l)) return false;
  const TensorId out = l.outputs[0];
  if (spec_.is_constant(l.inputs[0]) || location(l.inputs[0]).layout != Layout::kChannelsLast ||
      known_count(l.inputs[1]) != 1 || !(spec_.is_held_as_float(out) || size_of(spec_.type(out)) == 1))
    return false;
  std::vector<int> inputs{read_operand(kernel.layer, kernel.operands[0], Layout::kChannelsLast)};
  for (std::size_t i = 1; i < kernel.operands.size(); ++i) inputs.push_back(input_slot(kernel, static_cast<int>(i)));
  run_reference(kernel, std::move(inputs), Rounding::kNone, Layout::kChannelsLast);
  return true;
}

}  // namespace ulpscope::cpu
