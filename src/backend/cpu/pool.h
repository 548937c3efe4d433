// Pooling over spatial dimensions.
#pragma once

#include <memory>
#include <vector>

#include "backend/kernel.h"
#include "ops/forms.h"

namespace ulpscope::cpu {

struct PoolSpec {
  ops::PoolForm form;
  Shape input, output;  ///< Logical, one or two spatial dimensions; channels last in memory, but for the dense kernel.
  std::vector<std::int64_t> kernel, strides, dilations, pads_begin, pads_end;
};

/// NaN in a window is the maximum of the window, as ONNX's reference has it (oneDNN drops it).
std::unique_ptr<Kernel> make_max_pool_kernel(const PoolSpec& spec);

/// Through oneDNN. Nothing when it has no such pooling, in a build without it, and for windows of thousands of
/// elements, whose sums in float32 lose digits.
std::unique_ptr<Kernel> make_average_pool_kernel(const PoolSpec& spec);

/// The bits of these two, dense, over one to three spatial dimensions. Means over three, and those of windows of
/// thousands of elements, are summed in float64, as by the reference kernel.
std::unique_ptr<Kernel> make_dense_pool_kernel(const PoolSpec& spec);

}  // namespace ulpscope::cpu
