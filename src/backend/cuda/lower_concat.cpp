// Concat: parts that lie in the whole without gaps are computed where they belong; others are copied.
#include <algorithm>

#include "backend/cuda/lowering.h"
#include "ops/forms.h"
#include "ops/reduction/row_magnitudes.h"

namespace ulpscope::cuda {

void Lowering::find_parts() {
  std::set<TensorId> network_outputs;
  for (const Operand& output : schedule_.outputs) network_outputs.insert(output.tensor);
  for (const std::vector<KernelDescription>& kernels : schedule_.kernels)
    for (const KernelDescription& kernel : kernels) {
      const auto* concat = std::get_if<LayerKernel>(&kernel);
      if (concat == nullptr || concat->open || concat->outputs[0].tensor == kNone) continue;
      const Layer& l = layer(concat->layer);
      const Store& store = concat->outputs[0];
      if (!spec_.shape(store.tensor) || store.exact) continue;
      const Shape& to = shape(store.tensor);
      const auto axis = ops::concatenation_axis(l, static_cast<std::int64_t>(to.size()));
      if (!axis || std::any_of(to.begin(), to.begin() + *axis, [](std::int64_t size) { return size != 1; })) continue;
      std::int64_t offset = 0;
      for (const Operand& operand : concat->operands) {
        if (operand.tensor == kNone || !spec_.shape(operand.tensor)) break;
        if (const TensorId part = generated_part(operand.tensor, network_outputs); part != kNone)
          parts_.try_emplace(part, Part{&store, offset});
        offset += num_elements(shape(operand.tensor));
      }
    }
}

/// What a generated kernel computes and nobody but this operand's reader has, with other names for it on the way; else
/// none.
TensorId Lowering::generated_part(TensorId id, const std::set<TensorId>& network_outputs) const {
  for (;;) {
    if (spec_.is_constant(id) || network_outputs.contains(id)) return kNone;
    const KernelUses& uses = uses_[id];
    if (uses.readers.size() != 1 || uses.producer == nullptr) return kNone;
    if (std::holds_alternative<ProgramKernel>(*uses.producer)) return id;
    const auto* single = std::get_if<LayerKernel>(uses.producer);
    if (single == nullptr || single->open) return kNone;
    const Layer& l = layer(single->layer);
    if (l.op == &ops::row_magnitudes()) return id;
    if (!l.has_one_output() || l.inputs.empty() || !ops::is_view(l, spec_.known_inputs(l))) return kNone;
    id = l.inputs[0];
  }
}

std::optional<View> Lowering::define_part(const Store& store, const std::vector<std::int64_t>& strides) {
  const auto part = parts_.find(store.tensor);
  if (part == parts_.end() || store.exact ||
      !same_places(shape(store.tensor), strides, ops::strides_of(shape(store.tensor))))
    return std::nullopt;
  View view = whole_of(*part->second.whole);
  const DataType declared = physical_type(spec_.type(store.tensor));
  if (view.type != (declared == DataType::kFloat32 ? type_of(store.rounding) : declared)) return std::nullopt;
  view.offset += part->second.offset;
  view.strides = strides;
  locations_[store.tensor].device = view;
  return view;
}

View Lowering::whole_of(const Store& store) {
  const auto [found, added] = wholes_.try_emplace(store.tensor);
  if (added) found->second = define(store, ops::strides_of(shape(store.tensor)));
  return found->second;
}

bool Lowering::lower_concat(const LayerKernel& kernel) {
  const Layer& l = layer(kernel.layer);
  const Store& store = kernel.outputs[0];
  const Shape& to = shape(store.tensor);
  const auto axis = ops::concatenation_axis(l, static_cast<std::int64_t>(to.size()));
  if (!axis || store.exact) return false;
  std::vector<std::int64_t> order = ops::strides_of(to);
  std::vector<std::pair<View, Shape>> parts;  // Over finer dimensions, perhaps.
  bool found = wholes_.contains(store.tensor);
  for (const Operand& operand : kernel.operands) {
    if (operand.tensor == kNone) return false;
    Operand as_stored{operand.tensor, Rounding::kNone, operand.first};
    const auto& [view, fine] = parts.emplace_back(fine_view(as_stored));
    const Shape& dims = shape(operand.tensor);
    if (found || spec_.is_constant(operand.tensor)) continue;
    const std::vector<std::int64_t> own = fine == dims ? view.strides : order_of(operand);
    found = is_one_to_one(dims, own);
    if (found) order = ordered_strides(to, own);
  }
  const View whole = wholes_.contains(store.tensor) ? whole_of(store) : define(store, order);
  std::int64_t begin = 0;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const TensorId id = kernel.operands[i].tensor;
    const Shape& dims = shape(id);
    View place = whole;
    place.offset += begin * whole.strides[static_cast<std::size_t>(*axis)];
    begin += dims[static_cast<std::size_t>(*axis)];
    const auto& [part, fine] = parts[i];
    place.strides = finer_strides(dims, place.strides, fine);
    const bool is_there =
        part.buffer == place.buffer && part.offset == place.offset && same_places(fine, part.strides, place.strides);
    if (num_elements(dims) > 0 && !is_there) add_copy(part, place, fine);
  }
  return true;
}

bool Lowering::lower_magnitudes(const LayerKernel& kernel) {
  const Layer& l = layer(kernel.layer);
  if (l.op != &ops::row_magnitudes() || spec_.is_constant(l.inputs[0])) return false;
  const View from = device_view(kernel.operands[0]);
  const Store& store = kernel.outputs[0];
  const std::size_t bytes = ops::RowMagnitudes::kSize * sizeof(std::int32_t);
  const auto part = parts_.find(store.tensor);
  const bool is_first = part != parts_.end() && !wholes_.contains(part->second.whole->tensor);
  const auto place = define_part(store, {1});
  const View to = place ? *place : define(store, {1});
  if (place && is_first) {
    // All parts at once, most of which are like this one.
    add(ClearStep{{to.buffer, 0}, made_.buffers[to.buffer].bytes});
    cleared_.insert(part->second.whole->tensor);
  } else if (!place || !cleared_.contains(part->second.whole->tensor)) {
    add(ClearStep{pointer(to), bytes});
  }
  add(KernelStep{
      shared(magnitudes_source({from.type, shape(l.inputs[0]), from.strides})), {pointer(from)}, {pointer(to)}});
  return true;
}

}  // namespace ulpscope::cuda
