#include "precision/local_errors.h"

#include <fmt/format.h>

#include <algorithm>

#include "graph/adjoint.h"
#include "ops/forms.h"
#include "ops/layer_writer.h"
#include "runtime/by_shapes.h"

namespace ulpscope {

std::vector<CandidateOutput> candidate_outputs(const Network& network, std::span<const LayerId> candidates) {
  std::vector<CandidateOutput> places;
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    if (!network.layers.contains(candidates[i])) continue;
    for (TensorId output : present(network.layer(candidates[i]).outputs))
      if (is_floating(network.tensor(output).type)) places.push_back({i, output});
  }
  return places;
}

TwinNetwork with_twins(const Network& network, const Assignment& low, std::span<const LayerId> candidates,
                       std::span<const Precision> precisions) {
  TwinNetwork made{network, {}};
  Network& twins = made.network;
  twins.outputs.clear();
  made.assignment.precision.assign(network.layers.size(), Precision::kFP32);
  made.assignment.scale = low.scale;
  made.assignment.int8_output = low.int8_output;
  made.assignment.accumulation = low.accumulation;
  made.assignment.attention = low.attention;
  made.assignment.scale_choice = low.scale_choice;
  made.assignment.channel_weights = low.channel_weights;
  IdMap<TensorId, TensorId> low_of(network.tensors.size());
  const auto add_tensor = [&](TensorId like, std::string_view suffix) {
    TensorInfo info;
    info.name = network.tensor(like).name + std::string(suffix);
    info.type = network.tensor(like).type;
    return twins.add_tensor(std::move(info));
  };
  LayerWriter writer(twins, AdjointContext::kAdjointOpset);
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    const LayerId id = candidates[i];
    if (!network.layers.contains(id)) continue;
    const Precision precision = precisions.empty() ? low.precision[id] : precisions[i];
    const std::string suffix = precisions.empty() ? "/low" : fmt::format("/{}", name_of(precision));
    Layer twin = network.layer(id);
    twin.name += suffix;
    for (TensorId& output : twin.outputs) {
      if (output == kNone) continue;
      const TensorId exact = output;
      output = add_tensor(exact, suffix);
      low_of[exact] = output;
    }
    twins.add_layer(std::move(twin));
    made.assignment.precision.push_back(precision);
    for (const CandidateOutput& place : candidate_outputs(network, {&id, 1})) {
      const TensorId difference =
          writer.subtract(low_of[place.tensor], place.tensor,
                          fmt::format("{}{}/error {}", network.layer(id).name, suffix, place.tensor.number()));
      twins.tensor(difference).type = network.tensor(place.tensor).type;
      twins.outputs.push_back(difference);
      made.assignment.precision.push_back(Precision::kFP32);
    }
  }
  return made;
}

void TwinNetwork::finish(const InferredNetwork& inferred) {
  assignment.precision.resize(network.layers.size(), Precision::kFP32);
  assignment.reason.resize(network.layers.size());
  if (!assignment.scale.empty()) assignment.scale.resize(network.tensors.size(), 0.0f);
  if (!assignment.channel_weights.empty()) assignment.channel_weights.resize(network.tensors.size());
  update_storage(network, inferred, assignment);
}

