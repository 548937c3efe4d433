// Discrete Fourier transforms.
#pragma once

#include <complex>
#include <vector>

#include "ops/common.h"

namespace ulpscope::ops {

/// Discrete Fourier transforms of one length, in float64. The forward transform is not normalised, the inverse is
/// divided by the length. Thread-safe.
class FourierTransform {
 public:
  using Values = std::vector<std::complex<double>>;
  explicit FourierTransform(std::int64_t length);
  /// values has `length` elements.
  void forward(Values& values) const { transform(values, 1, false); }
  void inverse(Values& values) const;

 private:
  /// Transforms `values` whose twiddle factors are every `step`-th of roots_.
  void transform(Values& values, std::size_t step, bool conjugate) const;
  Values roots_;  ///< exp(-2 pi i k / length).
};

}  // namespace ulpscope::ops
