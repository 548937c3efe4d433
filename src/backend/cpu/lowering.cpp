#include "backend/cpu/lowering.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "backend/conversion.h"
#include "backend/cpu/layer_kernels.h"
#include "core/file.h"
#include "core/parallel.h"
#include "ulpscope/error.h"

namespace ulpscope::cpu {

Steps lower(const Specialization& spec, const Schedule& schedule, WeightCache& weights,
            const IdMap<LayerId, GraphFunction>& subgraphs) {
  return Lowering(spec, schedule, weights, subgraphs).run();
}

Lowering::Lowering(const Specialization& spec, const Schedule& schedule, WeightCache& weights,
                   const IdMap<LayerId, GraphFunction>& subgraphs)
    : spec_(spec),
      schedule_(schedule),
      network_(*spec.network),
      weights_(weights),
      constants_(spec, weights),
      subgraphs_(subgraphs),
      locations_(network_.tensors.size()),
      keys_(network_.tensors.size()) {}

Steps Lowering::run() {
  for (TensorId id : network_.inputs) {
    keys_[id] = {0, static_cast<std::uint64_t>(id.number())};
    made_.inputs.push_back(define(id, Layout::kDense));
  }
  for (const auto& kernels : schedule_.kernels)
    for (const KernelDescription& kernel : kernels)
      if (const auto* product = std::get_if<ProductKernel>(&kernel)) products_[product->layer] = product;
  for (std::size_t g = 0; g < schedule_.kernels.size(); ++g) {
    const std::size_t first_step = made_.steps.size();
    for (const KernelDescription& kernel : schedule_.kernels[g])
      std::visit([&](const auto& described) { lower(described); }, kernel);
    set_activation_keys(schedule_.grouping.groups[g], schedule_.kernels[g], first_step);
  }
  std::ranges::stable_sort(made_.values, {}, &StoredValue::step);
  for (const Operand& output : schedule_.outputs) made_.outputs.push_back(read(output, Layout::kDense, kNone));
  join_programs(made_, std::move(programs_), std::move(sums_));
  return std::move(made_);
}

void Lowering::set_activation_keys(const Group& group, std::span<const KernelDescription> kernels,
                                   std::size_t first_step) {
  // Layers and tensors go by their numbers: the network and the shapes are fixed for a store.
  std::string text;
  const auto put = [&](std::uint64_t number) { text.append(reinterpret_cast<const char*>(&number), sizeof number); };
  for (const KernelDescription& kernel : kernels) text += identity_of(kernel);
  for (LayerId id : group.layers)
    for (TensorId input : present(layer(id).inputs)) {
      // What has no slot (the integers of a QuantizeLinear whose readers take its source) passes on what it is made of.
      if (spec_.is_constant(input) || schedule_.grouping.internal[input] != 0) continue;
      put(static_cast<std::uint64_t>(location(input).layout));
      put(keys_[input].first);
      put(keys_[input].second);
    }
  for (LayerId id : group.layers)
    for (TensorId tensor : present(layer(id).outputs)) {
      if (schedule_.grouping.internal[tensor] != 0) continue;
      const std::size_t length = text.size();
      put(static_cast<std::uint64_t>(tensor.number()));
      keys_[tensor] = activation_key(text);
      text.resize(length);
      if (location(tensor).slot < 0) continue;
      const Slot& slot = slot_of(tensor);
      if (slot.dynamic || slot.alias >= 0 || slot.constant) continue;
      int step = -1;
      for (std::size_t i = first_step; i < made_.steps.size(); ++i)
        if (std::ranges::find(made_.steps[i].outputs, location(tensor).slot) != made_.steps[i].outputs.end())
          step = static_cast<int>(i);
      if (step >= 0) made_.values.push_back({location(tensor).slot, step, keys_[tensor]});
    }
}

int Lowering::new_slot(DataType declared, const std::optional<Shape>& slot_shape) {
  Slot slot;
  slot.type = physical_type(declared);
  slot.dynamic = !slot_shape;
  if (slot_shape) slot.shape = *slot_shape;
  made_.slots.push_back(std::move(slot));
  return static_cast<int>(made_.slots.size()) - 1;
}

void Lowering::add_step(std::shared_ptr<const Kernel> kernel, std::vector<int> inputs, std::vector<int> outputs,
                        LayerId layer_id) {
  made_.steps.push_back({std::move(kernel), std::move(inputs), std::move(outputs), layer_id});
}

bool Lowering::add_program(const ProgramBuilder& program, std::vector<int> inputs, std::vector<int> outputs,
                           LayerId layer_id) {
  if (!program.can_finish()) return false;
  programs_.emplace(static_cast<int>(made_.steps.size()), program.form());
  add_step(nullptr, std::move(inputs), std::move(outputs), layer_id);
  return true;
}

int Lowering::add_sums(SumsMaker make, std::vector<int> inputs, const Shape& to_shape, LayerId layer_id) {
  const int slot = new_float_slot(to_shape);
  sums_.emplace(static_cast<int>(made_.steps.size()), std::move(make));
  add_step(nullptr, std::move(inputs), {slot}, layer_id);
  return slot;
}

int Lowering::define(TensorId id, Layout layout) {
  location(id) = {new_slot(spec_.type(id), spec_.shape(id)), layout, schedule_.storage[id]};
  return location(id).slot;
}

int Lowering::define(const Store& store, Layout layout) {
  if (!store.row_sums) return define(store.tensor, layout);
  row_sums_[store.tensor] = {new_float_slot(shape_of(spec_, store)), layout, DataType::kFloat32};
  return row_sums_[store.tensor].slot;
}

void Lowering::settle(const Store& store, LayerId layer_id) {
  if (!store.exact) return;
  const ValueLocation exact{location(store.tensor).slot, location(store.tensor).layout, DataType::kFloat32};
  exact_[store.tensor] = exact;
  const int slot = define(store.tensor, exact.layout);
  made_.slots[slot].dynamic = made_.slots[exact.slot].dynamic;
  add_step(make_rounding_kernel(store.rounding), {exact.slot}, {slot}, layer_id);
}

void Lowering::store(int slot, const Store& what, LayerId layer_id) {
  if (const Rounding rounding = step_rounding(what); rounding != Rounding::kNone)
    add_step(make_rounding_kernel(rounding), {slot}, {slot}, layer_id);
  settle(what, layer_id);
}

const Lowering::ValueLocation& Lowering::location_for(const Operand& operand) const {
  if (operand.row_sums) return row_sums_.at(operand.tensor);
  return operand.exact ? exact_.at(operand.tensor) : location(operand.tensor);
}

Tensor Lowering::constant(const Operand& operand, Layout layout) {
  if (layout == Layout::kDense) return constants_.get(operand);
  const Tensor& value = spec_.value(operand.tensor);
  const auto [first, last] = constants_.roundings(operand);
  return weights_.get(fmt::format("{}|{}|{}|{}", constants_.key(operand.tensor), static_cast<int>(layout),
                                  static_cast<int>(first), static_cast<int>(last)),
                      [&, first = first, last = last] {
                        Tensor result(value.type(), value.shape());
                        const Tensor* in = &value;
                        Tensor* out = &result;
                        const bool bytes = size_of(value.type()) == 1;
                        (bytes ? make_byte_reorder_kernel(value.shape(), layout)
                               : make_reorder_kernel(value.shape(), layout, first))
                            ->run({&in, 1}, {&out, 1});
                        if (bytes) return result;
                        round_parallel(result.data<float>(), result.data<float>(), result.size(), last);
                        return result;
                      });
}

int Lowering::constant_slot(Tensor value, bool by_parts) {
  if (!by_parts) value.raw();  // In memory from here on: steps may ask for it on many threads.
  Slot slot;
  slot.type = value.type();
  slot.shape = value.shape();
  slot.constant = std::move(value);
  made_.slots.push_back(std::move(slot));
  return static_cast<int>(made_.slots.size()) - 1;
}

ObjectCache Lowering::object_cache() {
  return [this](const std::string& key, std::function<PreparedObject()> make) {
    return made_.weights.emplace_back(weights_.source(key, std::move(make)));
  };
}

int Lowering::read(const Operand& operand, Layout layout, LayerId reader) {
  const TensorId id = operand.tensor;
  Rounding rounding = operand.rounding;
  const auto key = std::make_tuple(id, layout, operand.first, rounding, operand.exact);
  if (const auto found = variants_.find(key); found != variants_.end()) return found->second;
  if (spec_.is_constant(id)) return variants_[key] = constant_slot(constant(operand, layout));
  const ValueLocation from = location_for(operand);
  if (from.slot < 0) throw InternalError(fmt::format("'{}' is read before it is computed", network_.tensor(id).name));
  if (is_exact(from.storage, rounding) || slot_of(id).type != DataType::kFloat32) rounding = Rounding::kNone;
  if (layout == from.layout && rounding == Rounding::kNone) return from.slot;
  const auto rounded = std::make_tuple(id, layout, operand.first, rounding, operand.exact);
  if (const auto found = variants_.find(rounded); found != variants_.end()) return found->second;
  const DataType type = made_.slots[from.slot].type;
  const int slot = new_slot(type, spec_.shape(id));
  made_.slots[slot].dynamic = slot_of(id).dynamic;
  if (layout == from.layout) made_.slots[slot].narrow = narrow_type(rounding);
  add_step(layout == from.layout ? make_rounding_kernel(rounding)
           : size_of(type) == 1  ? make_byte_reorder_kernel(shape(id), layout)
                                 : make_reorder_kernel(shape(id), layout, rounding),
           {from.slot}, {slot}, reader);
  return variants_[key] = variants_[rounded] = slot;
}

int Lowering::read_elements(const Operand& operand, Layout layout, IntegerForm form, LayerId reader) {
  const TensorId id = operand.tensor;
  const bool integers = operand.is_of_bytes();
  const std::string what =
      integers ? fmt::format("{}", static_cast<int>(form))
               : fmt::format("{} {} axis {} {:08x}", static_cast<int>(form), to_string(*operand.encoding),
                             operand.encoding->axis, std::bit_cast<std::uint32_t>(operand.scale));
  const auto key = std::make_tuple(id, layout, what);
  if (const auto found = elements_.find(key); found != elements_.end()) return found->second;
  const ValueLocation from = location(id);
  if (from.slot < 0) throw InternalError(fmt::format("'{}' is read before it is computed", network_.tensor(id).name));
  const bool bytes = form == IntegerForm::kBytes;
  const DataType type = !bytes                                 ? DataType::kFloat32
                        : operand.quantization().is_unsigned() ? DataType::kUInt8
                                                               : DataType::kInt8;
  const int slot = new_slot(type, spec_.shape(id));
  int source = from.slot;
  if (layout != from.layout) {
    source = bytes ? new_slot(DataType::kFloat32, spec_.shape(id)) : slot;
    add_step(make_reorder_kernel(shape(id), layout, Rounding::kNone), {from.slot}, {source}, reader);
  }
  if (!integers)
    add_step(make_element_kernel(*operand.encoding, operand.scale, form == IntegerForm::kDequantized), {source}, {slot},
             reader);
  else if (made_.slots[slot].dynamic || made_.slots[source].dynamic)
    add_step(make_quantize_kernel(operand.quantization(), form), {source}, {slot}, reader);
  else
    add_quantization(operand.quantization(), form, shape(id), layout, source, slot, reader);
  return elements_[key] = slot;
}

}  // namespace ulpscope::cpu
