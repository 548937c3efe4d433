#include "calibration/equalize.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "calibration/channel_exponents.h"
#include "calibration/channel_fold.h"
#include "core/messages.h"
#include "core/parallel.h"
#include "engine/int8.h"
#include "graph/adjoint.h"
#include "graph/name_match.h"
#include "ops/registry.h"

namespace ulpscope {
namespace {

/// The layer quantizes its constant with one scale for all channels.
bool quantizes_constant(const Specialization& spec, const Assignment& low, const Fold& fold, LayerId id) {
  const Layer& layer = spec.network->layer(id);
  if (!is_quantized(low.precision[id]) || layer.op->kind == OpKind::kContraction) return false;
  const bool edited = std::ranges::any_of(fold.edits, [&](const Edit& edit) { return edit.layer == id; });
  return edited && spec.product_of_bias(id) == kNone;
}

bool suits(const Specialization& spec, const Assignment& low, const Fold& fold) {
  const Shape& shape = *spec.shape(fold.tensor);
  if (shape.size() < fold.trailing + 1 || shape[shape.size() - 1 - fold.trailing] != fold.channels) return false;
  for (LayerId reader : fold.readers) {
    const auto quantized = quantized_inputs(spec, reader);
    if (!is_quantized(low.precision[reader]) || quantized.size() != 1 || quantized[0] != fold.tensor ||
        is_integer_product(spec, reader))
      return false;
  }
  return std::ranges::none_of(
      fold.passed, [&](LayerId layer) { return spec.folded[layer] || quantizes_constant(spec, low, fold, layer); });
}

std::optional<Fold> usable_fold(const Specialization& spec, const Assignment& low, const Folder& folder, TensorId id) {
  if (spec.is_constant(id) || !spec.shape(id) || spec.type(id) != DataType::kFloat32) return {};
  for (bool copies : {false, true})
    if (auto fold = folder.fold(id, copies); fold && suits(spec, low, *fold)) return fold;
  return {};
}

/// Adds the layer that rescales the tensor for the readers, right behind its producer; returns the name of its output.
std::string add_copy(Network& network, const Fold& fold, std::span<const std::int8_t> exponents) {
  TensorInfo factors;
  factors.name = network.free_name(network.tensor(fold.tensor).name + "/factors");
  factors.type = DataType::kFloat32;
  Shape shape{fold.channels};
  shape.resize(fold.trailing + 1, 1);
  factors.value = Tensor(DataType::kFloat32, shape);
  factors.shape = std::move(shape);
  for (std::size_t k = 0; k < exponents.size(); ++k) factors.value.data<float>()[k] = std::ldexp(1.0f, -exponents[k]);
  TensorInfo copy = network.tensor(fold.tensor);
  copy.name = network.free_name(copy.name + "/equalised");
  const std::string name = copy.name;
  const LayerId at(copy.producer.number() + 1);
  Layer layer;
  layer.name = name;
  layer.op = op_registry().find("", "Mul");
  layer.opset = AdjointContext::kAdjointOpset;
  layer.inputs = {fold.tensor, network.add_tensor(std::move(factors))};
  const TensorId output = network.add_tensor(std::move(copy));
  layer.outputs = {output};
  for (LayerId reader : fold.readers) std::ranges::replace(network.layer(reader).inputs, fold.tensor, output);
  network.insert_layer(at, std::move(layer));
  return name;
}

}  // namespace

std::vector<ChannelAxis> equalizable_tensors(const Specialization& spec, const Assignment& low) {
  const Network& network = *spec.network;
  const Folder folder(network);
  std::vector<ChannelAxis> result;
  const auto add = [&](TensorId id) {
    if (id == kNone) return;
    if (const auto fold = usable_fold(spec, low, folder, id))
      result.push_back({id, spec.shape(id)->size() - 1 - fold->trailing});
  };
  for (TensorId id : network.inputs) add(id);
  for (const Layer& layer : network.layers)
    for (TensorId id : layer.outputs) add(id);
  return result;
}

std::vector<Equalization> find_equalizations(const Specialization& spec, const Assignment& low,
                                             const std::map<std::string, ChannelRange>& ranges,
                                             const std::map<std::string, float>& scales) {
  const Network& network = *spec.network;
  const Folder folder(network);
  const std::vector<ChannelAxis> tensors = equalizable_tensors(spec, low);
  std::vector<std::optional<Equalization>> found(tensors.size());
  parallel_each(tensors.size(), [&](std::size_t t) {
    const std::string& name = network.tensor(tensors[t].tensor).name;
    const auto range = ranges.find(name);
    const auto scale = scales.find(name);
    if (range == ranges.end() || scale == scales.end() || !(scale->second > 0)) return;
    const auto fold = usable_fold(spec, low, folder, tensors[t].tensor);
    found[t] = find_equalization(spec, *fold, range->second, scale->second);
  });
  std::vector<Equalization> result;
  for (auto& each : found)
    if (each) result.push_back(std::move(*each));
  return result;
}

void apply_equalization(Network& network, std::map<std::string, float>& scales, const Equalization& equalization) {
  const std::string where = fmt::format("[repair] tensor '{}'", equalization.tensor);
  const TensorId tensor = network.find_tensor(equalization.tensor);
  if (tensor == kNone) {
    std::vector<std::string> names;
    for (const TensorInfo& info : network.tensors)
      if (info.producer != kNone) names.push_back(info.name);
    throw invalid_argument("{}: the network has no tensor of that name{}", where,
                           did_you_mean(equalization.tensor, names));
  }
  const auto fold = Folder(network).fold(tensor, equalization.copies);
  if (!fold)
    throw invalid_argument(where +
                           ": expected a tensor between constants that can take factors per channel; is the answer of "
                           "another model, or are outputs marked that it did not have?");
  if (equalization.exponents.size() != static_cast<std::size_t>(fold->channels))
    throw invalid_argument("{}: expected {} exponents, one per channel, got {}", where, fold->channels,
                           equalization.exponents.size());
  if (!(equalization.scale_after > 0) || !std::isfinite(equalization.scale_after))
    throw invalid_argument("{}: expected a positive scale, got {}", where, equalization.scale_after);
  std::vector<Tensor> values;
  for (const Edit& edit : fold->edits) {
    const Layer& layer = network.layer(edit.layer);
    auto value = rescaled(*constant_input(network, layer, edit.input), edit, equalization.exponents);
    if (!value)
      throw invalid_argument("{}: a constant of layer '{}' leaves the range of float32 when it is rescaled", where,
                             layer.name);
    values.push_back(std::move(*value));
  }
  for (std::size_t i = 0; i < values.size(); ++i) {
    const Edit& edit = fold->edits[i];
    const TensorId before = network.layer(edit.layer).inputs[edit.input];
    TensorInfo info;
    info.name = network.free_name(network.tensor(before).name + "/equalised");
    info.type = DataType::kFloat32;
    info.shape = edit.shape;
    info.value = std::move(values[i]);
    network.layer(edit.layer).inputs[edit.input] = network.add_tensor(std::move(info));
  }
  if (equalization.copies)
    scales[add_copy(network, *fold, equalization.exponents)] = equalization.scale_after;
  else
    scales[equalization.tensor] = equalization.scale_after;
}

}  // namespace ulpscope
