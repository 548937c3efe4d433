// The two forms of the Gaussian error linear unit (Hendrycks and Gimpel, arXiv 1606.08415).
#pragma once

#include <cmath>
#include <numbers>

#include "ops/adjoint_values.h"
#include "ops/elementwise.h"

namespace ulpscope::ops {

template <typename T>
T gelu_of(T x) noexcept {
  return T(0.5) * x * (T{1} + std::erf(x * T(0.70710678118654752440)));
}

template <typename T>
T gelu_tanh_of(T x) noexcept {
  return T(0.5) * x * (T{1} + std::tanh(T(0.79788456080286535588) * (x + T(0.044715) * x * x * x)));
}

/// The derivatives of both forms, of any tensor.
inline Value gelu_derivative(Value x) {
  return 0.5 * (1 + erf(x * std::numbers::sqrt2 / 2)) +
         x * exp(square(x) * -0.5) * (0.5 * std::numbers::inv_sqrtpi * std::numbers::sqrt2);
}
inline Value gelu_tanh_derivative(Value x) {
  constexpr double kFactor = 0.79788456080286535588, kCubic = 0.044715;
  const Value squared = square(x), t = tanh(x * (squared * (kFactor * kCubic) + kFactor));
  return 0.5 * (1 + t) + x * (1 - square(t)) * (squared * (1.5 * kCubic * kFactor) + 0.5 * kFactor);
}

}  // namespace ulpscope::ops
