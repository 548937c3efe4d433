#include "convert/nothing_to_lower.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "convert/lowerable.h"
#include "graph/layer_choice.h"

namespace ulpscope {

std::string why_nothing_is_lowered(const Specialization& spec) {
  bool kept = false;
  std::optional<LayerPlace> wide, fixed;
  for (const LayerPlace& place : all_layers(spec)) {
    const Layer& layer = place.layer();
    const auto yields = [&](auto&& accepts) {
      return std::ranges::any_of(present(layer.outputs), [&](TensorId id) { return accepts(place.spec->type(id)); });
    };
    if (place.numeric() && has_precision(layer)) {
      if (yields([](DataType type) { return is_lowerable(type) && type != DataType::kFloat32; }))
        return ": its float layers have narrow types in the file already; try the float32 model that it was made from";
      kept = true;
    } else if (!place.folded()) {
      if (!wide && has_precision(layer) && yields([](DataType type) { return type == DataType::kFloat64; }))
        wide = place;
      if (!fixed && layer.op->precision == PrecisionRule::kFixed && layer.op->kind != OpKind::kControl &&
          yields(is_lowerable))
        fixed = place;
    }
  }
  if (kept) return "; all its float layers are kept";
  if (wide)
    return fmt::format(": layer '{}' ({}) computes in float64, which stays", wide->layer().name,
                       wide->layer().op->name);
  if (fixed)
    return fmt::format(": layer '{}' ({}) has no precision of its own", fixed->layer().name, fixed->layer().op->name);
  return "; no float arithmetic but of constants reaches an output";
}

}  // namespace ulpscope
