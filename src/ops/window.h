// Geometry of the operators that slide a window over spatial dimensions (convolution and pooling), shared by the
// reference kernels and the fast ones.
#pragma once

#include <array>
#include <cstdint>

#include "graph/network.h"
#include "ulpscope/shape.h"

namespace ulpscope::ops {

/// Concrete numbers of one convolution or pooling. The vectors have one entry per spatial dimension. `pads_begin` and
/// `pads_end` are what the attributes (pads, auto_pad, output_shape) come to; with ceil_mode the last windows may reach
/// beyond input + pads_end. Pads may be negative where the file says so (they crop).
struct WindowGeometry {
  std::int64_t batch = 1;
  std::int64_t in_channels = 1;   ///< C of the input.
  std::int64_t out_channels = 1;  ///< C of the output; as in_channels for pooling.
  std::int64_t groups = 1;
  Shape input, kernel, strides, dilations, pads_begin, pads_end, output;

  std::size_t rank() const noexcept { return input.size(); }
  /// (batch, out_channels, output...).
  Shape output_shape() const;
  /// Windows that neither overlap nor are padded, as a vision transformer cuts its image: rows of a matrix. Those of
  /// one element only where there are few, since convolutions are good at them.
  bool are_patches() const;
};

/// Conv, ConvInteger, QLinearConv, DeformConv: x is (N, C, d...), w is (M, C/group, k...).
/// These three throw Error(kInvalidFile), naming the layer, for attributes and shapes that do not fit.
WindowGeometry conv_geometry(const Layer& layer, const Shape& x, const Shape& w);

/// ConvTranspose: x is (N, C, d...), w is (C, M/group, k...). An output position o receives input position i through
/// kernel position k where o = i * stride + k * dilation - pads_begin.
WindowGeometry conv_transpose_geometry(const Layer& layer, const Shape& x, const Shape& w);

/// MaxPool, AveragePool, LpPool: kernel_shape is an attribute. ceil_mode follows the rule that the last window starts
/// inside of the input or its leading pad.
WindowGeometry pool_geometry(const Layer& layer, const Shape& x);

/// Whether an average over such windows is summed in float64: float32 loses digits in sums of thousands of values.
bool averages_in_double(const Shape& kernel);

/// The same as three spatial dimensions (leading ones of size 1 are added), for kernels with fixed loops.
struct Window3 {
  using Triple = std::array<std::int64_t, 3>;
  Triple input{1, 1, 1}, kernel{1, 1, 1}, strides{1, 1, 1}, dilations{1, 1, 1}, pads_begin{0, 0, 0}, pads_end{0, 0, 0},
      output{1, 1, 1};
  static std::int64_t volume(const Triple& t) noexcept { return t[0] * t[1] * t[2]; }
};

/// Throws Error(kUnsupported), naming the layer, for more than three spatial dimensions.
Window3 to_window3(const Layer& layer, const WindowGeometry& geometry);

/// The range [begin, end) of output positions o in [0, outputs) with 0 <= o * stride + offset < inputs.
struct OutputRange {
  std::int64_t begin, end;
};
OutputRange valid_outputs(std::int64_t outputs, std::int64_t inputs, std::int64_t stride, std::int64_t offset) noexcept;

}  // namespace ulpscope::ops
