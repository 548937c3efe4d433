// convolve() of float32, some output channels at a time.
#pragma once

#include "ops/window.h"

namespace ulpscope::ops {

/// Whether convolve_channels() is worth the copy of the weights that it makes.
bool convolves_channels(const WindowGeometry& g);

/// convolve(), with its bits: each output adds up its products in the order of the input's channels, and of the places
/// of the window, from the bias on.
void convolve_channels(const WindowGeometry& g, const Window3& window, const float* x, const float* w,
                       const float* bias, float* out);

}  // namespace ulpscope::ops
