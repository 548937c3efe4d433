// numpy.random.RandomState, bit by bit: MT19937 (Matsumoto and Nishimura, 1998) and NumPy's legacy distributions.
#pragma once

#include <cstdint>
#include <random>

#include "ulpscope/tensor.h"

namespace ulpscope {

class RandomState {
 public:
  /// As RandomState(seed) with an integer below 2^32.
  explicit RandomState(std::uint32_t seed) : words_(seed) {}

  std::uint32_t next_uint32() { return static_cast<std::uint32_t>(words_()); }
  /// Uniform in [0, 1) with 53 bits, as random_sample().
  double next_double();

  /// random_sample(shape): float64.
  Tensor random_sample(const Shape& shape);

  /// randint(low, high, shape, dtype) for an integer type or bool; `high` is not drawn. Uniform by masked rejection.
  /// int64 cannot reach its largest value, nor uint64 the upper half of its range.
  /// Throws Error(kInvalidArgument) for low >= high or bounds outside of the type.
  Tensor randint(std::int64_t low, std::int64_t high, const Shape& shape, DataType type);

 private:
  std::mt19937 words_;
};

}  // namespace ulpscope
