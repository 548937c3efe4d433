// Pointwise layers, reductions, softmax and normalisation as programs.
#include <fmt/format.h>

#include <algorithm>

#include "backend/cpu/op_kernel.h"
#include "backend/cpu/reorder.h"
#include "engine/plan_builder.h"
#include "ulpscope/error.h"

namespace ulpscope {
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
  const std::vector<std::int64_t> own = cpu::layout_strides(shape, layout);
  std::vector<std::int64_t> result(domain.size(), 0);
  const std::size_t offset = domain.size() - shape.size();
  for (std::size_t d = 0; d < shape.size(); ++d)
    if (shape[d] != 1) result[offset + d] = own[d];
  return in_memory_order(result, domain_layout);
}

/// Strides of one value per channel.
std::vector<std::int64_t> channel_strides(const Shape& domain, Layout layout) {
  std::vector<std::int64_t> result(domain.size(), 0);
  if (domain.size() > 1) result[1] = 1;
  return in_memory_order(result, layout);
}

bool is_single(const Tensor& tensor) { return tensor && tensor.size() == 1 && tensor.type() == DataType::kFloat32; }

}  // namespace

bool PlanBuilder::can_be_program(LayerId id) const {
  const Layer& l = layer(id);
  if (l.outputs.empty() || l.outputs[0] == kNone || !spec_.shape(l.outputs[0])) return false;
  for (std::size_t o = 1; o < l.outputs.size(); ++o)
    if (l.outputs[o] != kNone) return false;
  if (physical_type(spec_.type(l.outputs[0])) != DataType::kFloat32 || !is_floating(spec_.type(l.outputs[0])))
    return false;
  std::vector<const Tensor*> constants;
  for (TensorId input : l.inputs)
    constants.push_back(input == kNone || !spec_.is_constant(input) ? nullptr : &spec_.value(input));
  if (is_scale_shift(spec_, l)) return true;
  const cpu::ProgramSupport support = cpu::program_support(l, constants);
  if (!support.supported) return false;
  if (l.op->kind != OpKind::kPointwise && row_dimensions(spec_, l) == 0) return false;
  for (std::size_t i = 0; i < l.inputs.size(); ++i) {
    const TensorId input = l.inputs[i];
    if (input == kNone || (support.registers >> std::min<std::size_t>(i, 31) & 1u) == 0) continue;
    if (!spec_.shape(input) || !is_floating(spec_.type(input)) ||
        physical_type(spec_.type(input)) != DataType::kFloat32)
      return false;
    if (!spec_.is_constant(input) && home_[static_cast<std::size_t>(input)].slot >= 0 &&
        plan_.slots_[static_cast<std::size_t>(home_[static_cast<std::size_t>(input)].slot)].dynamic)
      return false;
  }
  return true;
}

std::optional<PlanBuilder::ProgramDomain> PlanBuilder::program_domain(std::span<const LayerId> members) const {
  ProgramDomain result;
  for (LayerId id : members) {
    if (!can_be_program(id)) return std::nullopt;
    const Layer& l = layer(id);
    const int dims = l.op->kind == OpKind::kPointwise || is_scale_shift(spec_, l) ? 0 : row_dimensions(spec_, l);
    if (dims == 0) continue;
    if (result.row_dims != 0 && (result.row_dims != dims || result.shape != shape(l.inputs[0]))) return std::nullopt;
    result.row_dims = dims;
    result.shape = shape(l.inputs[0]);
  }
  if (result.row_dims == 0) result.shape = shape(layer(members[0]).outputs[0]);
  Shape row_shape = result.shape;
  for (std::size_t d = row_shape.size() - static_cast<std::size_t>(result.row_dims); d < row_shape.size(); ++d) {
    result.row_elements *= row_shape[d];
    row_shape[d] = 1;
  }
  bool channels_last = false, dense_only = result.row_dims > 0 || result.shape.size() < 3 || result.shape.size() > 4;
  for (LayerId id : members) {
    const Layer& l = layer(id);
    const Shape& out = shape(l.outputs[0]);
    const bool row_op = l.op->kind != OpKind::kPointwise && !is_scale_shift(spec_, l);
    if (!row_op && out != result.shape && out != row_shape) return std::nullopt;
    for (TensorId input : l.inputs)
      if (input != kNone && !spec_.is_constant(input) &&
          home_[static_cast<std::size_t>(input)].layout == Layout::kChannelsLast && shape(input) == result.shape)
        channels_last = true;
  }
  if (channels_last && !dense_only) result.layout = Layout::kChannelsLast;
  return result;
}

