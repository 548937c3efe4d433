#include "engine/plan_builder.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "backend/cpu/op_kernel.h"
#include "backend/cpu/reorder.h"
#include "core/parallel.h"
#include "ulpscope/error.h"

namespace ulpscope {

PlanBuilder::PlanBuilder(Plan& plan, const Assignment& assignment, WeightCache& weights,
                         std::span<const cpu::GraphFunction> subgraphs)
    : plan_(plan),
      spec_(*plan.spec_),
      network_(*plan.spec_->network),
      assignment_(assignment),
      weights_(weights),
      subgraphs_(subgraphs),
      home_(network_.tensors.size()),
      keys_(network_.tensors.size()) {}

void PlanBuilder::build() {
  find_int8_layers();
  for (TensorId id : network_.inputs) {
    Home& home = home_[static_cast<std::size_t>(id)];
    home.slot = new_slot(spec_.type(id), spec_.shape(id));
    home.storage = spec_.type(id);
    keys_[static_cast<std::size_t>(id)] = {0, static_cast<std::uint64_t>(id)};
    plan_.input_slots_.push_back(home.slot);
  }
  for (const Group& group : plan_.grouping_.groups) {
    const std::size_t first_step = plan_.steps_.size();
    lower_group(group);
    name_values(group, first_step);
  }
  std::stable_sort(plan_.values_.begin(), plan_.values_.end(),
                   [](const StoredValue& a, const StoredValue& b) { return a.step < b.step; });
  for (TensorId id : network_.outputs) {
    const Rounding rounding = rounding_of(storage(id));
    plan_.output_slots_.push_back(read(id, Layout::kDense, rounding, kNone));
  }
}

ActivationKey PlanBuilder::key_of(TensorId id) const { return keys_[static_cast<std::size_t>(id)]; }

void PlanBuilder::name_values(const Group& group, std::size_t first_step) {
  // Layers and tensors go by their numbers: the network and the shapes are fixed for a store.
  std::string text;
  const auto put = [&](std::int64_t number) { text.append(reinterpret_cast<const char*>(&number), sizeof number); };
  const auto put_key = [&](TensorId id) {
    put(static_cast<std::int64_t>(key_of(id).first));
    put(static_cast<std::int64_t>(key_of(id).second));
  };
  for (LayerId id : group.layers) {
    put(id);
    put(static_cast<std::int64_t>(precision(id)));
    for (const auto* ids : {&layer(id).inputs, &layer(id).outputs})
      for (TensorId tensor : *ids) {
        put(tensor);
        if (tensor == kNone) continue;
        put(static_cast<std::int64_t>(storage(tensor)));
        put(internal(tensor));
        if (!assignment_.scale.empty())
          put(std::bit_cast<std::int32_t>(assignment_.scale[static_cast<std::size_t>(tensor)]));
        if (ids == &layer(id).inputs && !internal(tensor) && !spec_.is_constant(tensor)) {
          put(static_cast<std::int64_t>(home_[static_cast<std::size_t>(tensor)].layout));
          put_key(tensor);
        }
      }
  }
  for (LayerId id : group.layers)
    for (TensorId tensor : layer(id).outputs) {
      if (tensor == kNone || internal(tensor)) continue;
      const Home& home = home_[static_cast<std::size_t>(tensor)];
      const std::size_t length = text.size();
      put(tensor);
      const XXH128_hash_t hash = XXH3_128bits(text.data(), text.size());
      text.resize(length);
      keys_[static_cast<std::size_t>(tensor)] = {hash.high64, hash.low64};
      if (home.slot < 0) continue;
      const Slot& slot = plan_.slots_[static_cast<std::size_t>(home.slot)];
      if (slot.dynamic || slot.alias >= 0 || slot.constant) continue;
      int step = -1;
      for (std::size_t i = first_step; i < plan_.steps_.size(); ++i)
        if (std::ranges::find(plan_.steps_[i].outputs, home.slot) != plan_.steps_[i].outputs.end())
          step = static_cast<int>(i);
      if (step >= 0) plan_.values_.push_back({home.slot, step, key_of(tensor)});
    }
}

Rounding PlanBuilder::store_rounding(TensorId id) const {
  return internal(id) || spec_.type(id) == DataType::kFloat64 ? Rounding::kNone : rounding_of(storage(id));
}

Rounding PlanBuilder::store_rounding(TensorId id, std::span<const LayerId> part) const {
  return exact_beyond(id, part) ? Rounding::kNone : store_rounding(id);
}

bool PlanBuilder::reads_exact(TensorId id, LayerId reader) const {
  const LayerId producer = network_.tensor(id).producer;
  if (producer == kNone || reader == kNone || spec_.is_constant(id)) return false;
  const auto& group_of = plan_.grouping_.group_of;
  return group_of[static_cast<std::size_t>(producer)] == group_of[static_cast<std::size_t>(reader)] &&
         layer(reader).op->kind != OpKind::kContraction;
}

bool PlanBuilder::exact_beyond(TensorId id, std::span<const LayerId> part) const {
  if (store_rounding(id) == Rounding::kNone) return false;
  return std::ranges::any_of(spec_.consumers[static_cast<std::size_t>(id)], [&](LayerId reader) {
    return reads_exact(id, reader) && std::ranges::find(part, reader) == part.end();
  });
}

void PlanBuilder::settle(TensorId id, std::span<const LayerId> part) {
  if (!exact_beyond(id, part)) return;
  const Home exact{home_[static_cast<std::size_t>(id)].slot, home_[static_cast<std::size_t>(id)].layout,
                   DataType::kFloat32};
  exact_[id] = exact;
  const int slot = define(id, exact.layout);
  add_step(cpu::make_round_kernel(store_rounding(id)), {exact.slot}, {slot}, network_.tensor(id).producer);
}

const PlanBuilder::Home& PlanBuilder::home_for(TensorId id, LayerId reader) const {
  const auto found = exact_.find(id);
  return found != exact_.end() && reads_exact(id, reader) ? found->second : home_[static_cast<std::size_t>(id)];
}

Rounding PlanBuilder::load_rounding(const Layer& l, LayerId id, std::size_t index) const {
  const TensorId tensor = l.inputs[index];
  if (!spec_.numeric[static_cast<std::size_t>(id)] || l.op->precision != PrecisionRule::kCompute)
    return Rounding::kNone;
  if (spec_.type(tensor) == DataType::kFloat64 || !is_floating(spec_.type(tensor))) return Rounding::kNone;
  // Values inside of a group are not rounded, except the operands of its products.
  if (reads_exact(tensor, id)) return Rounding::kNone;
  // The scales and the region of a Resize are parameters, not operands: they are read as they are.
  if (index > 0 && (l.op->name == "Resize" || l.op->name == "Upsample")) return Rounding::kNone;
  const Precision p = precision(id);
  if (p == Precision::kTF32 && l.op->kind != OpKind::kContraction) return Rounding::kNone;
  return rounding_of(p);
}

int PlanBuilder::new_slot(DataType declared, const std::optional<Shape>& slot_shape) {
  Slot slot;
  slot.type = physical_type(declared);
  slot.dynamic = !slot_shape;
  if (slot_shape) slot.shape = *slot_shape;
  plan_.slots_.push_back(std::move(slot));
  return static_cast<int>(plan_.slots_.size()) - 1;
}

void PlanBuilder::add_step(std::shared_ptr<const Kernel> kernel, std::vector<int> inputs, std::vector<int> outputs,
                           LayerId layer_id) {
  plan_.steps_.push_back({std::move(kernel), std::move(inputs), std::move(outputs), layer_id});
}

int PlanBuilder::define(TensorId id, Layout layout) {
  Home& home = home_[static_cast<std::size_t>(id)];
  home.slot = new_slot(spec_.type(id), spec_.shape(id));
  home.layout = layout;
  home.storage = internal(id) ? DataType::kFloat32 : storage(id);
  return home.slot;
}

std::string PlanBuilder::constant_key(TensorId id) const {
  if (id == kNone) return "none";
  if (spec_.shape_dependent[static_cast<std::size_t>(id)])
    return fmt::format("{}{}{}", weights_.scope(), id, constants_of(spec_));
  const Tensor& value = spec_.value(id);
  // What the file has is the same in every network that was made from it; what is folded belongs to this one.
  const bool from_file = value && network_.tensor(id).value.raw() == value.raw() && value.size() > 0;
  return from_file ? weights_.name_of(value) : fmt::format("{}{}", weights_.scope(), id);
}

Tensor PlanBuilder::constant(TensorId id, Layout layout, Rounding rounding) {
  const Tensor& value = spec_.value(id);
  if (value.type() != DataType::kFloat32) rounding = Rounding::kNone;
  // The producer's storage type comes first: a constant layer that is stored in float16 is read as such.
  const Rounding stored = value.type() == DataType::kFloat32 && network_.tensor(id).producer != kNone
                              ? rounding_of(storage(id))
                              : Rounding::kNone;
  const bool folded =
      network_.tensor(id).producer != kNone && layer(network_.tensor(id).producer).op->kind != OpKind::kConstant;
  if (rounding == Rounding::kNone && (stored == Rounding::kNone || folded) && layout == Layout::kDense) return value;
  const Rounding first = folded ? Rounding::kNone : stored;
  return weights_.get(fmt::format("{}|{}|{}|{}", constant_key(id), static_cast<int>(layout), static_cast<int>(first),
                                  static_cast<int>(rounding)),
                      [&] {
                        Tensor result(value.type(), value.shape());
                        if (layout == Layout::kDense) {
                          cpu::round_parallel(value.data<float>(), result.data<float>(), value.size(), first);
                        } else {
                          const Tensor* in = &value;
                          Tensor* out = &result;
                          cpu::make_reorder_kernel(value.shape(), layout, first)->run({&in, 1}, {&out, 1});
                        }
                        cpu::round_parallel(result.data<float>(), result.data<float>(), result.size(), rounding);
                        return result;
                      });
}

int PlanBuilder::constant_slot(Tensor value) {
  Slot slot;
  slot.type = value.type();
  slot.shape = value.shape();
  slot.constant = std::move(value);
  plan_.slots_.push_back(std::move(slot));
  return static_cast<int>(plan_.slots_.size()) - 1;
}

int PlanBuilder::read(TensorId id, Layout layout, Rounding rounding, LayerId reader) {
  if (const Home& home = home_for(id, reader); &home != &home_[static_cast<std::size_t>(id)]) {
    if (layout == home.layout) return home.slot;
    const int exact = new_slot(DataType::kFloat32, spec_.shape(id));
    add_step(cpu::make_reorder_kernel(shape(id), layout, Rounding::kNone), {home.slot}, {exact}, reader);
    return exact;
  }
  const auto key = std::make_tuple(id, layout, rounding);
  if (const auto found = variants_.find(key); found != variants_.end()) return found->second;
  int slot;
  if (spec_.is_constant(id)) {
    slot = constant_slot(constant(id, layout, rounding));
  } else {
    const Home& home = home_[static_cast<std::size_t>(id)];
    if (home.slot < 0) throw InternalError(fmt::format("'{}' is read before it is computed", network_.tensor(id).name));
    if (is_exact(home.storage, rounding) ||
        plan_.slots_[static_cast<std::size_t>(home.slot)].type != DataType::kFloat32)
      rounding = Rounding::kNone;
    if (layout == home.layout && rounding == Rounding::kNone) return home.slot;
    if (const auto found = variants_.find(std::make_tuple(id, layout, rounding)); found != variants_.end())
      return found->second;
    slot = new_slot(DataType::kFloat32, spec_.shape(id));
    if (layout == home.layout && plan_.slots_[static_cast<std::size_t>(home.slot)].dynamic) {
      // The shape is not known yet: a kernel that makes its own output.
      class RoundedCopy final : public Kernel {
       public:
        explicit RoundedCopy(Rounding r) : rounding_(r) {}
        void run(std::span<const Tensor* const> inputs, std::span<Tensor* const> outputs) const override {
          Tensor copy(inputs[0]->type(), inputs[0]->shape());
          cpu::round_parallel(inputs[0]->data<float>(), copy.data<float>(), copy.size(), rounding_);
          *outputs[0] = std::move(copy);
        }

       private:
        const Rounding rounding_;
      };
      add_step(std::make_shared<RoundedCopy>(rounding), {home.slot}, {slot}, reader);
    } else if (layout == home.layout) {
      add_step(cpu::make_round_kernel(rounding), {home.slot}, {slot}, reader);
    } else {
      add_step(cpu::make_reorder_kernel(shape(id), layout, rounding), {home.slot}, {slot}, reader);
    }
    variants_[std::make_tuple(id, layout, rounding)] = slot;
  }
  variants_[key] = slot;
  return slot;
}

void PlanBuilder::lower_group(const Group& group) {
  const auto is_product = [&](LayerId id) { return layer(id).op->kind == OpKind::kContraction; };
  std::size_t begin = 0;
  while (begin < group.layers.size()) {
    // A group is a sequence of parts: a product with its epilogue, or a run of layers between products.
    std::size_t end = begin + 1;
    while (end < group.layers.size() && !is_product(group.layers[end])) ++end;
    std::span<const LayerId> part(group.layers.data() + begin, end - begin);
    if (!is_product(part[0])) {
      lower_sequence(part);
    } else {
      std::size_t epilogue = 1;
      while (epilogue < part.size() && (layer(part[epilogue]).op->kind == OpKind::kPointwise ||
                                        is_scale_shift(spec_, layer(part[epilogue])) || is_fused_cast(part[epilogue])))
        ++epilogue;
      if (!lower_contraction(part.first(epilogue))) {
        const std::size_t done = lower_reference_contraction(part.first(epilogue));
        lower_sequence(part.subspan(done, epilogue - done));
      }
      lower_sequence(part.subspan(epilogue));
    }
    begin = end;
  }
}

void PlanBuilder::lower_sequence(std::span<const LayerId> members) {
  if (members.empty()) return;
  if (lower_program(members)) return;
  if (members.size() == 1) {
    lower_single(members[0]);
    return;
  }
  for (LayerId id : members) lower_sequence({&id, 1});
}

void PlanBuilder::lower_single(LayerId id) {
  const Layer& l = layer(id);
  if (lower_quantisation(id) || lower_pool(id) || lower_resize(id) || lower_movement(id) || lower_cast(id)) return;
  std::vector<int> inputs, outputs;
  std::vector<DataType> types;
  std::vector<Rounding> rounding;
  bool open = false;
  for (std::size_t i = 0; i < l.inputs.size(); ++i)
    inputs.push_back(l.inputs[i] == kNone ? -1 : read_operand(id, i, Layout::kDense));
  for (TensorId output : l.outputs) {
    if (output != kNone && !spec_.shape(output)) open = true;
  }
  for (int slot : inputs)
    if (slot >= 0 && plan_.slots_[static_cast<std::size_t>(slot)].dynamic) open = true;
  for (TensorId output : l.outputs) {
    types.push_back(output == kNone ? DataType::kUndefined : spec_.type(output));
    rounding.push_back(output == kNone ? Rounding::kNone : store_rounding(output, {&id, 1}));
    outputs.push_back(output == kNone ? -1 : define(output, Layout::kDense));
    if (open && output != kNone) plan_.slots_[static_cast<std::size_t>(outputs.back())].dynamic = true;
  }
  cpu::GraphFunction graphs = static_cast<std::size_t>(id) < subgraphs_.size()
                                  ? subgraphs_[static_cast<std::size_t>(id)]
                                  : cpu::GraphFunction{};
  add_step(cpu::make_op_kernel(l, std::move(types), std::move(rounding), !open, std::move(graphs)), std::move(inputs),
           std::move(outputs), id);
  for (TensorId output : l.outputs)
    if (output != kNone) settle(output, {&id, 1});
}

}  // namespace ulpscope
