// Attention as one layer.
#pragma once

#include <memory>
#include <vector>

#include "backend/kernel.h"
#include "formats/rounding.h"
#include "graph/network.h"

namespace ulpscope::cpu {

/// Where the layer is an Attention of float32, with what `reference`, its reference kernel, computes, by the loops of
/// packed products and of programs: sums are those of ProductPart. Else `reference` itself, which also carries out what
/// exposes its scores. `layer` outlives the kernel; `types` and `rounding` as make_reference_kernel() has them. Shapes
/// are known.
std::unique_ptr<Kernel> make_attention_kernel(const Layer& layer, std::vector<DataType> types,
                                              std::vector<Rounding> rounding, std::unique_ptr<Kernel> reference);

}  // namespace ulpscope::cpu