/// The register of an operand: a value of the program itself, a constant, or a new input.
int PlanBuilder::program_operand(ProgramState& state, LayerId id, std::size_t index) {
  const Layer& l = layer(id);
  const TensorId input = l.inputs[index];
  // Parameters of an instance normalisation are per channel.
  const bool per_channel = l.op->name == "InstanceNormalization" && index > 0;
  if (const auto found = state.registers.find({input, per_channel}); found != state.registers.end())
    return found->second;
  const Rounding rounding = load_rounding(l, id, index);
  const ProgramDomain& domain = state.domain;
  const bool quantised = computes_in_int8(id);
  if (spec_.is_constant(input)) {
    const Tensor value = quantised ? quantised_constant(id, index) : constant(input, Layout::kDense, rounding);
    if (is_single(value)) return state.program.constant(value.data<float>()[0]);
    state.inputs.push_back(constant_slot(value));
    if (per_channel) return state.program.input(channel_strides(domain.shape, domain.layout), Rounding::kNone);
    return state.program.input(strides_in(value.shape(), Layout::kDense, domain.shape, domain.layout), Rounding::kNone);
  }
  const Home& home = home_for(input, id);
  int slot = home.slot;
  Layout layout = home.layout;
  if (layout != domain.layout && shape(input) == domain.shape) {
    slot = read(input, domain.layout, Rounding::kNone, id);
    layout = domain.layout;
  }
  const Rounding needed = is_exact(home.storage, rounding) ? Rounding::kNone : rounding;
  state.inputs.push_back(slot);
  int reg = per_channel ? state.program.input(channel_strides(domain.shape, domain.layout), needed)
                        : state.program.input(strides_in(shape(input), layout, domain.shape, domain.layout), needed);
  if (quantised) {
    const Quantisation q = quantisation_of(input);
    reg = state.program.apply(cpu::Instruction::kQuantise, reg, -1, q.scale, q.is_unsigned ? 1.0f : 0.0f);
  }
  state.registers[{input, per_channel}] = reg;
  return reg;
}

bool PlanBuilder::is_fused_cast(LayerId id) const {
  if (layer(id).op->name != "Cast") return false;
  const auto& groups = plan_.grouping_;
  return groups.groups[static_cast<std::size_t>(groups.group_of[static_cast<std::size_t>(id)])].layers.size() > 1;
}

bool PlanBuilder::append_to_program(ProgramState& state, LayerId id) {
  const Layer& l = layer(id);
  int result;
  if (is_fused_cast(id)) {
    // What is stored is rounded where it is stored.
    result = program_operand(state, id, 0);
  } else if (is_scale_shift(spec_, l)) {
    const int x = program_operand(state, id, 0);
    int value = x;
    for (bool shift : {false, true}) {
      const Tensor channels = rounded_scale_shift(id, shift);
      state.inputs.push_back(constant_slot(channels));
      const int operand =
          state.program.input(channel_strides(state.domain.shape, state.domain.layout), Rounding::kNone);
      value = state.program.apply(shift ? cpu::Instruction::kAdd : cpu::Instruction::kMul, value, operand);
    }
    result = value;
  } else {
    std::vector<const Tensor*> constants;
    for (TensorId input : l.inputs)
      constants.push_back(input == kNone || !spec_.is_constant(input) ? nullptr : &spec_.value(input));
    const cpu::ProgramSupport support = cpu::program_support(l, constants);
    std::vector<cpu::ProgramOperand> operands(l.inputs.size());
    std::vector<Tensor> rounded(l.inputs.size());
    for (std::size_t i = 0; i < l.inputs.size(); ++i) {
      if (l.inputs[i] == kNone) continue;
      if (constants[i] != nullptr) {
        rounded[i] = constant(l.inputs[i], Layout::kDense, load_rounding(l, id, i));
        operands[i].value = &rounded[i];
      }
      if ((support.registers >> std::min<std::size_t>(i, 31) & 1u) != 0)
        operands[i].reg = program_operand(state, id, i);
    }
    const auto lowered = cpu::lower_layer(state.program, l, operands, state.domain.row_elements);
    if (!lowered) return false;
    result = *lowered;
  }
  state.registers[{l.outputs[0], false}] = result;
  return true;
}

