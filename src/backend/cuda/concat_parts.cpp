#include <algorithm>

#include "backend/cuda/placement.h"
#include "ops/forms.h"
#include "ops/reduction/row_magnitudes.h"

namespace ulpscope::cuda {

ConcatParts::ConcatParts(const Specialization& spec, const Schedule& schedule, const IdMap<TensorId, KernelUses>& uses,
                         StepList& steps, Placement& memory)
    : spec_(spec), steps_(steps), memory_(memory) {
  std::set<TensorId> network_outputs;
  for (const Operand& output : schedule.outputs) network_outputs.insert(output.tensor);
  for (const std::vector<KernelDescription>& kernels : schedule.kernels)
    for (const KernelDescription& kernel : kernels) {
      const auto* concat = std::get_if<LayerKernel>(&kernel);
      if (concat == nullptr || concat->open || concat->outputs[0].tensor == kNone) continue;
      const Layer& l = spec_.network->layer(concat->layer);
      const Store& store = concat->outputs[0];
      if (!spec_.shape(store.tensor) || store.exact) continue;
      const Shape& to = shape(store.tensor);
      const auto axis = ops::concatenation_axis(l, static_cast<std::int64_t>(to.size()));
      if (!axis || std::any_of(to.begin(), to.begin() + *axis, [](std::int64_t size) { return size != 1; })) continue;
      std::int64_t offset = 0;
      for (const Operand& operand : concat->operands) {
        if (operand.tensor == kNone || !spec_.shape(operand.tensor)) break;
        if (const TensorId part = generated_part(operand.tensor, network_outputs, uses); part != kNone)
          parts_.try_emplace(part, Part{&store, offset});
        offset += num_elements(shape(operand.tensor));
      }
    }
}

/// What a generated kernel computes and nobody but this operand's reader has, with other names for it on the way; else
/// none.
TensorId ConcatParts::generated_part(TensorId id, const std::set<TensorId>& network_outputs,
                                     const IdMap<TensorId, KernelUses>& of_all) const {
  for (;;) {
    if (spec_.is_constant(id) || network_outputs.contains(id)) return kNone;
    const KernelUses& uses = of_all[id];
    if (uses.readers.size() != 1 || uses.producer == nullptr) return kNone;
    if (std::holds_alternative<ProgramKernel>(*uses.producer)) return id;
    const auto* single = std::get_if<LayerKernel>(uses.producer);
    if (single == nullptr || single->open) return kNone;
    const Layer& l = spec_.network->layer(single->layer);
    if (l.op == &ops::row_magnitudes()) return id;
    if (!l.has_one_output() || l.inputs.empty() || !ops::is_view(l, spec_.known_inputs(l))) return kNone;
    id = l.inputs[0];
  }
}

std::optional<View> ConcatParts::define(const Store& store, const std::vector<std::int64_t>& strides) {
  const auto part = parts_.find(store.tensor);
  if (part == parts_.end() || store.exact ||
      !same_places(shape(store.tensor), strides, ops::strides_of(shape(store.tensor))))
    return std::nullopt;
  View view = whole_of(*part->second.whole);
  if (view.type != memory_.stored_type(store)) return std::nullopt;
  view.offset += part->second.offset;
  view.strides = strides;
  memory_.define_at(store.tensor, view);
  return view;
}

View ConcatParts::whole_of(const Store& store) {
  const auto [found, added] = wholes_.try_emplace(store.tensor);
  if (added) found->second = memory_.define(store, ops::strides_of(shape(store.tensor)));
  return found->second;
}

View ConcatParts::define_cleared(const Store& store) {
  const auto part = parts_.find(store.tensor);
  const bool is_first = part != parts_.end() && !wholes_.contains(part->second.whole->tensor);
  const auto place = define(store, {1});
  const View to = place ? *place : memory_.define(store, {1});
  if (place && is_first) {
    // All parts at once, most of which are like this one.
    steps_.add_clear(to);
    cleared_.insert(part->second.whole->tensor);
  } else if (!place || !cleared_.contains(part->second.whole->tensor)) {
    steps_.add(ClearStep{pointer(to), static_cast<std::size_t>(num_elements(shape(store.tensor))) * size_of(to.type)});
  }
  return to;
}

}  // namespace ulpscope::cuda
