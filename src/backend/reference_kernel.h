// An operator's reference kernel as a step, for every backend.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "backend/backend.h"
#include "backend/kernel.h"
#include "formats/accumulator.h"

namespace ulpscope {

/// `types`: declared types of the outputs (kUndefined: not wanted). `rounding`: applied to every float32 output.
/// `static_shapes` false: shapes are inferred from the actual inputs and outputs are allocated in every run.
/// `layer` outlives the kernel. `graphs` is empty for layers without sub-graphs. `accumulator`: of its products.
std::unique_ptr<Kernel> make_reference_kernel(const Layer& layer, std::vector<DataType> types,
                                              std::vector<Rounding> rounding, bool static_shapes,
                                              GraphFunction graphs = {},
                                              const std::optional<Accumulator>& accumulator = {});

/// The same for a layer that has other operands than the network's, and one output, unrounded.
std::unique_ptr<Kernel> make_reference_kernel(Layer layer, DataType type, bool static_shapes,
                                              const std::optional<Accumulator>& accumulator = {});

}  // namespace ulpscope
