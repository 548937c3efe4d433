// Elements of any type as integers in the same order, so that what sorts is compiled once.
#pragma once

#include <cstdint>

#include "ulpscope/tensor.h"

namespace ulpscope::ops {

/// Writes the keys of elements begin, begin + step, ...: a < b has a smaller key, equal elements (0 and -0) the same
/// one. NaNs are equal to each other and larger than numbers. REQUIRES: numbers or booleans.
void sort_keys(const Tensor& tensor, std::int64_t begin, std::int64_t step, std::int64_t count, std::uint64_t* keys);

}  // namespace ulpscope::ops
