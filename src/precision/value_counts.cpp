#include "precision/value_counts.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>

#include "core/file.h"
#include "formats/rounding.h"
#include "precision/broadcast_indices.h"

namespace ulpscope {
namespace {

/// floor(log2 |x|) of a value that is finite and not 0.
int exponent_of(float value) {
  const std::uint32_t magnitude = std::bit_cast<std::uint32_t>(value) & 0x7fffffffu;
  const int biased = static_cast<int>(magnitude >> 23);
  return biased > 0 ? biased - 127 : std::bit_width(magnitude) - 150;
}

float rounded(float value, Precision precision) {
  switch (precision) {
    case Precision::kFP16:
      return round_to_f16(value);
    case Precision::kBF16:
      return round_to_bf16(value);
    case Precision::kTF32:
      return round_to_tf32(value);
    default:
      return value;
  }
}

/// A result is cancelled when its operands are so much larger, and a value is swallowed when it is worth fewer steps.
constexpr double kCancels = 16, kSteps = 8;

}  // namespace

void RangeCount::add(const RangeCount& other) {
  std::ranges::transform(exponents, other.exponents, exponents.begin(), std::plus());
  total += other.total;
  beyond += other.beyond;
  vanishing += other.vanishing;
  clipped += other.clipped;
  coarse += other.coarse;
  nonzero += other.nonzero;
  largest = std::max(largest, other.largest);
  smallest_vanishing = std::min(smallest_vanishing, other.smallest_vanishing);
  sum += other.sum;
  inside_error += other.inside_error;
  outside_error += other.outside_error;
}

TypeRange range_of(Precision precision) {
  switch (precision) {
    case Precision::kFP16:
      return {65504.0, 0x1p-14, 10};
    case Precision::kBF16:
      return {0x1.fep127, 0x1p-126, 7};
    case Precision::kTF32:
      return {0x1.ffcp127, 0x1p-126, 10};
    default:
      return {0x1.fffffep127, 0x1p-126, 23};
  }
}

void count_range(const Tensor& given, Precision precision, float scale, RangeCount& count) {
  if (given.type() != DataType::kFloat32) return;
  const Tensor values = given.in_memory();
  const TypeRange range = range_of(precision);
  // Values from half a step above the largest on become infinite.
  const double overflow = range.largest * (1 + std::ldexp(1.0, -range.mantissa_bits - 2));
  for (float v : values.values<float>()) {
    const double x = std::abs(static_cast<double>(v));
    ++count.total;
    if (x == 0 || std::isnan(x)) continue;
    ++count.nonzero;
    count.largest = std::max(count.largest, x);
    if (std::isfinite(x)) {
      count.sum += x;
      ++count.exponents[exponent_of(v) - kSmallestExponent];
    }
    if (scale > 0) {
      const double error = x - scale * std::min(127.0, std::nearbyint(x / scale));
      (x > 127.5 * scale ? count.outside_error : count.inside_error) += error * error;
      if (x > 127.5 * scale) ++count.clipped;
      if (x < 0.5 * scale) ++count.coarse;
      continue;
    }
    if (x >= overflow) {
      ++count.beyond;
      continue;
    }
    const double error = static_cast<double>(v) - static_cast<double>(rounded(v, precision));
    if (x < range.smallest_normal) {
      ++count.vanishing;
      count.smallest_vanishing = std::min(count.smallest_vanishing, x);
      count.outside_error += error * error;
    } else {
      count.inside_error += error * error;
    }
  }
  MappedFile::release(values.raw(), values.bytes());
}

double step_at(double value, int mantissa_bits) {
  return value > 0 ? std::ldexp(1.0, std::ilogb(value) - mantissa_bits) : 0;
}

void count_sums(const Tensor& a, const Tensor& b, const Tensor& out, Precision precision, SumCount& count) {
  if (a.type() != DataType::kFloat32 || b.type() != DataType::kFloat32 || out.type() != DataType::kFloat32) return;
  const int bits = range_of(precision).mantissa_bits;
  const auto of_a = broadcast_indices(a.shape(), out.shape()), of_b = broadcast_indices(b.shape(), out.shape());
  const float *pa = a.data<float>(), *pb = b.data<float>(), *y = out.data<float>();
  for (std::size_t i = 0; i < of_a.size(); ++i) {
    const double values[2] = {std::abs(static_cast<double>(pa[of_a[i]])), std::abs(static_cast<double>(pb[of_b[i]]))};
    const double result = std::abs(static_cast<double>(y[i]));
    ++count.total;
    if (!std::isfinite(values[0]) || !std::isfinite(values[1]) || !std::isfinite(result)) continue;
    const int larger = values[0] >= values[1] ? 0 : 1;
    const double large = values[larger], small = values[1 - larger];
    for (int k = 0; k < 2; ++k) count.absent[k] += values[k] == 0 ? 1 : 0;
    if (large > kCancels * result) {
      // Exact zeros cancel without a loss when both operands are the same number.
      if (large == 0) continue;
      ++count.cancelled.count;
      count.cancelled.large += large;
      count.cancelled.small += result;
    } else if (small > 0 && large > kCancels * small && small < kSteps * step_at(large, bits)) {
      ++count.swallowed.count;
      ++count.swallows[larger];
      count.swallowed.large += large;
      count.swallowed.small += small;
    }
  }
}

}  // namespace ulpscope
