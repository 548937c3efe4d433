// Copies between memory layouts.
#pragma once

#include <memory>

#include "backend/kernel.h"
#include "formats/rounding.h"

namespace ulpscope::cpu {

/// out[n, s, c] = round(in[n, c, s]) (to channels last) or the reverse; float32. `shape` is the logical one, rank 3
/// or 4.
std::unique_ptr<Kernel> make_reorder_kernel(const Shape& shape, Layout to, Rounding rounding);

/// Strides, in elements and per logical dimension, of a tensor in this layout.
std::vector<std::int64_t> layout_strides(const Shape& shape, Layout layout);

}  // namespace ulpscope::cpu
