// What values are to a type: how many lie beyond it, vanish in it, or cancel.
#pragma once

#include <array>
#include <cstdint>
#include <limits>

#include "graph/assignment.h"
#include "ulpscope/tensor.h"

namespace ulpscope {

/// Of float32, subnormals included.
inline constexpr int kSmallestExponent = -149, kLargestExponent = 127;

/// Magnitudes of one tensor against what a type can hold.
struct RangeCount {
  std::array<std::int64_t, kLargestExponent - kSmallestExponent + 1> exponents{};
  std::int64_t total = 0, beyond = 0, vanishing = 0, clipped = 0, coarse = 0, nonzero = 0;
  double largest = 0, smallest_vanishing = std::numeric_limits<double>::infinity();
  double sum = 0;
  /// Squared errors of rounding: of values that lie inside of the range, and of those that vanish or are clipped.
  double inside_error = 0, outside_error = 0;
  double mean() const { return nonzero > 0 ? sum / static_cast<double>(nonzero) : 0; }
  void add(const RangeCount& other);
};

/// What a precision holds; float32 for those without a type of floats of their own.
struct TypeRange {
  double largest, smallest_normal;
  int mantissa_bits;
};

TypeRange range_of(Precision precision);

/// Adds the elements of float32 tensors; others are left out. `scale`: of int8, 0 for floats. Releases mapped pages.
void count_range(const Tensor& values, Precision precision, float scale, RangeCount& count);

/// The distance between neighbors at a magnitude.
double step_at(double value, int mantissa_bits);

/// Elements of an Add or Sub whose operands cancel, or one of which swallows the other.
struct SumCount {
  std::int64_t total = 0;
  struct Kind {
    std::int64_t count = 0;
    double large = 0, small = 0;  ///< Sums of magnitudes: the larger operand; the result, or the smaller operand.
  };
  Kind cancelled, swallowed;
  /// Per operand: elements that it swallows the other's value in, and others where it is 0.
  std::int64_t swallows[2] = {0, 0}, absent[2] = {0, 0};
  void add(const SumCount& other);
};

/// Adds the elements of out = a + b (or a - b), operands broadcast to it.
void count_sums(const Tensor& a, const Tensor& b, const Tensor& out, Precision precision, SumCount& count);

}  // namespace ulpscope
