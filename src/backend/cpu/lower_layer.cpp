// Layers by themselves: pooling, casts and movement where layouts can be kept, pairs of Q and DQ, and for all others
// the operator's reference kernel.
#include <algorithm>

#include "backend/cpu/layer_kernels.h"
#include "backend/cpu/lowering.h"
#include "backend/reference_kernel.h"
#include "engine/int8.h"
#include "formats/stored_elements.h"
#include "ops/window.h"

namespace ulpscope::cpu {

void Lowering::lower(const LayerKernel& kernel) {
  if (lower_quantization(kernel) || lower_recurrent(kernel) || lower_dynamic_lstm(kernel) || lower_cut(kernel)) return;
  const bool settled = !kernel.open && !kernel.operands.empty() && kernel.operands[0].tensor != kNone &&
                       spec_.shape(kernel.operands[0].tensor) && layer(kernel.layer).has_one_output();
  if (settled && (lower_pool(kernel) || lower_resize(kernel) || lower_movement(kernel) || lower_cast(kernel) ||
                  lower_rows(kernel) || lower_integer_product(kernel) || lower_byte_layer(kernel) ||
                  lower_einsum(kernel) || lower_softmax(kernel)))
    return;
  std::vector<int> inputs;
  for (std::size_t i = 0; i < kernel.operands.size(); ++i)
    inputs.push_back(
        kernel.operands[i].tensor == kNone ? -1 : read_operand(kernel.layer, kernel.operands[i], Layout::kDense));
  run_reference(kernel, std::move(inputs));
}

/// Rows of a large table: no copy of all of it is made to round it, or because it is not in memory.
bool Lowering::lower_rows(const LayerKernel& kernel) {
  const Operand& table = kernel.operands[0];
  if (layer(kernel.layer).op->function != Function::kGather || !spec_.is_constant(table.tensor) || table.is_encoded() ||
      !spec_.is_held_as_float(table.tensor) || kernel.outputs[0].exact)
    return false;
  const Tensor& value = spec_.value(table.tensor);
  const auto [first, last] = constants_.roundings(table);
  const Rounding stored = step_rounding(kernel.outputs[0]);
  if (value.bytes() < StoredElements::kLeastBytes || !has_parts(value) || first != Rounding::kNone ||
      (stored != Rounding::kNone && last != Rounding::kNone && stored != last))
    return false;
  std::vector<int> inputs{constant_slot(value, true)};
  for (std::size_t i = 1; i < kernel.operands.size(); ++i)
    inputs.push_back(read_operand(kernel.layer, kernel.operands[i], Layout::kDense));
  run_reference(kernel, std::move(inputs), last);
  return true;
}

void Lowering::run_reference(const LayerKernel& kernel, std::vector<int> inputs, Rounding instead, Layout layout) {
  std::vector<int> outputs;
  std::vector<DataType> types;
  std::vector<Rounding> rounding;
  for (const Store& output : kernel.outputs) {
    types.push_back(output.tensor == kNone ? DataType::kUndefined : spec_.type(output.tensor));
    rounding.push_back(instead != Rounding::kNone ? instead : step_rounding(output));
    outputs.push_back(output.tensor == kNone ? -1 : define(output.tensor, layout));
    if (output.tensor != kNone && kernel.open) slot_of(output.tensor).dynamic = true;
  }
  const Layer& l = layer(kernel.layer);
  auto step = make_reference_kernel(l, types, rounding, !kernel.open,
                                    subgraphs_.contains(kernel.layer) ? subgraphs_[kernel.layer] : GraphFunction{},
                                    kernel.accumulator);
  if (!kernel.open && !rounding.empty()) {
    step = make_nbits_kernel(l, std::move(step), rounding[0]);
    step = make_attention_kernel(l, std::move(types), std::move(rounding), std::move(step));
  }
  add_step(std::move(step), std::move(inputs), std::move(outputs), kernel.layer);
  for (const Store& output : kernel.outputs) settle(output, kernel.layer);
}

bool Lowering::lower_pool(const LayerKernel& kernel) {
  const Layer& l = layer(kernel.layer);
  const TensorId in = l.inputs[0], out = l.outputs[0];
  if (physical_type(spec_.type(in)) != DataType::kFloat32) return false;
  const Shape &input = shape(in), &output = shape(out);
  if (input.size() < 3 || input.size() > 5 || num_elements(input) == 0 || num_elements(output) == 0) return false;
  std::unique_ptr<Kernel> step;
  const bool dense = location(in).layout == Layout::kDense;
  if (const auto pooling = ops::pooling_of(l, input)) {
    const ops::WindowGeometry& g = pooling->windows;
    const PoolSpec spec{pooling->form, input, output, g.kernel, g.strides, g.dilations, g.pads_begin, g.pads_end};
    step = dense                                  ? make_dense_pool_kernel(spec)
           : pooling->form == ops::PoolForm::kMax ? make_max_pool_kernel(spec)
                                                  : make_average_pool_kernel(spec);
  } else if (!dense && ops::is_spatial_mean(l, static_cast<std::int64_t>(input.size()), row_dimensions(spec_, l))) {
    step = make_channel_mean_kernel(input[0], num_elements(input) / input[0] / input[1], input[1]);
  }
  if (step == nullptr) return false;
  const int source = read_operand(kernel.layer, kernel.operands[0], dense ? Layout::kDense : Layout::kChannelsLast);
  // One value per channel is the same in both layouts.
  const bool single = num_elements(output) == output[0] * output[1];
  const int target = define(out, single || dense ? Layout::kDense : Layout::kChannelsLast);
  add_step(std::move(step), {source}, {target}, kernel.layer);
  store(target, kernel.outputs[0], kernel.layer);
  return true;
}

bool Lowering::lower_movement(const LayerKernel& kernel) {
  const Layer& l = layer(kernel.layer);
  if (l.op->precision != PrecisionRule::kMovement || spec_.is_constant(l.inputs[0])) return false;
  return lower_view(kernel) || lower_concat(kernel);
}

/// Casts between float types keep the layout; those to a type that holds the values already are views.
bool Lowering::lower_cast(const LayerKernel& kernel) {
  const Layer& l = layer(kernel.layer);
  const TensorId input = l.inputs[0], output = l.outputs[0];
  if (!ops::is_cast(l) || spec_.is_constant(input) || !spec_.is_held_as_float(input) || !spec_.is_held_as_float(output))
    return false;
  const DataType type = spec_.type(output);
  const Rounding rounding = kernel.outputs[0].rounding;
  if (rounding_of(type) == Rounding::kNone && type != DataType::kFloat32) return false;
  if (rounding != rounding_of(type) && schedule_.storage[output] != DataType::kFloat32) return false;
  const ValueLocation source = location(input);
  const int slot = read({input, rounding}, source.layout, kernel.layer);
  const int view = define(output, source.layout);
  made_.slots[view].alias = slot;
  location(output).storage = rounding == Rounding::kNone ? source.storage : type;
  return true;
}

/// Layers that only rename dimensions share the bytes of their input.
bool Lowering::lower_view(const LayerKernel& kernel) {
  const Layer& l = layer(kernel.layer);
  const TensorId input = l.inputs[0], output = l.outputs[0];
  const ValueLocation source = location(input);
  if (spec_.type(input) != spec_.type(output)) return false;
  if (is_floating(spec_.type(output)) && !is_exact(source.storage, kernel.outputs[0].rounding)) return false;
  Layout layout = source.layout;
  int slot = source.slot;
  if (const auto permutation = ops::permutation(l, static_cast<std::int64_t>(shape(input).size()))) {
    // From one image layout to the other: the bytes are already there.
    if (*permutation == std::vector<std::int64_t>{0, 2, 3, 1} && source.layout == Layout::kChannelsLast)
      layout = Layout::kDense;
    else if (*permutation == std::vector<std::int64_t>{0, 3, 1, 2} && source.layout == Layout::kDense &&
             spec_.is_held_as_float(input))  // Only floats are ever put into the other order again.
      layout = Layout::kChannelsLast;
    else
      return false;
  } else {
    if (!ops::is_view(l, spec_.known_inputs(l))) return false;
    if (shape(input) != shape(output)) {
      layout = Layout::kDense;
      slot = read({input}, layout, kernel.layer);
    }
  }
  const int view = define(output, layout);
  made_.slots[view].alias = slot;
  location(output).storage = source.storage;
  return true;
}

bool Lowering::lower_concat(const LayerKernel& kernel) {
  const Layer& l = layer(kernel.layer);
  const TensorId result = l.outputs[0];
  const Shape& output = shape(result);
  const std::size_t rank = output.size();
  const auto axis = ops::concatenation_axis(l, static_cast<std::int64_t>(rank));
  if (!axis || !spec_.is_held_as_float(result)) return false;
  bool channels_last = (rank == 4 || rank == 3) && *axis == 1;
  for (TensorId input : l.inputs) {
    if (input == kNone || !spec_.shape(input)) return false;
    if (!spec_.is_constant(input)) channels_last &= location(input).layout == Layout::kChannelsLast;
  }
  const Layout layout = channels_last ? Layout::kChannelsLast : Layout::kDense;
  std::int64_t outer = 1, inner = 1;
  if (channels_last) {
    outer = num_elements(output) / std::max<std::int64_t>(1, output[1]);
  } else {
    for (std::size_t d = 0; d < rank; ++d) (static_cast<std::int64_t>(d) < *axis ? outer : inner) *= output[d];
    inner /= std::max<std::int64_t>(1, output[*axis]);
  }
  std::vector<int> inputs;
  std::vector<std::int64_t> widths;
  for (const Operand& operand : kernel.operands) {
    Operand as_stored{operand.tensor, Rounding::kNone, operand.first};
    if (spec_.is_constant(operand.tensor)) as_stored.rounding = kernel.outputs[0].rounding;
    inputs.push_back(read(as_stored, layout, kernel.layer));
    widths.push_back(shape(operand.tensor)[*axis] * inner);
  }
  const int target = define(result, layout);
  add_step(make_concat_kernel(outer, std::move(widths)), std::move(inputs), {target}, kernel.layer);
  store(target, kernel.outputs[0], kernel.layer);
  return true;
}

bool Lowering::lower_cut(const LayerKernel& kernel) {
  const Layer& l = layer(kernel.layer);
  const TensorId in = l.input(0);
  if (kernel.open || l.op->precision != PrecisionRule::kMovement || in == kNone || spec_.is_constant(in) ||
      !spec_.shape(in) || location(in).slot < 0)
    return false;
  const ValueLocation source = location(in);
  const Shape& input = shape(in);
  const auto rank = static_cast<std::int64_t>(input.size());
  std::optional<ops::Cut> cut = ops::cut_of_slice(l, input, spec_.known_inputs(l));
  const std::optional<std::int64_t> axis = cut ? std::nullopt : ops::split_axis(l, rank);
  if (!cut && !axis) return false;
  for (const Store& output : kernel.outputs)
    if (output.tensor != kNone && !spec_.shape(output.tensor)) return false;
  const bool whole =
      cut && shape(l.outputs[0]) == input && std::ranges::all_of(cut->step, [](std::int64_t step) { return step > 0; });
  if (whole && spec_.type(in) == spec_.type(l.outputs[0]) && is_exact(source.storage, kernel.outputs[0].rounding)) {
    const int view = define(l.outputs[0], source.layout);
    made_.slots[view].alias = source.slot;
    location(l.outputs[0]).storage = source.storage;
    return true;
  }
  if (source.layout != Layout::kChannelsLast || !spec_.is_held_as_float(in)) return false;
  if (!cut) cut = ops::Cut{std::vector<std::int64_t>(input.size(), 0), std::vector<std::int64_t>(input.size(), 1)};
  const int from = read({in, Rounding::kNone, kernel.operands[0].first}, Layout::kChannelsLast, kernel.layer);
  for (const Store& output : kernel.outputs) {
    if (output.tensor == kNone) continue;
    const Shape& part = shape(output.tensor);
    const int target = define(output.tensor, Layout::kChannelsLast);
    add_step(make_cut_kernel(input, *cut, part), {from}, {target}, kernel.layer);
    store(target, output, kernel.layer);
    if (axis) cut->begin[*axis] += part[*axis];
  }
  return true;
}

bool Lowering::lower_resize(const LayerKernel& kernel) {
  const Layer& l = layer(kernel.layer);
  const TensorId in = l.inputs[0], out = l.outputs[0];
  if (!ops::is_resize(l) || spec_.is_constant(in) || !spec_.is_held_as_float(in) || num_elements(shape(out)) == 0)
    return false;
  auto axes = ops::resampled_axes(l, shape(in), spec_.known_inputs(l));
  if (!axes) return false;
  const bool spatial = std::ranges::all_of(*axes, [](const ops::ResampledAxis& a) { return a.axis >= 2; });
  const Layout layout = spatial ? location(in).layout : Layout::kDense;
  const int source = read_operand(kernel.layer, kernel.operands[0], layout);
  const int target = define(out, layout);
  Shape in_memory = shape(in);
  if (layout == Layout::kChannelsLast) {
    std::rotate(in_memory.begin() + 1, in_memory.begin() + 2, in_memory.end());
    for (ops::ResampledAxis& a : *axes) --a.axis;
  }
  std::ranges::reverse(*axes);
  add_step(make_resample_kernel(std::move(in_memory), std::move(*axes)), {source}, {target}, kernel.layer);
  store(target, kernel.outputs[0], kernel.layer);
  return true;
}

bool Lowering::lower_quantization(const LayerKernel& kernel) {
  const Layer& l = layer(kernel.layer);
  if (ops::is_quantize(l)) {
    // No integers are stored where only such pairs read them.
    const TensorId output = l.outputs[0];
    const auto& readers = spec_.consumers[output];
    return !spec_.output[output] && !readers.empty() &&
           std::ranges::all_of(readers, [&](LayerId reader) { return quantized_source(reader) != kNone; });
  }
  const TensorId source = quantized_source(kernel.layer);
  if (source == kNone) return ops::is_dequantize(l) && !kernel.open && is_read_as_bytes(l.outputs[0]);
  const ValueLocation from = location(source);
  const int slot = define(l.outputs[0], from.layout);
  add_quantization(*dequantized(spec_, l.outputs[0]), IntegerForm::kDequantized, shape(source), from.layout, from.slot,
                   slot, kernel.layer);
  return true;
}

TensorId Lowering::quantized_source(LayerId dequantize) const {
  const Layer& l = layer(dequantize);
  if (!ops::is_dequantize(l) || spec_.type(l.outputs[0]) != DataType::kFloat32) return kNone;
  if (const auto q = dequantized(spec_, l.outputs[0]); !q || !q->is_integer()) return kNone;
  const LayerId producer = network_.tensor(l.inputs[0]).producer;
  if (producer == kNone || !ops::is_quantize(layer(producer))) return kNone;
  const Layer& q = layer(producer);
  if (q.inputs[0] == kNone || spec_.is_constant(q.inputs[0]) || spec_.type(q.inputs[0]) != DataType::kFloat32 ||
      !spec_.shape(q.inputs[0]) || q.inputs[1] == kNone || !spec_.is_constant(q.inputs[1]))
    return kNone;
  const Tensor &a = spec_.value(q.inputs[1]), &b = spec_.value(l.inputs[1]);
  if (a.type() != DataType::kFloat32 || a.size() != 1 || a.data<float>()[0] != b.data<float>()[0]) return kNone;
  if (!is_symmetric(spec_, q)) return kNone;
  const int slot = location(q.inputs[0]).slot;
  return slot < 0 || made_.slots[slot].dynamic ? kNone : q.inputs[0];
}

}  // namespace ulpscope::cpu
