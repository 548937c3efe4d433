// Ranges and mean squares of channels: what equalizing and the scales of weights go by.
#include <algorithm>
#include <cmath>
#include <limits>

#include "calibration/calibration.h"
#include "calibration/sample_inputs.h"
#include "core/messages.h"
#include "engine/element_forms.h"
#include "runtime/by_shapes.h"

namespace ulpscope {
namespace {

/// What is seen of the channels of one tensor.
class ChannelCounts {
 public:
  /// Values without that axis, or with another number of channels than the first, are left out.
  void add(const Tensor& value, std::size_t axis) {
    if (axis >= value.shape().size()) return;
    const auto channels = static_cast<std::size_t>(value.shape()[axis]);
    if (largest_.empty()) {
      largest_.assign(channels, 0.0f);
      squares_.assign(channels, 0.0);
      counts_.assign(channels, 0);
    }
    if (largest_.size() != channels || value.size() == 0) return;
    std::size_t inner = 1;
    for (std::size_t d = axis + 1; d < value.shape().size(); ++d) inner *= static_cast<std::size_t>(value.shape()[d]);
    const auto rows = static_cast<std::size_t>(value.size()) / (channels * inner);
    const float* v = value.data<float>();
    for (std::size_t row = 0; row < rows; ++row, v += channels * inner)
      if (inner == 1) {
        for (std::size_t c = 0; c < channels; ++c) count(v[c], largest_[c], squares_[c], counts_[c]);
      } else {
        for (std::size_t c = 0; c < channels; ++c)
          for (std::size_t i = c * inner; i < (c + 1) * inner; ++i) count(v[i], largest_[c], squares_[c], counts_[c]);
      }
  }

  /// What another tensor with the same channels had, too.
  void add(const ChannelCounts& other) {
    if (squares_.size() != other.squares_.size()) return;
    for (std::size_t c = 0; c < squares_.size(); ++c) {
      largest_[c] = std::max(largest_[c], other.largest_[c]);
      squares_[c] += other.squares_[c];
      counts_[c] += other.counts_[c];
    }
  }

  ChannelRange range() const {
    ChannelRange result;
    result.largest = largest_;
    for (std::size_t c = 0; c < squares_.size(); ++c)
      result.mean_square.push_back(
          static_cast<float>(squares_[c] / static_cast<double>(std::max<std::int64_t>(counts_[c], 1))));
    return result;
  }

 private:
  static void count(float value, float& largest, double& squares, std::int64_t& seen) {
    const float magnitude = std::fabs(value);
    const bool finite = magnitude <= std::numeric_limits<float>::max();
    const float counted = finite ? magnitude : 0.0f;
    largest = largest < counted ? counted : largest;
    squares += static_cast<double>(counted) * counted;
    seen += finite ? 1 : 0;
  }

  std::vector<float> largest_;
  std::vector<double> squares_;
  std::vector<std::int64_t> counts_;  ///< Of finite values.
};

}  // namespace

std::map<std::string, ChannelRange> channel_ranges(const Network& network, std::span<const ChannelAxis> tensors,
                                                   std::span<const TensorMap> samples,
                                                   const CalibrationOptions& options, const WeightCache& weights) {
  std::vector<TensorId> ids;
  for (const ChannelAxis& each : tensors) ids.push_back(each.tensor);
  std::vector<ChannelCounts> counts(ids.size());
  visit_values(network, ids, samples, options, weights,
               [&](std::size_t t, const Tensor& value) { counts[t].add(value, tensors[t].axis); });
  std::map<std::string, ChannelRange> result;
  for (std::size_t t = 0; t < ids.size(); ++t) result.emplace(network.tensor(ids[t]).name, counts[t].range());
  return result;
}

std::map<std::string, Tensor> input_mean_squares(const Network& network, PrecisionSet precisions,
                                                 std::span<const TensorMap> samples, const CalibrationOptions& options,
                                                 const WeightCache& weights) {
  if (samples.empty())
    throw invalid_argument("[calibrate] expected at least one sample to weigh errors of weights by, got none");
  const auto spec = specialize(network, shapes_of(physical_inputs(samples.front(), input_bindings(network))));
  using Channels = std::pair<TensorId, int>;  // A tensor, and its axis.
  std::map<Channels, std::size_t> places;
  std::vector<TensorId> tensors;
  std::vector<std::size_t> axes;
  // Products with the same weights have the same scales.
  std::map<Channels, std::vector<LayerId>> readers;
  for (const LayerId id : products_with_chosen_scales(*spec, precisions)) {
    const Layer& layer = network.layer(id);
    const Channels input{layer.inputs[0], summed_axis(*spec, layer, 0)};
    readers[{layer.inputs[1], summed_axis(*spec, layer, 1)}].push_back(id);
    if (!places.emplace(input, tensors.size()).second) continue;
    tensors.push_back(input.first);
    axes.push_back(static_cast<std::size_t>(input.second));
  }
  std::vector<ChannelCounts> counts(tensors.size());
  if (!tensors.empty())
    visit_values(network, tensors, samples, options, weights,
                 [&](std::size_t t, const Tensor& value) { counts[t].add(value, axes[t]); });
  std::map<std::string, Tensor> result;
  for (const auto& [constant, layers] : readers) {
    const auto counts_of = [&, &network = network](LayerId id) -> const ChannelCounts& {
      const Layer& layer = network.layer(id);
      return counts[places.at({layer.inputs[0], summed_axis(*spec, layer, 0)})];
    };
    ChannelCounts all = counts_of(layers.front());
    for (std::size_t i = 1; i < layers.size(); ++i) all.add(counts_of(layers[i]));
    const std::vector<float> squares = all.range().mean_square;
    if (squares.empty()) continue;
    Tensor tensor(DataType::kFloat32, {std::ssize(squares)});
    std::ranges::copy(squares, tensor.data<float>());
    for (const LayerId id : layers) result.emplace(network.layer(id).name, tensor);
  }
  return result;
}

}  // namespace ulpscope
