// Softmax over other than last dimensions.
#pragma once

#include <cstdint>
#include <memory>

#include "backend/kernel.h"

namespace ulpscope::cpu {

/// Softmax, or LogSoftmax, over `length` of [outer, length, inner]: with the bits that it has over rows.
std::unique_ptr<Kernel> make_column_softmax_kernel(std::int64_t outer, std::int64_t length, std::int64_t inner,
                                                   bool logarithm);

}  // namespace ulpscope::cpu