bool PlanBuilder::lower_program(std::span<const LayerId> members) {
  const auto domain = program_domain(members);
  if (!domain) return false;
  ProgramState state{
      *domain, cpu::ProgramBuilder(in_memory_order(domain->shape, domain->layout), domain->row_dims), {}, {}};
  for (LayerId id : members)
    if (!append_to_program(state, id)) return false;
  std::vector<std::pair<TensorId, Layout>> stored;
  for (LayerId id : members) {
    const TensorId output = layer(id).outputs[0];
    if (internal(output) && !read_outside(output, members)) continue;
    // Values of one per row are dense: there is nothing to permute in them.
    state.program.output(result_register(state, output), store_rounding(output, members));
    stored.emplace_back(output, shape(output) == domain->shape ? domain->layout : Layout::kDense);
  }
  std::unique_ptr<Kernel> kernel = state.program.finish();
  if (kernel == nullptr) return false;
  std::vector<int> outputs;
  for (const auto& [tensor, layout] : stored) outputs.push_back(define(tensor, layout));
  add_step(std::move(kernel), std::move(state.inputs), std::move(outputs), members.back());
  for (const auto& [tensor, layout] : stored) settle(tensor, members);
  return true;
}

bool PlanBuilder::read_outside(TensorId id, std::span<const LayerId> members) const {
  for (LayerId consumer : spec_.consumers[static_cast<std::size_t>(id)])
    if (!spec_.folded[static_cast<std::size_t>(consumer)] &&
        std::find(members.begin(), members.end(), consumer) == members.end())
      return true;
  return false;
}

int PlanBuilder::append_scaling(ProgramState& state, int value, const ProductScaling& scaling) {
  const ProgramDomain& domain = state.domain;
  std::vector<std::int64_t> strides(domain.shape.size(), 0);
  if (scaling.last)
    strides.back() = 1;
  else
    strides = channel_strides(domain.shape, domain.layout);
  const auto operand = [&](const Tensor& tensor) {
    if (is_single(tensor)) return state.program.constant(tensor.data<float>()[0]);
    state.inputs.push_back(constant_slot(tensor));
    return state.program.input(strides, Rounding::kNone);
  };
  if (scaling.scale) value = state.program.apply(cpu::Instruction::kMul, value, operand(scaling.scale));
  if (scaling.bias) value = state.program.apply(cpu::Instruction::kAdd, value, operand(scaling.bias));
  return value;
}

std::size_t PlanBuilder::epilogue_size(std::span<const LayerId> members) const {
  std::size_t size = 0;
  while (size < members.size() && (is_fused_cast(members[size]) || can_be_program(members[size]))) ++size;
  return size;
}

bool PlanBuilder::lower_epilogue(std::span<const LayerId> group, TensorId source, int slot, Layout layout,
                                 const ProductScaling* scaling) {
  const std::span<const LayerId> members = group.first(epilogue_size(group));
  // The last value stays in `slot`.
  const TensorId last = members.empty() ? source : layer(members.back()).outputs[0];
  const auto stay = [&] {
    home_[static_cast<std::size_t>(last)] = {slot, layout, internal(last) ? DataType::kFloat32 : storage(last)};
  };
  if (members.empty() && scaling == nullptr) {
    stay();
    if (const Rounding rounding = store_rounding(source, members); rounding != Rounding::kNone)
      add_step(cpu::make_round_kernel(rounding), {slot}, {slot}, network_.tensor(source).producer);
    settle(source, members);
    lower_sequence(group);
    return true;
  }
  ProgramDomain domain;
  domain.shape = shape(source);
  domain.layout = layout;
  ProgramState state{domain, cpu::ProgramBuilder(in_memory_order(domain.shape, layout)), {}, {slot}};
  int value = state.program.input(in_memory_order(cpu::layout_strides(domain.shape, layout), layout), Rounding::kNone);
  if (scaling != nullptr) value = append_scaling(state, value, *scaling);
  state.registers[{source, false}] = value;
  for (LayerId id : members)
    if (!append_to_program(state, id))
      throw InternalError(fmt::format("layer '{}' was fused but has no instructions", layer(id).name));
  std::vector<TensorId> stored;
  if (!members.empty() && (!internal(source) || read_outside(source, members))) stored.push_back(source);
  for (LayerId id : members) {
    const TensorId output = layer(id).outputs[0];
    if (output != last && (!internal(output) || read_outside(output, members))) stored.push_back(output);
  }
  std::vector<int> outputs;
  for (TensorId id : stored) outputs.push_back(define(id, layout));
  stay();
  stored.push_back(last);
  outputs.push_back(slot);
  for (TensorId id : stored) state.program.output(result_register(state, id), store_rounding(id, members));
  std::unique_ptr<Kernel> kernel = state.program.finish();
  if (kernel == nullptr) throw InternalError("an epilogue without rows could not be expressed");
  add_step(std::move(kernel), std::move(state.inputs), std::move(outputs),
           members.empty() ? network_.tensor(source).producer : members.back());
  for (TensorId id : stored) settle(id, members);
  lower_sequence(group.subspan(members.size()));
  return true;
}

}  // namespace ulpscope
