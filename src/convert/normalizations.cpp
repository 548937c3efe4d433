#include "convert/normalizations.h"

#include <fmt/format.h>

#include <algorithm>

#include "convert/lowerable.h"
#include "engine/fusion.h"
#include "engine/scale_shift.h"

namespace ulpscope {
namespace {

/// The convolution whose parameters take in this layer; kNone: none does.
LayerId absorbing_convolution(const Specialization& spec, const Grouping& grouping, LayerId id) {
  const Network& network = *spec.network;
  const int index = grouping.group_of[id];
  if (index < 0) return kNone;
  const auto& members = grouping.groups[index].layers;
  const auto place = std::ranges::find(members, id);
  if (place == members.begin() || place == members.end()) return kNone;
  const LayerId before = *(place - 1);
  const Layer& convolution = network.layer(before);
  if (!is_convolution(convolution.op->function)) return kNone;
  const TensorId between = convolution.outputs[0];
  const auto& readers = spec.consumers[between];
  if (!grouping.internal[between] || readers.size() != 1 || readers[0] != id) return kNone;
  if (network.layer(id).inputs[0] != between) return kNone;
  const auto& shape = spec.shape(convolution.inputs[0]);
  if (!shape || shape->size() < 3 || shape->size() > 4 || !spec.is_constant(convolution.inputs[1])) return kNone;
  if (convolution.input(2) != kNone && !spec.is_constant(convolution.inputs[2])) return kNone;
  return before;
}

}  // namespace

std::vector<std::string> prepare_normalizations(const Specialization& spec, const Assignment& assignment, Fusion fusion,
                                                TypedChanges& changes, IntegerExport& integers) {
  const Network& network = *spec.network;
  std::vector<std::string> sentences;
  const Grouping grouping = fuse(spec, assignment, fusion);
  int prepared = 0;
  for (const auto& [id, layer] : network.layers.items()) {
    if (!spec.numeric[id] || layer.output(0) == kNone) continue;
    if (spec.type(layer.outputs[0]) != DataType::kFloat32 || !is_scale_shift(spec, layer)) continue;
    const LayerId convolution = absorbing_convolution(spec, grouping, id);
    const bool in_int8 = convolution != kNone && assignment.precision[convolution] == Precision::kINT8;
    if (!in_int8 && !is_narrow(assignment.precision[id])) continue;
    const DataType type = storage_of(assignment.precision[id]);
    if (convolution != kNone) {
      const ScaleShift channels = scale_shift(spec, layer, Rounding::kNone);
      const Layer& conv = network.layer(convolution);
      Tensor weights = scaled_weights(spec, conv, channels.scale);
      if (in_int8)
        integers.set_weights(convolution, std::move(weights));
      else
        changes.parameters.push_back({convolution, 1, std::move(weights)});
      changes.parameters.push_back({convolution, 2, scaled_bias(spec, conv, channels)});
      changes.absorbed.emplace_back(convolution, id);
      continue;
    }
    const Rounding rounding = rounding_of(type);
    if (survives_rounding(spec, layer, rounding)) continue;
    const ScaleShift channels = rounded_scale_shift(spec, layer, rounding);
    const std::int64_t count = channels.scale.size();
    const std::vector<float> zeros(static_cast<std::size_t>(count), 0.0F), ones(static_cast<std::size_t>(count), 1.0F);
    changes.parameters.push_back({id, 1, channels.scale});
    changes.parameters.push_back({id, 2, channels.shift});
    changes.parameters.push_back({id, 3, Tensor::of<float>({count}, zeros)});
    changes.parameters.push_back({id, 4, Tensor::of<float>({count}, ones)});
    changes.epsilons.emplace_back(id, 0.0F);
    ++prepared;
  }
  if (!changes.absorbed.empty())
    sentences.push_back(
        fmt::format("{} BatchNormalization(s) are multiplied into the convolutions before them, "
                    "in fp32 before rounding (as --fusion {} does)",
                    changes.absorbed.size(), fusion == Fusion::kFull ? "full" : "pointwise"));
  if (prepared > 0)
    sentences.push_back(
        fmt::format("{} BatchNormalization(s) have scale and shift prepared in fp32, with mean 0, "
                    "variance 1 and epsilon 0: the narrow type cannot hold their parameters",
                    prepared));
  return sentences;
}

}  // namespace ulpscope
