#include "precision/network_picture.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstdlib>

#include "backend/backend.h"
#include "calibration/calibration.h"
#include "graph/layer_choice.h"

namespace ulpscope {
namespace {

using NetworkLayer = Answer::NetworkLayer;

/// floor(log2 |x|) of a float's magnitude bits, which are not 0.
int exponent_of(std::uint32_t magnitude) {
  const int biased = static_cast<int>(magnitude >> 23);
  return biased > 0 ? biased - 127 : std::bit_width(magnitude) - 150;
}

/// To 4 digits: pictures show no more.
double rounded(double value) { return std::strtod(fmt::format("{:.4g}", value).c_str(), nullptr); }

/// By the bits of magnitudes; nothing where the largest is 0.
void widen(std::optional<Answer::Magnitudes>& range, std::uint32_t smallest, std::uint32_t largest) {
  if (largest == 0) return;
  const Answer::Magnitudes found{exponent_of(smallest), exponent_of(largest)};
  range = range ? Answer::Magnitudes{std::min(range->smallest, found.smallest), std::max(range->largest, found.largest)}
                : found;
}

void widen(std::optional<Answer::Magnitudes>& range, const Tensor& given) {
  if (given.type() != DataType::kFloat32) return;
  const Tensor values = given.in_memory();
  std::uint32_t smallest = 0x7f800000u, largest = 0;
  for (const float value : values.values<float>()) {
    const std::uint32_t magnitude = std::bit_cast<std::uint32_t>(value) & 0x7fffffffu;
    if (magnitude == 0 || magnitude >= 0x7f800000u) continue;
    smallest = std::min(smallest, magnitude);
    largest = std::max(largest, magnitude);
  }
  widen(range, smallest, largest);
}

/// What each layer would take by itself in each precision that it may have, in the groups of the lowest.
void add_times(SearchSpace& space, const IdMap<LayerId, int>& row_of, std::vector<NetworkLayer>& rows) {
  const Specialization& spec = space.specialization();
  const Target& target = space.time_model().target();
  IdMap<LayerId, std::vector<Precision>> choices(spec.network->layers.size());
  for (LayerId l : choices.ids()) {
    choices[l] = {space.low().precision[l]};
    for (const Precision rung : space.options().ladder)
      if (const Precision high = precision_in(spec.network->layer(l), rung);
          std::ranges::find(choices[l], high) == choices[l].end())
        choices[l].push_back(high);
  }
  const Grouping grouping = fuse(spec, space.low(), space.options().build.fusion);
  for (const CostProblem::Node& node : make_cost_problem(spec, grouping, target, choices).nodes) {
    if (row_of[node.layer] < 0) continue;
    for (std::size_t c = 0; c < node.choices.size(); ++c)
      rows[static_cast<std::size_t>(row_of[node.layer])].time_us[node.choices[c]] = rounded(node.cost[c]);
  }
}

}  // namespace

std::vector<NetworkLayer> network_picture(SearchSpace& space, const Levels* best, std::span<const TensorMap> samples,
                                          const std::function<void(TensorId, const Tensor&)>& see) {
  const Specialization& spec = space.specialization();
  const Network& network = *spec.network;
  const Levels levels = best != nullptr ? *best : space.lowest();
  const Assignment chosen = space.assignment(levels);
  const RaisedLayers::Marks raised = space.names(levels).marks();
  std::vector<NetworkLayer> rows;
  IdMap<LayerId, int> row_of(network.layers.size(), -1);
  for (const auto& [l, layer] : network.layers.items()) {
    if (spec.folded[l]) continue;
    row_of[l] = static_cast<int>(rows.size());
    NetworkLayer row{layer.name, std::string(layer.op->name)};
    if (spec.numeric[l] && has_precision(layer))
      row.low = (l.index() < raised.size() && raised[l.index()] != 0 ? space.low() : chosen).precision[l];
    for (const TensorId input : present(layer.inputs)) {
      const LayerId producer = network.tensor(input).producer;
      if (producer == kNone || row_of[producer] < 0) continue;
      if (std::ranges::find(row.inputs, row_of[producer]) == row.inputs.end()) row.inputs.push_back(row_of[producer]);
    }
    rows.push_back(std::move(row));
  }
  add_times(space, row_of, rows);
  if (samples.empty()) return rows;
  std::vector<TensorId> tensors = calibrated_tensors(spec);
  std::erase_if(tensors, [&](TensorId id) { return network.tensor(id).producer == kNone; });
  for (const NamedTensor& input : samples.front())
    if (const TensorId id = network.find_tensor(input.name); id != kNone && is_floating(input.tensor.type()))
      see(id, input.tensor.cast(DataType::kFloat32));
  const BuildOptions& build = space.options().build;
  std::vector<std::optional<Answer::Magnitudes>> ranges(tensors.size());
  const CalibrationOptions options = space.trials().range_options();
  const WeightCache& weights = space.trials().weights();
  if (find_backend(build.backend).has_own_memory())
    visit_counts(network, tensors, samples, options, weights, build.backend,
                 [&](std::size_t tensor, std::span<const std::int32_t> counts) {
                   using Counts = ops::RowMagnitudes;
                   widen(ranges[tensor], static_cast<std::uint32_t>(Counts::kInfinity - counts[Counts::kSmallest]),
                         static_cast<std::uint32_t>(counts[Counts::kLargestFinite]));
                 });
  else
    visit_values(network, tensors, samples, options, weights, [&](std::size_t tensor, const Tensor& value) {
      widen(ranges[tensor], value);
      see(tensors[tensor], value);
    });
  for (std::size_t t = 0; t < tensors.size(); ++t) {
    const LayerId producer = network.tensor(tensors[t]).producer;
    if (row_of[producer] >= 0 && network.layer(producer).output(0) == tensors[t])
      rows[static_cast<std::size_t>(row_of[producer])].magnitudes = ranges[t];
  }
  return rows;
}

}  // namespace ulpscope
