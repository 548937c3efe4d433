#include "precision/weight_bits.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "core/messages.h"
#include "engine/element_forms.h"
#include "formats/numeric_format.h"

namespace ulpscope {

StoredWeights stored_weights(const Specialization& spec, LayerId id, Precision precision, DataType number) {
  const Layer& layer = spec.network->layer(id);
  StoredWeights result;
  result.weights = num_elements(*spec.shape(layer.inputs[1]));
  const LayerForm& form = form_of(precision);
  if (form.is_float()) {
    result.bits = 8 * result.weights * static_cast<std::int64_t>(size_of(form.stored));
    return result;
  }
  const Encoding encoding = encoding_of(spec, layer, precision, 1, number, {});
  const bool blocked = encoding.granularity == Granularity::kBlock;
  const std::int64_t scales = num_elements(scale_layout(spec, layer, 1, encoding).scales);
  result.bits = result.weights * format_of(encoding.format).bits() + scales * format_of(encoding.scale).bits() +
                (encoding.second_scale ? 32 : 0);
  result.block = blocked ? encoding.block : 0;
  return result;
}

std::map<LayerId, std::vector<Precision>> weight_formats(const Specialization& spec, PrecisionSet enabled,
                                                         const std::vector<Precision>& floats, DataType number) {
  std::map<LayerId, std::vector<Precision>> result;
  for (const LayerId id : spec.network->layers.ids()) {
    const Layer& layer = spec.network->layer(id);
    if (layer.inputs.size() < 2 || layer.inputs[1] == kNone || !spec.is_constant(layer.inputs[1]) ||
        !spec.shape(layer.inputs[1]))
      continue;
    std::vector<Precision> formats;
    for (const Precision each : enabled.members()) {
      if (!is_of_weights(each) || !has_form(spec, id, each)) continue;
      const auto larger = enabled.larger_blocks(each);
      if (!larger || !has_form(spec, id, *larger)) formats.push_back(each);
    }
    if (formats.empty()) continue;
    formats.insert(formats.end(), floats.begin(), floats.end());
    std::ranges::stable_sort(formats, {}, [&](Precision p) { return stored_weights(spec, id, p, number).bits; });
    result.emplace(id, std::move(formats));
  }
  return result;
}

std::int64_t total_weights(const Specialization& spec, const std::map<LayerId, std::vector<Precision>>& formats) {
  std::int64_t weights = 0;
  std::set<TensorId> seen;
  for (const auto& [id, each] : formats) {
    const TensorId tensor = spec.network->layer(id).inputs[1];
    if (seen.insert(tensor).second) weights += num_elements(*spec.shape(tensor));
  }
  return weights;
}

std::int64_t fewest_bits(const Specialization& spec, const std::map<LayerId, std::vector<Precision>>& formats,
                         DataType number) {
  std::int64_t bits = 0;
  std::set<TensorId> seen;
  for (const auto& [id, each] : formats)
    if (seen.insert(spec.network->layer(id).inputs[1]).second)
      bits += stored_weights(spec, id, each.front(), number).bits;
  return bits;
}

void throw_small_budget(double budget, double least) {
  // Rounded up, so that it can be asked for.
  throw invalid_argument(
      "[search] --bits: expected at least {:.4f}, the bits per weight that the smallest formats allowed take here with "
      "their scales, got {}; try more, or a smaller format beside them",
      std::ceil(least * 1e4) / 1e4, budget);
}

std::vector<std::vector<LayerId>> format_groups(const Network& network, const std::vector<LayerId>& layers) {
  std::vector<std::vector<LayerId>> groups;
  std::vector<std::set<TensorId>> tensors;  // Per group: what its layers read.
  for (const LayerId id : layers) {
    const Layer& layer = network.layer(id);
    const std::set<TensorId> read{layer.inputs[0], layer.inputs[1]};
    std::vector<LayerId> group{id};
    std::set<TensorId> all = read;
    for (std::size_t g = groups.size(); g-- > 0;) {
      if (std::ranges::none_of(read, [&](TensorId each) { return tensors[g].contains(each); })) continue;
      group.insert(group.end(), groups[g].begin(), groups[g].end());
      all.merge(tensors[g]);
      groups.erase(groups.begin() + static_cast<std::ptrdiff_t>(g));
      tensors.erase(tensors.begin() + static_cast<std::ptrdiff_t>(g));
    }
    std::ranges::sort(group);
    groups.push_back(std::move(group));
    tensors.push_back(std::move(all));
  }
  std::ranges::sort(groups);
  return groups;
}

}  // namespace ulpscope
