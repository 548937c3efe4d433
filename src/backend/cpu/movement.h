// Steps that move values or average channels where a layout can be kept.
#pragma once

#include <memory>
#include <vector>

#include "backend/kernel.h"
#include "ops/forms.h"

namespace ulpscope::cpu {

/// out[o, :] = the inputs' rows o side by side; input i has rows of widths[i] floats.
std::unique_ptr<Kernel> make_concat_kernel(std::int64_t outer, std::vector<std::int64_t> widths);

/// A part of `input`, of shape `output`, both channels last.
std::unique_ptr<Kernel> make_cut_kernel(const Shape& input, const ops::Cut& cut, const Shape& output);

/// A dense tensor of this shape, whose elements have these strides in the input.
std::unique_ptr<Kernel> make_arranging_kernel(std::vector<std::int64_t> strides, Shape shape);

/// Mean over all positions of each channel, channels last; partial sums in fixed blocks of positions.
std::unique_ptr<Kernel> make_channel_mean_kernel(std::int64_t batch, std::int64_t positions, std::int64_t channels);

}  // namespace ulpscope::cpu
