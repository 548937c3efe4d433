#include "engine/fixed_types.h"

#include <fmt/format.h>

#include <algorithm>

#include "graph/layer_choice.h"

namespace ulpscope {

std::optional<std::string> why_types_are_fixed(const Specialization& spec) {
  std::optional<LayerPlace> wide, fixed;
  bool narrow = false, others = false;
  for (const LayerPlace& place : all_layers(spec)) {
    const Layer& layer = place.layer();
    const auto yields = [&](auto... types) {
      return std::ranges::any_of(present(layer.outputs),
                                 [&](TensorId id) { return ((place.spec->type(id) == types) || ...); });
    };
    constexpr DataType kNarrow[] = {DataType::kFloat16, DataType::kBFloat16};
    if (place.numeric() && has_precision(layer)) {
      if (yields(DataType::kFloat32)) return std::nullopt;
      (yields(kNarrow[0], kNarrow[1]) ? narrow : others) = true;
    } else if (!place.folded()) {
      if (!wide && has_precision(layer) && yields(DataType::kFloat64)) wide = place;
      if (!fixed && layer.op->precision == PrecisionRule::kFixed && layer.op->kind != OpKind::kControl &&
          yields(DataType::kFloat32, kNarrow[0], kNarrow[1]))
        fixed = place;
    }
  }
  if (narrow)
    return ": its float layers have narrow types in the file already; try the float32 model that it was made from";
  if (others) return std::nullopt;  // Comparisons and the like.
  if (wide)
    return fmt::format(": layer '{}' ({}) computes in float64, which stays", wide->layer().name,
                       wide->layer().op->name);
  if (fixed)
    return fmt::format(": layer '{}' ({}) has no precision of its own", fixed->layer().name, fixed->layer().op->name);
  return "; no float arithmetic but of constants reaches an output";
}

}  // namespace ulpscope
