// What the normalisation operators share. Statistics are computed in the type of the elements (float32 or double) in
// two passes, with pairwise sums.
#pragma once

#include <cmath>

#include "ops/adjoint_values.h"
#include "ops/elementwise.h"
#include "ops/rows.h"

namespace ulpscope::ops {

template <typename T>
T mean_of(const T* row, std::int64_t length) {
  return pairwise_sum<T>(0, length, [&](std::int64_t i) { return row[i]; }) / static_cast<T>(length);
}

/// The population variance.
template <typename T>
T variance_of(const T* row, std::int64_t length, T mean) {
  const T sum = pairwise_sum<T>(0, length, [&](std::int64_t i) {
    const T difference = row[i] - mean;
    return difference * difference;
  });
  return sum / static_cast<T>(length);
}

template <typename T>
T mean_square_of(const T* row, std::int64_t length) {
  return pairwise_sum<T>(0, length, [&](std::int64_t i) { return row[i] * row[i]; }) / static_cast<T>(length);
}

/// out = (x - mean) / sqrt(variance + epsilon); returns mean and 1 / sqrt(variance + epsilon).
template <typename T>
std::pair<T, T> standardize(const T* in, T* out, std::int64_t length, T epsilon) {
  const T mean = mean_of(in, length);
  const T inverse = T{1} / std::sqrt(variance_of(in, length, mean) + epsilon);
  for (std::int64_t i = 0; i < length; ++i) out[i] = (in[i] - mean) * inverse;
  return {mean, inverse};
}

/// y = y * scale + shift, both of y's type and broadcast to it; `shift` may be null.
void scale_and_shift(const KernelContext& ctx, Tensor& y, const Tensor& scale, const Tensor* shift);

/// A parameter of an own float type in the type of the elements.
inline Tensor parameter_as(const Tensor& tensor, DataType type) {
  return tensor.type() == type ? tensor : tensor.cast(type);
}

/// The type that `stash_type` (a TensorProto.DataType) names; float32 for any that is not a float.
DataType stash_type(const InferContext& ctx);

/// LayerNormalization and its kin: outputs 1 and 2 have the stash type and the shape of the input with 1 for the axes
/// from `axis` on.
void infer_layer_normalization(InferContext& ctx);

/// y = (x - mean) / sqrt(variance + epsilon) * scale + shift over the axes from `axis` on; the means and the inverse
/// deviations go to `means` and `inverses` where they are not null.
void layer_normalize(const KernelContext& ctx, const Tensor& x, const Tensor& scale, const Tensor* shift, float epsilon,
                     Tensor& y, Tensor* means, Tensor* inverses);

/// y = x / sqrt(mean(x^2) + epsilon) * scale over the axes from `axis` on.
void rms_normalize(const KernelContext& ctx, const Tensor& x, const Tensor& scale, float epsilon, Tensor& y,
                   Tensor* inverses);

/// What normalize_adjoint finds on the way.
struct Normalized {
  Value inverse;   ///< 1 / sqrt(variance + epsilon), or of the mean square.
  Value result;    ///< x normalised, before scale and shift.
  Value gradient;  ///< Of x.
};

/// The gradient of x from that of its normalisation over `axes`: (x - mean) * inverse, or x * inverse when not
/// `centred`.
Normalized normalize_adjoint(Value x, Value gradient, const std::vector<std::int64_t>& axes, double epsilon,
                             bool centred);

/// The adjoint of LayerNormalization (`centred`) and RMSNormalization with their kin, for the tensor `x` that is
/// normalised. The gradients of scale and shift go to their inputs (-1: there is none), those that arrive at the
/// outputs with the mean and the inverse deviation (-1: there are none) count. Returns the gradient of x.
Value normalization_adjoint(AdjointContext& ctx, Value x, std::int64_t axis, double epsilon, bool centred, int scale,
                            int shift, int mean_output, int inverse_output);

/// The adjoint of InstanceNormalization and GroupNormalization.
void group_normalization_adjoint(AdjointContext& ctx, std::int64_t groups);

/// Checks shapes; output 0 is as input 0.
void infer_instance_normalization(InferContext& ctx);

/// The kernel of InstanceNormalization and GroupNormalization: `groups` per sample.
void group_normalize(KernelContext& ctx, std::int64_t groups);

}  // namespace ulpscope::ops
