#include "precision/images.h"

#include <algorithm>

#include "graph/network.h"
#include "ops/forms.h"

namespace ulpscope {
namespace {

bool slides(const Layer& layer, const Shape& input) {
  return ops::is_convolution(layer) || ops::pooling_of(layer, input).has_value();
}

}  // namespace

Images images_of(const Specialization& spec) {
  const Network& network = *spec.network;
  Images images(network.tensors.size());
  const auto has_rank = [&](TensorId id) {
    return id != kNone && spec.shape(id) && spec.shape(id)->size() == 4 && !spec.is_constant(id);
  };
  const auto mark = [&](const Layer& layer) {
    for (const TensorId output : present(layer.outputs))
      if (has_rank(output)) images[output] = 1;
  };
  for (const Layer& layer : network.layers) {
    const TensorId first = layer.inputs.empty() ? kNone : layer.input(0);
    if (!has_rank(first) || !slides(layer, *spec.shape(first))) continue;
    images[first] = 1;
    mark(layer);
  }
  for (const Layer& layer : network.layers) {
    const TensorId first = layer.inputs.empty() ? kNone : layer.input(0);
    if (ops::concatenation_axis(layer, 4) == 1 && images.contains(first) && images[first]) mark(layer);
    for (const TensorId output : present(layer.outputs)) {
      const auto is_alike = [&](TensorId input) {
        return has_rank(input) && images[input] && *spec.shape(input) == *spec.shape(output);
      };
      if (has_rank(output) && std::ranges::any_of(layer.inputs, is_alike)) images[output] = 1;
    }
  }
  return images;
}

}  // namespace ulpscope
