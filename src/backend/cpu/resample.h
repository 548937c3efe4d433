// Resize and Upsample over spatial dimensions, channels last.
#pragma once

#include <memory>
#include <vector>

#include "backend/kernel.h"
#include "ops/forms.h"

namespace ulpscope::cpu {

/// `input`: logical, channels last in memory. `axes`: spatial ones, in ascending order; the operator's bits.
std::unique_ptr<Kernel> make_resample_kernel(const Shape& input, std::vector<ops::ResampledAxis> axes);

}  // namespace ulpscope::cpu
