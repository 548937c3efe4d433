// Concat: parts that lie in the whole without gaps are computed where they belong; others are copied.

#include "backend/cuda/layers.h"
#include "ops/forms.h"
#include "ops/reduction/row_magnitudes.h"

namespace ulpscope::cuda {

bool Layers::lower_concat(const LayerKernel& kernel) {
  const Layer& l = layer(kernel.layer);
  const Store& store = kernel.outputs[0];
  const Shape& to = shape(store.tensor);
  const auto axis = ops::concatenation_axis(l, static_cast<std::int64_t>(to.size()));
  if (!axis || store.exact) return false;
  std::vector<std::int64_t> order = ops::strides_of(to);
  std::vector<std::pair<View, Shape>> parts;  // Over finer dimensions, perhaps.
  bool found = parts_.has_whole(store.tensor);
  for (const Operand& operand : kernel.operands) {
    if (operand.tensor == kNone) return false;
    Operand as_stored{operand.tensor, Rounding::kNone, operand.first};
    const auto& [view, fine] = parts.emplace_back(memory_.fine_view(as_stored));
    const Shape& dims = shape(operand.tensor);
    if (found || spec_.is_constant(operand.tensor)) continue;
    const std::vector<std::int64_t> own = fine == dims ? view.strides : memory_.order_of(operand);
    found = is_one_to_one(dims, own);
    if (found) order = ordered_strides(to, own);
  }
  const View whole = parts_.has_whole(store.tensor) ? parts_.whole_of(store) : memory_.define(store, order);
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
    if (num_elements(dims) > 0 && !is_there) steps_.add_copy(part, place, fine);
  }
  return true;
}

bool Layers::lower_magnitudes(const LayerKernel& kernel) {
  const Layer& l = layer(kernel.layer);
  if (l.op != &ops::row_magnitudes() || spec_.is_constant(l.inputs[0])) return false;
  const View from = memory_.device_view(kernel.operands[0]);
  const Store& store = kernel.outputs[0];
  const View to = parts_.define_cleared(store);
  steps_.add_kernel(magnitudes_source(strided(from, shape(l.inputs[0]))), {pointer(from)}, to);
  return true;
}

}  // namespace ulpscope::cuda
