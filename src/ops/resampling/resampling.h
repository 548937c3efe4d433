// Resize and Upsample: the geometry and the interpolation along each axis.
#pragma once

#include <string>
#include <vector>

#include "ops/common.h"

namespace ulpscope::ops {

enum class ResampleMode { kNearest, kLinear, kCubic };

/// How positions of the output map to positions of the input, and how values are weighted.
struct ResampleOptions {
  ResampleMode mode = ResampleMode::kNearest;
  std::string coordinates = "half_pixel";      ///< coordinate_transformation_mode
  std::string nearest = "round_prefer_floor";  ///< nearest_mode, or "simple": what opset 10 and Upsample do.
  float cubic_a = -0.75f;
  bool exclude_outside = false, antialias = false;
  float extrapolation_value = 0;
};

/// One axis that is resized. `scale` is output / input, possibly not exactly (floor, or a common scale for all axes).
struct ResampleAxis {
  std::int64_t axis = 0;
  std::int64_t output = 0;
  float scale = 1;
  float roi_start = 0, roi_end = 1;
};

/// Reads mode and friends from the attributes; `legacy` is for Resize of opset 10 and Upsample. Throws
/// Error(kInvalidFile) for unknown modes.
ResampleOptions resample_options(const Layer& layer, bool legacy);

/// The shape of the output.
Shape resampled_shape(const Shape& input, const std::vector<ResampleAxis>& axes);

/// One entry per axis from one scale per axis; fails naming the layer when their number does not fit.
std::vector<ResampleAxis> axes_from_scales(const Layer& layer, const Shape& x, const std::vector<std::int64_t>& axes,
                                           const std::vector<float>& scales);

/// Interpolates `x` into `out`, which has the resampled shape. Any numeric type; integers are computed in float32 and
/// rounded, except that `nearest` moves them as they are.
void resample(const KernelContext& ctx, const ResampleOptions& options, const std::vector<ResampleAxis>& axes,
              const Tensor& x, Tensor& out);

/// The adjoint of `resample` for input 0 of the layer.
void resample_adjoint(AdjointContext& ctx, const ResampleOptions& options, const std::vector<ResampleAxis>& axes);

}  // namespace ulpscope::ops
