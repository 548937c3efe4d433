// Programs: loads become strided inputs of a program kernel, in the layout of what is there.
#include <fmt/format.h>

#include <algorithm>
#include <span>

#include "backend/cpu/layer_kernels.h"
#include "backend/cpu/lowering.h"
#include "ulpscope/error.h"

namespace ulpscope::cpu {
namespace {

/// One entry per logical dimension, put into the order of memory.
std::vector<std::int64_t> in_memory_order(const std::vector<std::int64_t>& dims, Layout layout) {
  if (layout == Layout::kDense) return dims;
  std::vector<std::int64_t> result{dims[0]};
  result.insert(result.end(), dims.begin() + 2, dims.end());
  result.push_back(dims[1]);
  return result;
}

/// Strides of a tensor that broadcasts to `domain`, one per dimension of the domain in memory order.
std::vector<std::int64_t> strides_in(const Shape& shape, Layout layout, const Shape& domain, Layout domain_layout) {
  const std::vector<std::int64_t> own = layout_strides(shape, layout);
  std::vector<std::int64_t> result(domain.size(), 0);
  const std::size_t offset = domain.size() - shape.size();
  for (std::size_t d = 0; d < shape.size(); ++d)
    if (shape[d] != 1) result[offset + d] = own[d];
  return in_memory_order(result, domain_layout);
}

/// Strides of one value per channel.
std::vector<std::int64_t> channel_strides(const Shape& domain, Layout layout) {
  std::vector<std::int64_t> result(domain.size(), 0);
  if (domain.size() > 1 && domain[1] != 1) result[1] = 1;
  return in_memory_order(result, layout);
}

/// Else it is one value per row, which every program can read where it lies.
bool moves_in_rows(std::span<const std::int64_t> strides, int row_dims) {
  return std::ranges::any_of(strides.last(static_cast<std::size_t>(row_dims)), [](std::int64_t s) { return s != 0; });
}

bool is_single(const Tensor& tensor) { return tensor && tensor.size() == 1 && tensor.type() == DataType::kFloat32; }

}  // namespace

bool Lowering::lower_spatial_mean(const ProgramKernel& kernel) {
  const std::vector<Program::Value>& values = kernel.program.values;
  const Shape& domain = kernel.domain;
  if (domain.size() < 3 || kernel.row_dims + 2 != static_cast<int>(domain.size()) || values.size() != 2 ||
      values[1].instruction != Instruction::kReduceMean || values[0].kind != Program::Kind::kLoad ||
      kernel.outputs.size() != 1 || kernel.outputs[0].source != 1)
    return false;
  const Load& load = kernel.loads[values[0].load];
  const TensorId in = load.operand.tensor;
  if (load.source != Load::Source::kTensor || load.per_channel || load.operand.is_encoded() || spec_.is_constant(in) ||
      shape(in) != domain || location_for(load.operand).layout != Layout::kChannelsLast)
    return false;
  const int source = read(load.operand, Layout::kChannelsLast, kernel.layers[0]);
  const Store& output = kernel.outputs[0].store;
  const int target = define(output.tensor, Layout::kDense);
  add_step(make_channel_mean_kernel(domain[0], num_elements(domain) / domain[0] / domain[1], domain[1]), {source},
           {target}, kernel.layers[0]);
  store(target, output, kernel.layers[0]);
  return true;
}

void Lowering::lower(const ProgramKernel& kernel) {
  if (lower_spatial_mean(kernel)) return;
  const Layout layout = layout_of(kernel);
  for (const bool expand : {false, true}) {
    ProgramBuilder program(in_memory_order(kernel.domain, layout), kernel.row_dims);
    std::vector<Register> registers;
    std::vector<int> inputs, outputs;
    compile(kernel, {layout, expand}, program, registers, inputs, 0);
    for (const ProgramKernel::Output& output : kernel.outputs)
      program.output(registers[output.source], step_rounding(output.store));
    if (!program.can_finish()) continue;  // Rows of some load have no single stride: it is spread over the domain.
    for (const auto& [source, store] : kernel.outputs)
      // Values of one per row are dense: there is nothing to permute in them.
      outputs.push_back(define(store, shape_of(spec_, store) == kernel.domain ? layout : Layout::kDense));
    add_program(program, std::move(inputs), std::move(outputs), kernel.layers.back());
    for (const auto& output : kernel.outputs) settle(output.store, kernel.layers.back());
    return;
  }
  throw InternalError(fmt::format("the group of '{}' cannot be expressed", layer(kernel.layers[0]).name));
}

Layout Lowering::layout_of(const ProgramKernel& kernel) const {
  if (kernel.row_dims > 0 || kernel.domain.size() < 3 || kernel.domain.size() > 4) return Layout::kDense;
  const bool channels_last = std::ranges::any_of(kernel.loads, [&](const Load& load) {
    const TensorId id = load.operand.tensor;
    return load.source == Load::Source::kTensor && !spec_.is_constant(id) &&
           location(id).layout == Layout::kChannelsLast && shape(id) == kernel.domain;
  });
  return channels_last ? Layout::kChannelsLast : Layout::kDense;
}

void Lowering::compile(const ProgramKernel& kernel, const LoadForm& form, ProgramBuilder& program,
                       std::vector<Register>& registers, std::vector<int>& inputs, std::size_t first) {
  const auto& values = kernel.program.values;
  registers.resize(values.size(), -1);
  // Loads and constants before the first register are made when something reads them.
  const std::function<Register(Register)> made = [&](Register r) -> Register {
    if (r < 0) return -1;
    const Program::Value& value = values[r];
    Register& result = registers[r];
    if (result < 0 && value.kind == Program::Kind::kLoad)
      result = compile_load(kernel, kernel.loads[value.load], form, program, inputs);
    else if (result < 0 && value.kind == Program::Kind::kConstant)
      result = program.constant(value.constant);
    else if (result < 0)
      result = program.apply(value.instruction, made(value.a), made(value.b), value.p, value.q);
    return result;
  };
  for (std::size_t r = first; r < values.size(); ++r) made(static_cast<Register>(r));
}

Register Lowering::compile_load(const ProgramKernel& kernel, const Load& load, const LoadForm& form,
                                ProgramBuilder& program, std::vector<int>& inputs) {
  const Shape& domain = kernel.domain;
  int slot;
  std::vector<std::int64_t> strides;
  Rounding rounding = Rounding::kNone;
  if (const Tensor value = constants_.of_load(load, kernel.layers[0])) {
    if (is_single(value)) return program.constant(value.data<float>()[0]);
    slot = constant_slot(value);
    if (!load.per_channel) strides = strides_in(value.shape(), Layout::kDense, domain, form.layout);
  } else {
    const ValueLocation& from = location_for(load.operand);
    Layout own = from.layout;
    slot = from.slot;
    if (!is_exact(from.storage, load.operand.rounding)) rounding = load.operand.rounding;
    const Shape dims = shape_of(spec_, load.operand);
    if (own != form.layout && dims == domain) {
      Operand unrounded = load.operand;
      unrounded.rounding = Rounding::kNone;
      slot = read(unrounded, own = form.layout, kernel.layers[0]);
    }
    if (!load.per_channel) strides = strides_in(dims, own, domain, form.layout);
  }
  if (load.per_channel) strides = channel_strides(domain, form.layout);
  if (form.expand && moves_in_rows(strides, kernel.row_dims)) {
    ProgramBuilder copy(in_memory_order(domain, form.layout));
    copy.output(copy.input(strides, rounding), Rounding::kNone);
    const int source = std::exchange(slot, new_float_slot(domain));
    add_program(copy, {source}, {slot}, kernel.layers[0]);
    strides = in_memory_order(layout_strides(domain, form.layout), form.layout);
    rounding = Rounding::kNone;
  }
  inputs.push_back(slot);
  return program.input(strides, rounding);
}

Register Lowering::compile_scaling(ProgramBuilder& program, const Shape& domain, Layout layout,
                                   std::vector<int>& inputs, Register value, const Scaling& scaling) {
  std::vector<std::int64_t> strides(domain.size(), 0);
  if (scaling.last)
    strides.back() = 1;
  else
    strides = channel_strides(domain, layout);
  const auto operand = [&](const Tensor& tensor) {
    if (is_single(tensor)) return program.constant(tensor.data<float>()[0]);
    inputs.push_back(constant_slot(tensor));
    return program.input(strides, Rounding::kNone);
  };
  if (scaling.scale) value = program.apply(Instruction::kMul, value, operand(scaling.scale));
  if (scaling.second != 1) value = program.apply(Instruction::kMul, value, program.constant(scaling.second));
  return scaling.bias ? program.apply(Instruction::kAdd, value, operand(scaling.bias)) : value;
}

void Lowering::lower_epilogue(const ProductKernel& kernel, const Results& results) {
  const ProgramKernel& epilogue = kernel.epilogue;
  const Shape& domain = epilogue.domain;
  const bool scaled = results.scaling.scale || results.scaling.bias;
  const bool more = std::ranges::any_of(epilogue.outputs, [&](const auto& o) { return o.source != results.done; });
  if (epilogue.outputs.empty()) return;
  if (!scaled && !more) {
    // The results are what is stored: rounded where they are.
    const Store& store = epilogue.outputs[0].store;
    location(store.tensor) = {results.slot, results.layout, schedule_.storage[store.tensor]};
    return this->store(results.slot, store, kernel.layer);
  }
  ProgramBuilder program(in_memory_order(domain, results.layout));
  std::vector<int> inputs{results.slot}, outputs;
  std::vector<Register> registers(epilogue.program.values.size(), -1);
  Register raw =
      program.input(in_memory_order(layout_strides(domain, results.layout), results.layout), Rounding::kNone);
  if (scaled) raw = compile_scaling(program, domain, results.layout, inputs, raw, results.scaling);
  registers[results.done] = raw;
  compile(epilogue, {results.layout}, program, registers, inputs, static_cast<std::size_t>(results.done) + 1);
  for (std::size_t o = 0; o < epilogue.outputs.size(); ++o) {
    const auto& [source, store] = epilogue.outputs[o];
    program.output(registers[source], step_rounding(store));
    // The last one takes the place of the results.
    if (o + 1 < epilogue.outputs.size()) {
      outputs.push_back(define(store.tensor, results.layout));
    } else {
      location(store.tensor) = {results.slot, results.layout, schedule_.storage[store.tensor]};
      outputs.push_back(results.slot);
    }
  }
  if (!add_program(program, std::move(inputs), std::move(outputs),
                   epilogue.layers.empty() ? kernel.layer : epilogue.layers.back()))
    throw InternalError("an epilogue without rows could not be expressed");
  for (const auto& output : epilogue.outputs) settle(output.store, kernel.layer);
}

void Lowering::add_quantization(const Quantization& by, IntegerForm form, const Shape& shape, Layout layout, int source,
                                int target, LayerId layer_id, std::int32_t zero) {
  ProgramBuilder program(in_memory_order(shape, layout));
  const Register x = program.input(in_memory_order(layout_strides(shape, layout), layout), Rounding::kNone);
  if (form == IntegerForm::kDequantized)
    program.output(program.apply(Instruction::kFakeQuantize, x, -1, by.scale, by.is_unsigned() ? 1.0f : 0.0f),
                   Rounding::kNone);
  else
    program.output_integers(x, {by, zero, form == IntegerForm::kFloats});
  if (!add_program(program, {source}, {target}, layer_id)) throw InternalError("a quantization could not be expressed");
}

}  // namespace ulpscope::cpu
