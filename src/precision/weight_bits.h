// What the constant weights of products take in their formats, and which layers decide on these together.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "engine/specialization.h"
#include "graph/assignment.h"

namespace ulpscope {

/// What is stored for the weights of a layer.
struct StoredWeights {
  std::int64_t weights = 0;
  std::int64_t bits = 0;   ///< Codes, scales and zero points, as `convert` writes them.
  std::int64_t block = 0;  ///< Weights that share a scale; 0: a channel, or all of them, or there are no scales.
};

/// `number`: the float that stands beside the format (Assignment::int8_output). REQUIRES: constant weights of a known
/// shape as input 1, and a form in this precision.
StoredWeights stored_weights(const Specialization& spec, LayerId id, Precision precision, DataType number);

/// Per product with constant weights that has a form in one of `enabled` formats for weights alone: these formats and
/// `floats`, from the fewest bits to the most. int4 in blocks of 64 stands in for blocks of 128 where these do not fit.
std::map<LayerId, std::vector<Precision>> weight_formats(const Specialization& spec, PrecisionSet enabled,
                                                         const std::vector<Precision>& floats, DataType number);

/// The weights of these layers, those that several of them read once; and their bits in the first formats.
std::int64_t total_weights(const Specialization& spec, const std::map<LayerId, std::vector<Precision>>& formats);
std::int64_t fewest_bits(const Specialization& spec, const std::map<LayerId, std::vector<Precision>>& formats,
                         DataType number);
/// Throws Error(kInvalidArgument) for a budget below the least that is possible; both per weight.
[[noreturn]] void throw_small_budget(double budget, double least);

/// Groups of these layers: those that read one tensor (Q, K and V; gate and up), since one kernel multiplies them, and
/// those that share their weights. In network order.
std::vector<std::vector<LayerId>> format_groups(const Network& network, const std::vector<LayerId>& layers);

}  // namespace ulpscope