Images images_of(const Specialization& spec) {
  const Network& network = *spec.network;
  Images images(network.tensors.size());
  const auto has_rank = [&](TensorId id) {
    return id != kNone && spec.shape(id) && spec.shape(id)->size() == 4 && !spec.is_constant(id);
  };
  const auto slides = [&](const Layer& layer, TensorId input) {
    return ops::is_convolution(layer) || ops::pooling_of(layer, *spec.shape(input)).has_value();
  };
  const auto mark = [&](const Layer& layer) {
    for (const TensorId output : present(layer.outputs))
      if (has_rank(output)) images[output] = 1;
  };
  for (const Layer& layer : network.layers) {
    const TensorId first = layer.inputs.empty() ? kNone : layer.input(0);
    if (!has_rank(first) || !slides(layer, first)) continue;
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

namespace {

/// Instead of the outputs, the sums of their squares.
void sum_squares(TwinNetwork& twins) {
  Network& network = twins.network;
  LayerWriter writer(network, AdjointContext::kAdjointOpset);
  for (TensorId& output : network.outputs) {
    const DataType type = network.tensor(output).type;
    output = writer.sum_squares(output, network.tensor(output).name + "/squares");
    network.tensor(output).type = type;
    twins.assignment.precision.push_back(Precision::kFP32);
  }
}

/// Those outputs of the network that are images, or errors of some, as [n, h, w, c].
void turn_images(Network& network, std::span<const CandidateOutput> places, std::span<const TensorId> tensors,
                 const Images& images) {
  if (images.empty()) return;
  LayerWriter writer(network, AdjointContext::kAdjointOpset);
  for (std::size_t o = 0; o < network.outputs.size(); ++o) {
    const TensorId of = o < places.size() ? places[o].tensor : tensors[o - places.size()];
    if (!images[of]) continue;
    const DataType type = network.tensor(network.outputs[o]).type;
    network.outputs[o] = writer.channels_last(network.outputs[o]);
    network.tensor(network.outputs[o]).type = type;
  }
}

}  // namespace

struct LocalErrors::Twin {
  TwinNetwork twins;
  std::vector<TensorId> tensors;
  Images images;
  std::unique_ptr<Executable> executable;
};

LocalErrors::LocalErrors(const Network& network, const Assignment& low, std::span<const LayerId> candidates,
                         const BuildOptions& options, const WeightCache& weights, Yield yield,
                         std::span<const Precision> precisions)
    : network_(network),
      low_(low),
      candidates_(candidates.begin(), candidates.end()),
      precisions_(precisions.begin(), precisions.end()),
      options_(options),
      weights_(weights),
      yield_(yield) {}

LocalErrors::~LocalErrors() = default;

std::shared_ptr<LocalErrors::Twin> LocalErrors::twin(std::span<const TensorId> tensors, const Images& images,
                                                     const std::vector<Shape>& shapes) {
  const std::lock_guard lock(mutex_);
  if (twin_ && std::ranges::equal(twin_->tensors, tensors) && twin_->images == images) return twin_;
  auto made = std::make_shared<Twin>(with_twins(network_, low_, candidates_, precisions_));
  made->tensors.assign(tensors.begin(), tensors.end());
  made->images = images;
  if (yield_ == Yield::kSquares) sum_squares(made->twins);
  Network& network = made->twins.network;
  network.outputs.insert(network.outputs.end(), tensors.begin(), tensors.end());
  turn_images(network, candidate_outputs(network_, candidates_), tensors, images);
  network.check();
  const auto spec = specialize(network, shapes);
  made->twins.finish(spec->inferred);
  BuildOptions options = options_;
  options.fusion = Fusion::kNone;
  made->executable = std::make_unique<Executable>(network, made->twins.assignment, options, spec, weights_);
  return twin_ = std::move(made);
}

LocalErrors::Result LocalErrors::run(std::span<const Tensor> inputs, std::span<const TensorId> tensors,
                                     const Images& images) {
  const std::shared_ptr<Twin> made = twin(tensors, images, shapes_of(inputs));
  std::vector<Tensor> outputs = made->executable->run(inputs);
  Result result;
  std::size_t next = 0;
  for (const CandidateOutput& place : candidate_outputs(network_, candidates_))
    result.errors.push_back({candidates_[place.candidate], place.tensor, std::move(outputs[next++])});
  while (next < outputs.size()) result.values.push_back(std::move(outputs[next++]));
  return result;
}

std::size_t LocalErrors::activation_bytes(const std::vector<Shape>& shapes, std::span<const TensorId> tensors,
                                          const Images& images) {
  return twin(tensors, images, shapes)->executable->arena_bytes(shapes);
}

}  // namespace ulpscope
