// The two forms of the Gaussian error linear unit (Hendrycks and Gimpel, arXiv 1606.08415).
#pragma once

#include <cmath>

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

}  // namespace ulpscope::ops
