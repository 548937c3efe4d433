// Bias correction for int8: quantized weights and activations shift the mean of what a product computes, channel by
// channel; a bias takes the shift back. Nagel, van Baalen, Blankevoort and Welling, "Data-free quantization through
// weight equalization and bias correction" (ICCV 2019), section 4.2, with the mean errors measured on samples.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "compare/tensor_map.h"
#include "engine/options.h"
#include "engine/specialization.h"
#include "graph/assignment.h"
#include "graph/network.h"

namespace ulpscope {

struct BiasCorrection {
  std::string layer;   ///< The product.
  std::string bias;    ///< The constant that takes the correction: its own, or that of the Add behind it.
  double largest = 0;  ///< The largest magnitude that one of its elements changes by.
};

struct BiasCorrections {
  std::vector<BiasCorrection> done;  ///< In network order.
  int without_bias = 0;              ///< Int8 products that no constant is added to: they stay as they are.
};

/// Adds to the biases of the products that `low` runs in int8 what makes the mean of their outputs, per channel over
/// all samples, that of exact arithmetic on exact inputs. The network computes other values in float32 afterwards:
/// for networks that run as `low` has it. Constants are replaced by new tensors, so that other layers that read them
/// keep theirs. `spec`: of this network, before; `samples`: in the order of its inputs.
BiasCorrections correct_biases(Network& network, const Specialization& spec, const Assignment& low,
                               const BuildOptions& options, std::span<const TensorMap> samples);

}  // namespace ulpscope
