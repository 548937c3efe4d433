// The way of a constant that is added to data, an epsilon: where the data are 0, what follows computes with it alone.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "calibration/scaling_model.h"

namespace ulpscope {

/// A layer on the way, or the one where data meet what comes of the constant (x / sqrt(variance + epsilon)).
struct ConstantStep {
  LayerId layer = kNone;
  TensorId from = kNone;             ///< What it reads of the way; none: it adds the constant.
  TensorId to = kNone;               ///< What it makes; none: data meet it there.
  double smallest = 0, largest = 0;  ///< Magnitudes there where the data are 0.
};

/// The way of a constant with magnitudes from `smallest` to `largest`, in network order, through roots, reciprocals,
/// factors, divisors and movement until data meet it; none where another layer reads it.
std::optional<std::vector<ConstantStep>> constant_path(const Specialization& spec, const ScalingModel::Change& added,
                                                       double smallest, double largest);

/// The layers of the way that need more than fp16 with these values of the variables: what they read or make where the
/// data are 0 is 0 or infinite in fp16, and without the exponents it is neither, or they are `high`.
std::vector<LayerId> beyond_fp16(const ScalingModel& model, const ScalingModel::Change& added,
                                 std::span<const ConstantStep> path, std::span<const int> values, bool high);

/// Whether fp16 rounds it to 0.
bool is_zero_in_fp16(double magnitude);

}  // namespace ulpscope
