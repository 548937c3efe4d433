#include "ops/signal/spectrum.h"

#include <cmath>
#include <numbers>

namespace ulpscope::ops {

FourierTransform::FourierTransform(std::int64_t length) {
  for (std::int64_t k = 0; k < length; ++k)
    roots_.push_back(std::polar(1.0, -2 * std::numbers::pi * static_cast<double>(k) / static_cast<double>(length)));
}

void FourierTransform::inverse(Values& values) const {
  transform(values, 1, true);
  for (auto& value : values) value /= static_cast<double>(values.size());
}

void FourierTransform::transform(Values& values, std::size_t step, bool conjugate) const {
  const std::size_t n = values.size();
  const auto root = [&](std::size_t k) {
    const std::complex<double> r = roots_[k % n * step];
    return conjugate ? std::conj(r) : r;
  };
  if (n <= 1) return;
  if (n % 2 == 0) {  // Cooley and Tukey's step
    Values even(n / 2), odd(n / 2);
    for (std::size_t i = 0; i < n / 2; ++i) {
      even[i] = values[2 * i];
      odd[i] = values[2 * i + 1];
    }
    transform(even, 2 * step, conjugate);
    transform(odd, 2 * step, conjugate);
    for (std::size_t k = 0; k < n / 2; ++k) {
      const std::complex<double> turned = root(k) * odd[k];
      values[k] = even[k] + turned;
      values[k + n / 2] = even[k] - turned;
    }
    return;
  }
  Values sums(n);
  for (std::size_t k = 0; k < n; ++k)
    for (std::size_t i = 0; i < n; ++i) sums[k] += values[i] * root(k * i);
  values.swap(sums);
}

}  // namespace ulpscope::ops
