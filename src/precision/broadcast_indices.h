// Which element of a tensor belongs to which of another one that it is broadcast to.
#pragma once

#include <cstdint>
#include <vector>

#include "ulpscope/tensor.h"

namespace ulpscope {

/// The element of `shape`, broadcast to `to` as NumPy does it, that belongs to each element of `to`.
std::vector<std::int64_t> broadcast_indices(const Shape& shape, const Shape& to);

}  // namespace ulpscope
