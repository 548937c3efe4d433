// Resize and Upsample of floats.
#pragma once

#include <memory>
#include <vector>

#include "backend/kernel.h"
#include "ops/forms.h"

namespace ulpscope::cpu {

/// `shape`: of the input as it lies in memory. `axes`: into that, in the order in which they are to be summed, which is
/// from the last to the first of the layer; the operator's bits.
std::unique_ptr<Kernel> make_resample_kernel(Shape shape, std::vector<ops::ResampledAxis> axes);

}  // namespace ulpscope::cpu
