// Region scaling: tensors hold their values times powers of two, so that float16 holds them. In float32 the outputs
// keep every bit. Constants take the factors up; where they cannot, multiplications are inserted
// (docs/search_algorithm.md).
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "backend/weights.h"
#include "calibration/calibration.h"
#include "compare/tensor_map.h"
#include "engine/specialization.h"
#include "graph/assignment.h"
#include "ulpscope/repair.h"

namespace ulpscope {

struct RegionScaling {
  /// One ScaleRegion each, which do not depend on each other; in network order.
  std::vector<Repair> regions;
  /// Tensors that stay beyond float16, with the layers that keep them there: one sentence each.
  std::vector<std::string> beyond;
};

/// The exponents that bring tensors which layers of `low` have in fp16 into its range, with a headroom of 8, for the
/// ranges and rows of the samples in fp32. Only regions where something overflows, or nearly, or whole rows vanish.
/// Nothing is changed. `spec`: for the first sample. `scales`: the int8 scales of the network's tensors; those of
/// tensors that are multiplied are moved along. `backend`: what runs the samples. The same for every number of threads.
RegionScaling find_region_scaling(const Specialization& spec, const Assignment& low, std::span<const TensorMap> samples,
                                  const CalibrationOptions& options = {}, const WeightCache& weights = {},
                                  const std::map<std::string, float>& scales = {}, const std::string& backend = "cpu");

/// Makes the changes of a ScaleRegion: constants are replaced by new tensors, layers are added (named after those
/// that they stand in front of; ids of later layers grow). `scales`: the int8 scales of its tensors, which move by the
/// same powers of two: what computes with integers keeps every one of them. Throws Error(kInvalidArgument) for layers,
/// inputs and exponents that do not fit; the network is then not to be used.
void apply_region_scaling(Network& network, std::map<std::string, float>& scales, std::span<const ScaleEdit> edits);

}  // namespace ulpscope
