// int8 calibration: the scale of every tensor, from what the network computes in fp32 on sample inputs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "backend/weights.h"
#include "calibration/calibration_cache.h"
#include "calibration/calibrators.h"
#include "calibration/row_range.h"
#include "compare/tensor_map.h"
#include "engine/options.h"
#include "engine/specialization.h"
#include "graph/network.h"
#include "ulpscope/calibrate.h"

namespace ulpscope {

/// The next sample, inputs by name; nothing at the end.
using SampleSource = std::function<std::optional<TensorMap>()>;

/// The network with other outputs, without requests for precisions.
Network with_outputs(const Network& network, std::vector<TensorId> outputs);

/// The tensors that get scales: inputs of the network and outputs of layers, if they are floats and no constants.
/// Those of graphs inside of control flow are not among them.
std::vector<TensorId> calibrated_tensors(const Specialization& spec);

/// Runs every sample in fp32, without the layers' requested precisions, and counts the values of the calibrated
/// tensors of the first sample's shapes. One sample is in memory at a time; shapes may differ between samples. Values
/// that are not finite are left out, with one warning that names the tensors. Scales are the same for every number of
/// threads and every order of the samples.
/// Throws Error: kInvalidArgument without a sample, for a sample that does not fit (says which) or a bad quantile.
/// `weights`: what is prepared here, others who have a copy of it need not prepare again.
Calibration calibrate(const std::shared_ptr<const Network>& network, const CalibrationOptions& options,
                      const SampleSource& next, const CalibrationProgress& progress = nullptr,
                      const WeightCache& weights = {});

/// Called with the position of a tensor and its values, float32; for one tensor in the order of the samples, for
/// several at once.
using ValueVisitor = std::function<void(std::size_t tensor, const Tensor& value)>;
/// Hands out what these tensors hold in fp32, in portions of `options.memory_limit`. Shapes may differ between samples.
/// Throws Error(kInvalidArgument) as calibrate() does.
void visit_values(const Network& network, std::span<const TensorId> tensors, std::span<const TensorMap> samples,
                  const CalibrationOptions& options, const WeightCache& weights, const ValueVisitor& visit);

/// Called with the position of a tensor and its counts (ops/reduction/row_magnitudes.h).
using CountVisitor = std::function<void(std::size_t tensor, std::span<const std::int32_t> counts)>;
/// Counts, in the order of the samples, the rows of what these tensors hold in fp32 where the backend has it: nothing
/// but counts leaves it. Shapes may differ between samples. Throws Error(kInvalidArgument) as calibrate() does.
void visit_counts(const Network& network, std::span<const TensorId> tensors, std::span<const TensorMap> samples,
                  const CalibrationOptions& options, const WeightCache& weights, const std::string& backend,
                  const CountVisitor& visit);

/// The ranges of the rows of these tensors in fp32, over all samples: counted by a backend that has memory of its own. Shapes may differ between samples. The same for every number of threads.
/// Throws Error(kInvalidArgument) as calibrate() does.
std::vector<RowRange> row_ranges(const Network& network, std::span<const TensorId> tensors,
                                 std::span<const TensorMap> samples, const CalibrationOptions& options,
                                 const WeightCache& weights, const std::string& backend);

/// A tensor and its axis of channels.
struct ChannelAxis {
  TensorId tensor = kNone;
  std::size_t axis = 0;
};

/// What the channels of a tensor hold, over all samples.
struct ChannelRange {
  std::vector<float> largest;      ///< Per channel: the largest magnitude that is finite.
  std::vector<float> mean_square;  ///< Per channel, of the finite values.
};

/// The ranges of these tensors, by name, in fp32. Shapes may differ between samples, but for the number of channels.
/// The same for every number of threads. Throws Error(kInvalidArgument) as calibrate() does.
std::map<std::string, ChannelRange> channel_ranges(const Network& network, std::span<const ChannelAxis> tensors,
                                                   std::span<const TensorMap> samples,
                                                   const CalibrationOptions& options = {},
                                                   const WeightCache& weights = {});

/// Per product with constant weights whose scales are chosen in one of these precisions
/// (products_with_chosen_scales()), by the layer's name: the mean square, in fp32 and over all samples, of each channel
/// of input 0 that is summed over; of several products with the same weights, over the inputs of all. Values that are
/// not finite are left out. Shapes may differ between samples. The same for every number of threads. Throws
/// Error(kInvalidArgument) as calibrate() does.
std::map<std::string, Tensor> input_mean_squares(const Network& network, PrecisionSet precisions,
                                                 std::span<const TensorMap> samples,
                                                 const CalibrationOptions& options = {},
                                                 const WeightCache& weights = {});

/// The tensors whose scales int8 layers need (int8_tensors), for the shapes that an engine of the network is built for;
/// none if it does not work for them (the build says why).
std::vector<TensorId> wanted_tensors(const Network& network, const BuildOptions& build);

/// Whether the scales of a cache are of this network. `wanted`: see wanted_tensors. Warns once of those that have none.
/// Throws Error(kInvalidFile) when no name of the cache is one of the network: it belongs to another model. `source`:
/// the file, for messages.
void check_scales(const CalibrationCache& cache, const Network& network, std::span<const TensorId> wanted,
                  const std::string& source);

}  // namespace ulpscope
