// Layers by themselves: movement as views and copies, casts, pooling and reductions; the CPU for all others.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "backend/cuda/layers.h"
#include "backend/cuda/trace.h"
#include "backend/reference_kernel.h"
#include "core/messages.h"
#include "ops/forms.h"
#include "ops/programs.h"
#include "ops/window.h"

namespace ulpscope::cuda {
namespace {

/// Types that generated kernels read, write and convert.
bool is_plain(DataType type) { return type != DataType::kFloat64 && type != DataType::kUndefined; }

}  // namespace

void Layers::lower(const LayerKernel& kernel) {
  steps_.begin(kernel.layer);
  if (lower_recurrent(kernel)) return;
  const Layer& l = layer(kernel.layer);
  bool settled = !kernel.open && l.has_one_output();
  bool on_host = true;  // Of integers that are on the host nothing goes to the device and back.
  for (std::size_t i = 0; i < l.inputs.size(); ++i) {
    const TensorId id = l.inputs[i];
    if (id == kNone) continue;
    // Parameters without elements are absent ones, as the region of a Resize that is not cropped.
    const bool absent = l.op->is_parameter(i) && spec_.is_constant(id) && num_elements(shape(id)) == 0;
    settled &= absent || (spec_.shape(id) && is_plain(spec_.type(id)) && num_elements(shape(id)) > 0);
    if (!spec_.is_constant(id))
      on_host &= !memory_.is_on_device(id) && physical_type(spec_.type(id)) != DataType::kFloat32;
  }
  for (TensorId id : present(l.outputs)) {
    settled &= spec_.shape(id) && is_plain(spec_.type(id)) && num_elements(shape(id)) > 0;
    on_host &= physical_type(spec_.type(id)) != DataType::kFloat32;
  }
  const bool several = !kernel.open && !on_host && l.op->moves_values;  // Split.
  if (settled && !on_host && !kernel.operands.empty() && kernel.operands[0].tensor != kNone &&
      (lower_view(kernel) || lower_repeats(kernel) || lower_resample(kernel) || lower_concat(kernel) ||
       lower_cast(kernel) || lower_where(kernel) || lower_pool(kernel) || lower_rows(kernel) || lower_gather(kernel) ||
       lower_placed(kernel) || lower_merged(kernel) || lower_chosen(kernel) || lower_predicate(kernel) ||
       lower_cumulative(kernel) || lower_einsum(kernel) || lower_magnitudes(kernel) || lower_quantize(kernel) ||
       lower_dequantize(kernel)))
    return;
  if ((settled || several) && !on_host && lower_traced(kernel)) return;
  lower_host(kernel);
}

/// Layers that only rename or permute dimensions.
bool Layers::lower_view(const LayerKernel& kernel) {
  const Layer& l = layer(kernel.layer);
  const Store& store = kernel.outputs[0];
  if (spec_.is_constant(l.inputs[0])) return false;
  const Shape &from = shape(l.inputs[0]), &to = shape(l.outputs[0]);
  const auto permutation = ops::permutation(l, static_cast<std::int64_t>(from.size()));
  if (!permutation && !ops::is_view(l, spec_.known_inputs(l))) return false;
  auto [view, dims] = memory_.fine_view(kernel.operands[0]);
  auto fine = refined({dims, view.strides}, permutation ? from : to);
  if (!fine) {
    // Sizes that do not divide each other: only a dense tensor has the new shape.
    view = memory_.read_as({l.inputs[0], store.rounding},
                           is_exact(view.type, store.rounding) ? view.type : type_of(store.rounding),
                           ops::strides_of(from));
    fine = {to, ops::strides_of(to)};
  } else if (permutation) {
    fine = permuted(*fine, from, *permutation);
  }
  view.strides = fine->strides;
  const bool held = spec_.is_held_as_float(l.outputs[0]);
  if (!store.exact && (!held || is_exact(view.type, store.rounding))) {
    memory_.place(store.tensor, std::move(view), fine->dims);
    return true;
  }
  if (store.exact) return false;
  // In the order of memory that they have: whoever turned them may have meant somebody who reads them so.
  const auto plain = reshaped_strides(fine->dims, view.strides, to);
  const View stored = memory_.define(store, plain ? strides_in_order_of(to, *plain, to) : ops::strides_of(to));
  const auto target = refined({to, stored.strides}, fine->dims);
  if (!target || target->dims != fine->dims) throw InternalError("a view without finer dimensions: " + l.name);
  steps_.add_copy(view, {stored.buffer, stored.type, stored.offset, target->strides}, fine->dims);
  return true;
}

bool Layers::lower_repeats(const LayerKernel& kernel) {
  const Layer& l = layer(kernel.layer);
  if (!ops::is_nearest_resize(l) || spec_.is_constant(l.inputs[0]) || kernel.outputs[0].exact) return false;
  const Shape &input = shape(l.inputs[0]), &output = shape(l.outputs[0]);
  const auto axes = ops::resampled_axes(l, input, spec_.known_inputs(l));
  if (!axes || num_elements(output) == 0) return false;
  for (const ops::ResampledAxis& a : *axes) {
    const std::int64_t factor = output[a.axis] / input[a.axis];
    if (output[a.axis] != factor * input[a.axis]) return false;
    for (std::int64_t at = 0; at < output[a.axis]; ++at)
      if (a.index.data<std::int32_t>()[at] != at / factor) return false;
  }
  const View view = memory_.device_view(kernel.operands[0]);
  if (!is_exact(view.type, kernel.outputs[0].rounding)) return false;
  Shape dims;
  std::vector<std::int64_t> strides;
  for (std::size_t d = 0; d < input.size(); ++d) {
    dims.insert(dims.end(), {input[d], output[d] / input[d]});
    strides.insert(strides.end(), {view.strides[d], 0});
  }
  std::vector<std::int64_t> order = strides_in_order_of(input, view.strides, output);
  memory_.place(kernel.outputs[0].tensor, {view.buffer, view.type, view.offset, std::move(strides)}, dims,
                std::move(order));
  return true;
}

/// A layer that leaves all elements where they are: rounded when it reads them and when it stores them.
bool Layers::keep_elements(const LayerKernel& kernel) {
  const Operand& operand = kernel.operands[0];
  const Store& store = kernel.outputs[0];
  const View from = operand.rounding == Rounding::kNone ? memory_.device_view(operand)
                                                        : memory_.read_as(operand, type_of(operand.rounding));
  if (memory_.alias(store, from)) return true;
  const Shape& dims = shape(operand.tensor);
  const View to = memory_.define(store, strides_in_order_of(dims, from.strides, dims));
  steps_.add_copy(from, to, dims);
  return true;
}

/// Linear and cubic Resize. Coordinates and weights are tables that the operator makes on the host, so that all
/// backends round them alike.
bool Layers::lower_resample(const LayerKernel& kernel) {
  const Layer& l = layer(kernel.layer);
  const TensorId x = l.inputs[0];
  if (!ops::is_resize(l) || ops::is_nearest_resize(l) || spec_.is_constant(x) || !spec_.is_held_as_float(x) ||
      kernel.operands[0].is_encoded() || kernel.outputs[0].exact)
    return false;
  const auto axes = ops::resampled_axes(l, shape(x), spec_.known_inputs(l));
  if (!axes) return false;
  if (axes->empty()) return keep_elements(kernel);
  const View from = memory_.device_view(kernel.operands[0]);
  const Store& store = kernel.outputs[0];
  const Shape &input = shape(x), &output = shape(l.outputs[0]);
  // A result that is much larger than what it is made of is written where and as it leaves.
  const bool leaves = uses_[store.tensor].readers.empty() && spec_.type(store.tensor) == DataType::kFloat32 &&
                      is_floating(type_of(store.rounding)) && num_elements(output) > 2 * num_elements(input);
  const View to =
      leaves ? memory_.define_output(store) : memory_.define(store, strides_in_order_of(input, from.strides, output));
  const auto add = [&](const StridedTensor& of, const View& source, const StridedTensor& result, const View& target,
                       std::span<const ops::ResampledAxis> part, Rounding load, Rounding rounding) {
    std::vector<Pointer> reads{pointer(source)};
    std::vector<ResampledDimension> dimensions;
    for (const ops::ResampledAxis& a : part) {
      dimensions.push_back({static_cast<std::size_t>(a.axis), a.taps});
      for (const Tensor* table : {&a.index, &a.weight})
        reads.push_back(pointer(memory_.constant_view(*table, table->type())));
    }
    steps_.add_kernel(resample_source(of, result, dimensions, load, rounding), std::move(reads), target);
  };
  // One axis after the other, the last one first, where that is less work: what the sums are is the same.
  constexpr std::int64_t kLarge = std::int64_t{1} << 18;
  const std::int64_t between = num_elements(output) / output[(*axes)[0].axis] * input[(*axes)[0].axis];
  if (axes->size() == 1 || num_elements(output) < kLarge || num_elements(output) < 2 * between) {
    add(strided(from, input), from, strided(to, output), to, *axes, kernel.operands[0].rounding, store.rounding);
    return true;
  }
  View at = from;
  Shape dims = input;
  for (std::size_t a = axes->size(); a-- > 0;) {
    Shape next = dims;
    next[(*axes)[a].axis] = output[(*axes)[a].axis];
    const View target =
        a == 0 ? to : steps_.new_view(DataType::kFloat32, next, strides_in_order_of(output, to.strides, next));
    add(strided(at, dims), at, strided(target, next), target, std::span(*axes).subspan(a, 1),
        a + 1 == axes->size() ? kernel.operands[0].rounding : Rounding::kNone,
        a == 0 ? store.rounding : Rounding::kNone);
    at = target;
    dims = std::move(next);
  }
  return true;
}

/// Layers whose results are elements of input 0, at places that are known: asks the operator itself which ones.
bool Layers::lower_traced(const LayerKernel& kernel) {
  const Layer& l = layer(kernel.layer);
  const TensorId input = l.inputs[0];
  if (!l.op->moves_values && !ops::is_nearest_resize(l)) return false;
  if (spec_.is_constant(input) || !spec_.shape(input)) return false;
  std::vector<Tensor> parameters(l.inputs.size());
  std::string key = fmt::format("{}{}|places {}", weights_.scope(), kernel.layer.number(), to_string(shape(input)));
  for (std::size_t i = 1; i < l.inputs.size(); ++i) {
    if (l.inputs[i] == kNone) continue;
    if (!spec_.is_constant(l.inputs[i])) return false;
    parameters[i] = spec_.value(l.inputs[i]);
    key += fmt::format(" {} {}", i, constants_.key(l.inputs[i]));
  }
  for (const Store& output : kernel.outputs)
    if (output.exact) return false;
  const View from = memory_.device_view(kernel.operands[0]);
  key += fmt::format(" at {}", fmt::join(from.strides, ","));
  // Other assignments ask for the same.
  const auto traces = std::static_pointer_cast<const std::vector<Trace>>(weights_.get_object(key, [&] {
    auto made = std::make_shared<std::vector<Trace>>(
        trace_places(l, shape(input), std::move(parameters), ops::is_nearest_resize(l), from.strides));
    std::size_t bytes = 0;
    for (const Trace& trace : *made) bytes += trace.places ? trace.places.bytes() : 0;
    return PreparedObject{std::move(made), bytes};
  }));
  if (traces->empty()) return false;
  for (std::size_t o = 0; o < kernel.outputs.size(); ++o) {
    const Store& store = kernel.outputs[o];
    if (store.tensor == kNone) continue;
    const Shape& to = shape(store.tensor);
    if (num_elements(to) == 0) {
      memory_.define(store, ops::strides_of(to));
      continue;
    }
    const Trace& trace = (*traces)[o];
    if (trace.strides) {
      View view{from.buffer, from.type, from.offset + trace.offset, *trace.strides};
      if (memory_.alias(store, view)) continue;
      const View stored = memory_.define(store, ops::strides_of(to));
      steps_.add_copy(view, stored, to);
      continue;
    }
    View data = from;
    data.offset += trace.offset;
    const View indices = memory_.constant_view(trace.places, fmt::format("{}|{}", key, o), DataType::kInt64);
    const View stored = memory_.define(store, ops::strides_of(to));
    steps_.add_kernel(gather_source({data.type, {trace.extent}, {1}}, {DataType::kInt64, to, ops::strides_of(to)},
                                    strided(stored, to), 0),
                      {pointer(data), pointer(indices)}, stored);
  }
  return true;
}

bool Layers::lower_cast(const LayerKernel& kernel) {
  const Layer& l = layer(kernel.layer);
  const TensorId input = l.inputs[0], output = l.outputs[0];
  if (!ops::is_cast(l) || spec_.is_constant(input) || kernel.outputs[0].exact) return false;
  // What holds narrow formats rounds as the attributes of Cast say: the CPU does.
  for (TensorId id : {input, output})
    if (is_storage_only(spec_.type(id))) return false;
  const bool from_float = spec_.is_held_as_float(input), to_float = spec_.is_held_as_float(output);
  const View view = memory_.device_view(kernel.operands[0]);
  Store store = kernel.outputs[0];
  if (from_float && to_float) {
    const Rounding rounding = rounding_of(spec_.type(output));
    if (rounding != Rounding::kNone && store.rounding != rounding && !is_exact(view.type, rounding)) {
      if (store.rounding != Rounding::kNone) return false;  // Two roundings.
      store.rounding = rounding;
    }
    if (memory_.alias(store, view)) return true;
  }
  const Shape& dims = shape(input);
  const View result = memory_.define(store, strides_in_order_of(dims, view.strides, dims));
  steps_.add_copy(view, result, dims);
  return true;
}

namespace {

/// In int8, averages are those of integers times their scale.
bool is_number(const Operand& operand) { return !operand.is_encoded() || operand.is_of_bytes(); }

Register as_number(ProgramAssembly& assembly, Register x, const Operand& operand) {
  if (!operand.is_encoded()) return x;
  const Quantization q = operand.quantization();
  return assembly.program().apply(Instruction::kFakeQuantize, x, -1, q.scale, q.is_unsigned() ? 1.0f : 0.0f);
}

}  // namespace

View Layers::numbers(const Operand& operand) {
  if (!operand.is_encoded()) return memory_.device_view(operand);
  const View from = memory_.device_view(operand.plain());
  const Shape& dims = shape(operand.tensor);
  const View to = steps_.new_view(DataType::kFloat32, dims, strides_in_order_of(dims, from.strides, dims));
  ProgramAssembly assembly(dims, 0);
  const Register x = assembly.input(from, from.strides, Rounding::kNone);
  assembly.output(as_number(assembly, x, operand), to, to.strides, Rounding::kNone);
  programs_.add(std::move(assembly));
  return to;
}

bool Layers::lower_pool(const LayerKernel& kernel) {
  const Layer& l = layer(kernel.layer);
  if (!spec_.is_held_as_float(l.inputs[0]) || !is_number(kernel.operands[0]) || kernel.outputs[0].exact) return false;
  const Shape &input = shape(l.inputs[0]), &output = shape(l.outputs[0]);
  if (input.size() < 3 || input.size() > 5) return false;
  const auto pooling = ops::pooling_of(l, input);
  if (!pooling) return false;
  const ops::WindowGeometry& g = pooling->windows;
  const PoolWindow window{pooling->form != ops::PoolForm::kMax,
                          pooling->form == ops::PoolForm::kAverageIncludingPads,
                          g.kernel,
                          g.strides,
                          g.dilations,
                          g.pads_begin};
  const View from = numbers(kernel.operands[0]);
  const View to = memory_.define(kernel.outputs[0], strides_in_order_of(input, from.strides, output));
  steps_.add_kernel(pool_source(strided(from, input), strided(to, output), window, g.pads_end,
                                kernel.operands[0].rounding, kernel.outputs[0].rounding),
                    {pointer(from)}, to);
  return true;
}

/// Reductions and softmax over dimensions that are not the innermost ones, and means over all positions: programs over
/// the same elements in another order of dimensions.
bool Layers::lower_rows(const LayerKernel& kernel) {
  const Layer& l = layer(kernel.layer);
  if (!spec_.is_held_as_float(l.inputs[0]) || !spec_.is_held_as_float(l.outputs[0])) return false;
  if (!is_number(kernel.operands[0]) || kernel.outputs[0].exact || spec_.is_constant(l.inputs[0])) return false;
  const Shape& input = shape(l.inputs[0]);
  const auto rank = static_cast<std::int64_t>(input.size());
  std::vector<std::int64_t> axes;
  const bool spatial_mean = ops::is_spatial_mean(l, rank, 0);
  if (spatial_mean) {
    for (std::int64_t d = 2; d < rank; ++d) axes.push_back(d);
  } else {
    if (l.op->axes == nullptr || (l.op->kind != OpKind::kReduction && l.op->kind != OpKind::kSoftmax)) return false;
    const TensorId given = l.input(1);
    if (given != kNone && !spec_.is_constant(given)) return false;
    const auto found = l.op->axes(l, rank, given == kNone ? nullptr : &spec_.value(given));
    if (!found) return false;
    axes = *found;
  }
  if (axes.empty()) return false;
  const auto is_axis = [&](std::int64_t d) { return std::ranges::find(axes, d) != axes.end(); };
  std::vector<std::int64_t> order;
  for (const bool inner : {false, true})
    for (std::int64_t d = 0; d < rank; ++d)
      if (is_axis(d) == inner) order.push_back(d);
  const Operand& operand = kernel.operands[0];
  const View from = memory_.device_view(operand.is_encoded() ? operand.plain() : operand);
  Shape domain;
  std::vector<std::int64_t> read, write;
  for (std::int64_t d : order) {
    domain.push_back(input[static_cast<std::size_t>(d)]);
    read.push_back(from.strides[static_cast<std::size_t>(d)]);
  }
  ProgramAssembly assembly(domain, static_cast<int>(axes.size()));
  const Register x =
      as_number(assembly, assembly.input(from, read, missing_rounding(from.type, operand.rounding)), operand);
  std::int64_t length = 1;
  for (std::int64_t d : axes) length *= input[static_cast<std::size_t>(d)];
  std::vector<ops::ProgramOperand> operands(std::max<std::size_t>(l.inputs.size(), 1));
  operands[0].reg = x;
  std::optional<Register> value;
  if (spatial_mean)
    value = assembly.program().apply(Instruction::kReduceMean, x);
  else
    value = ops::append_instructions(assembly.program(), l, operands, length);
  if (!value) return false;  // ReduceLogSumExp and others.
  const Shape& result = shape(l.outputs[0]);
  const View to = memory_.define(
      kernel.outputs[0], result == input ? strides_in_order_of(input, from.strides, result) : ops::strides_of(result));
  std::size_t kept = 0;  // Of the result, when reduced dimensions are gone.
  const bool gone = result.size() != input.size();
  std::vector<std::int64_t> result_stride(input.size(), 0);
  for (std::int64_t d = 0; d < rank; ++d)
    if (!is_axis(d))
      result_stride[d] = to.strides[gone ? kept++ : static_cast<std::size_t>(d)];
    else if (l.op->kind == OpKind::kSoftmax)
      result_stride[d] = to.strides[static_cast<std::size_t>(d)];
  for (std::int64_t d : order) write.push_back(result_stride[static_cast<std::size_t>(d)]);
  assembly.output(*value, to, write, kernel.outputs[0].rounding);
  programs_.add(std::move(assembly));
  return true;
}

void Layers::lower_host(const LayerKernel& kernel) {
  const Layer& l = layer(kernel.layer);
  std::vector<int> inputs, outputs;
  std::vector<DataType> types;
  std::vector<Rounding> rounding;
  bool moves_floats = false;
  for (const Operand& operand : kernel.operands) {
    if (operand.tensor == kNone) {
      inputs.push_back(-1);
      continue;
    }
    moves_floats |= memory_.is_on_device(operand.tensor) && memory_.host_of(operand.tensor) < 0;
    inputs.push_back(operand.is_encoded() ? memory_.host_integers(operand) : memory_.host_value(operand));
  }
  for (const Store& output : kernel.outputs) {
    const bool present = output.tensor != kNone;
    types.push_back(present ? spec_.type(output.tensor) : DataType::kUndefined);
    rounding.push_back(output.exact ? Rounding::kNone : output.rounding);
    outputs.push_back(
        present ? steps_.new_host(spec_.type(output.tensor), kernel.open ? std::nullopt : spec_.shape(output.tensor))
                : -1);
    if (present) moves_floats |= physical_type(spec_.type(output.tensor)) == DataType::kFloat32;
  }
  steps_.add(
      HostStep{make_reference_kernel(l, types, rounding, false,
                                     subgraphs_.contains(kernel.layer) ? subgraphs_[kernel.layer] : GraphFunction{},
                                     kernel.accumulator),
               std::move(inputs), outputs});
  for (std::size_t o = 0; o < outputs.size(); ++o)
    if (kernel.outputs[o].tensor != kNone) memory_.define_host(kernel.outputs[o], outputs[o]);
  if (moves_floats) on_host_.insert(l.name);
}

void Layers::lower_host(const ProductKernel& kernel) {
  if (lower_repeated(kernel)) return;
  Layer l = layer(kernel.layer);
  if (kernel.elements && kernel.accumulator)
    throw unsupported(
        "[cuda] layer '{}': products of fp8 are added up as --accumulation says on the CPU alone; try --backend cpu, "
        "or leave --accumulation out",
        l.name);
  std::vector<int> inputs;
  for (const Operand& operand : kernel.operands)
    inputs.push_back(operand.tensor == kNone ? -1
                     : operand.is_encoded()  ? memory_.host_integers(operand)
                                             : memory_.host_value(operand));
  if (kernel.normalization != kNone) {
    l.inputs.resize(3, kNone);
    inputs.resize(3, -1);
    auto [weights, bias] = constants_.normalized_parameters(kernel);
    inputs[1] = steps_.host_constant(std::move(weights));
    inputs[2] = steps_.host_constant(std::move(bias));
  }
  on_host_.insert(l.name);
  const int result = steps_.new_host(DataType::kFloat32, kernel.epilogue.domain);
  steps_.add(HostStep{make_reference_kernel(std::move(l), spec_.type(kernel.result), false, kernel.accumulator),
                      std::move(inputs),
                      {result}});
  ProductResults results;
  results.view = steps_.new_view(DataType::kFloat32, kernel.epilogue.domain, ops::strides_of(kernel.epilogue.domain));
  steps_.add(UploadStep{result, pointer(results.view)});
  epilogues_.lower(kernel, results);
}

}  // namespace ulpscope::cuda
