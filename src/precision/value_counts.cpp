#include "precision/value_counts.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <span>
#include <utility>

#include "core/file.h"
#include "core/vector_clones.h"
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

/// A result is cancelled when its operands are so much larger, and a value is swallowed when it is worth fewer steps.
constexpr float kCancels = 16, kSteps = 8;

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

void SumCount::add(const SumCount& other) {
  const auto add_kind = [](Kind& to, const Kind& from) {
    to.count += from.count;
    to.large += from.large;
    to.small += from.small;
  };
  total += other.total;
  add_kind(cancelled, other.cancelled);
  add_kind(swallowed, other.swallowed);
  for (int k = 0; k < 2; ++k) {
    swallows[k] += other.swallows[k];
    absent[k] += other.absent[k];
  }
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

namespace {

/// Eight elements at a time, whatever the processor: element i joins part i % kLanes of a sum.
constexpr std::size_t kLanes = 8, kChunk = 2048;
using Lanes = double __attribute__((vector_size(kLanes * 8)));
using Floats = float __attribute__((vector_size(kLanes * 4)));
using Bits = std::uint32_t __attribute__((vector_size(kLanes * 4)));
using Counts = std::int32_t __attribute__((vector_size(kLanes * 4)));  ///< Comparisons give -1 where they hold.
using WideBits = std::uint64_t __attribute__((vector_size(kLanes * 8)));

template <typename Vector>
auto total(const Vector& lanes) {
  auto sum = lanes[0];
  for (std::size_t i = 1; i < kLanes; ++i) sum += lanes[i];
  return sum;
}

constexpr std::uint32_t kMagnitude = 0x7fffffffu, kInfinite = 0x7f800000u;

/// The smallest float that is not below a number > 0, as its bits.
std::uint32_t bits_from(double limit) {
  const auto rounded = static_cast<float>(limit);
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(rounded);
  return static_cast<double>(rounded) < limit ? bits + 1 : bits;
}

/// Of magnitudes as bits: `overflow` and more are beyond, less than `normal` vanish.
struct FloatLimits {
  std::uint32_t overflow, normal;
};

/// Sums go on from chunk to chunk, counts are those of one.
struct FloatCounts {
  Lanes sum{}, inside{}, outside{};
  std::int32_t beyond = 0, vanishing = 0, nonzero = 0, subnormal = 0;
  std::uint32_t largest = 0, smallest = kMagnitude;
};

/// `rounded`: the same in a type; a difference of both is exact, and so is its square. REQUIRES: whole rows of kLanes.
ULPSCOPE_VECTOR_CLONES void add_chunk(const float* values, const float* rounded, std::size_t n, FloatLimits limits,
                                      FloatCounts& counts) {
  Lanes sum = counts.sum, inside = counts.inside, outside = counts.outside;
  Counts beyond{}, vanishing{}, nonzero{}, subnormal{}, largest{}, smallest = Counts{} + static_cast<int>(kMagnitude);
  for (std::size_t i = 0; i < n; i += kLanes) {
    Floats value, low;
    std::memcpy(&value, values + i, sizeof value);
    std::memcpy(&low, rounded + i, sizeof low);
    const Bits magnitude = reinterpret_cast<Bits>(value) & kMagnitude;
    const Counts m = reinterpret_cast<Counts>(magnitude);  // Never negative.
    const Counts number = m <= static_cast<int>(kInfinite), is_nonzero = (m > 0) & number;
    const Counts small = m < static_cast<int>(limits.normal), vanishes = is_nonzero & small;
    const Counts in_range = m < static_cast<int>(limits.overflow);
    nonzero -= is_nonzero;
    subnormal -= is_nonzero & (m < 0x00800000);
    beyond -= number & ~in_range;
    vanishing -= vanishes;
    const Counts counted = m & number, lost = vanishes ? m : static_cast<int>(kMagnitude);
    largest = counted > largest ? counted : largest;
    smallest = lost < smallest ? lost : smallest;
    const Counts finite = m & (m < static_cast<int>(kInfinite));
    sum += __builtin_convertvector(reinterpret_cast<Floats>(finite), Lanes);
    const Counts error = reinterpret_cast<Counts>(value - low) & in_range;
    const Lanes in = __builtin_convertvector(reinterpret_cast<Floats>(error & ~small), Lanes);
    const Lanes out = __builtin_convertvector(reinterpret_cast<Floats>(error & small), Lanes);
    inside += in * in;
    outside += out * out;
  }
  counts.sum = sum;
  counts.inside = inside;
  counts.outside = outside;
  counts.beyond = total(beyond);
  counts.vanishing = total(vanishing);
  counts.nonzero = total(nonzero);
  counts.subnormal = total(subnormal);
  for (std::size_t j = 0; j < kLanes; ++j) {
    counts.largest = std::max(counts.largest, static_cast<std::uint32_t>(largest[j]));
    counts.smallest = std::min(counts.smallest, static_cast<std::uint32_t>(smallest[j]));
  }
}

/// By biased exponent, in four tables, so that equal ones in a row do not wait for each other.
using Exponents = std::array<std::array<std::uint32_t, 256>, 4>;

void add_exponents(const std::uint32_t* bits, std::size_t n, Exponents& exponents) {
  for (std::size_t i = 0; i < n; i += 4)
    for (std::size_t j = 0; j < 4; ++j) ++exponents[j][(bits[i + j] & kMagnitude) >> 23];
}

void add_subnormals(const std::uint32_t* bits, std::size_t n, RangeCount& count) {
  for (std::size_t i = 0; i < n; ++i)
    if (const std::uint32_t magnitude = bits[i] & kMagnitude; magnitude != 0 && magnitude < 0x00800000u)
      ++count.exponents[static_cast<std::size_t>(std::bit_width(magnitude) - 150 - kSmallestExponent)];
}

/// Calls `add` with pieces of up to kChunk elements, in whole rows of kLanes: behind the last one zeros.
template <typename Add>
void for_chunks(std::span<const float> values, const Add& add) {
  const std::size_t whole = values.size() / kLanes * kLanes;
  for (std::size_t begin = 0; begin < whole; begin += kChunk)
    add(values.data() + begin, std::min(kChunk, whole - begin));
  if (whole == values.size()) return;
  std::array<float, kLanes> rest{};
  std::copy(values.begin() + static_cast<std::ptrdiff_t>(whole), values.end(), rest.begin());
  add(rest.data(), kLanes);
}

void count_floats(std::span<const float> values, Precision precision, RangeCount& count) {
  const TypeRange range = range_of(precision);
  // Values from half a step above the largest on become infinite.
  const double overflow = range.largest * (1 + std::ldexp(1.0, -range.mantissa_bits - 2));
  const FloatLimits limits{std::min(bits_from(overflow), kInfinite), bits_from(range.smallest_normal)};
  const Rounding rounding = rounding_of(precision);
  FloatCounts counts;
  Exponents exponents{};
  std::int64_t counted = 0;
  const auto flush = [&] {
    for (auto& table : exponents)
      for (std::size_t biased = 1; biased < 255; ++biased)
        count.exponents[biased - 127 - kSmallestExponent] += std::exchange(table[biased], 0);
    counted = 0;
  };
  for_chunks(values, [&](const float* chunk, std::size_t n) {
    std::array<std::uint32_t, kChunk> bits;
    std::array<float, kChunk> rounded;
    std::memcpy(bits.data(), chunk, n * sizeof(float));
    round_array(chunk, rounded.data(), n, rounding);
    add_chunk(chunk, rounded.data(), n, limits, counts);
    count.beyond += counts.beyond;
    count.vanishing += counts.vanishing;
    count.nonzero += counts.nonzero;
    if (counts.subnormal > 0) add_subnormals(bits.data(), n, count);
    if (counted > (std::int64_t{1} << 30)) flush();
    add_exponents(bits.data(), n, exponents);
    counted += static_cast<std::int64_t>(n);
  });
  flush();
  count.largest = std::max(count.largest, static_cast<double>(std::bit_cast<float>(counts.largest)));
  if (counts.smallest != kMagnitude)
    count.smallest_vanishing =
        std::min(count.smallest_vanishing, static_cast<double>(std::bit_cast<float>(counts.smallest)));
  count.sum += total(counts.sum);
  count.inside_error += total(counts.inside);
  count.outside_error += total(counts.outside);
}

void count_integers(std::span<const float> values, float scale, RangeCount& count) {
  for (const float v : values) {
    const double x = std::abs(static_cast<double>(v));
    if (x == 0 || std::isnan(x)) continue;
    ++count.nonzero;
    count.largest = std::max(count.largest, x);
    if (std::isfinite(x)) {
      count.sum += x;
      ++count.exponents[static_cast<std::size_t>(exponent_of(v) - kSmallestExponent)];
    }
    const double error = x - scale * std::min(127.0, std::nearbyint(x / scale));
    (x > 127.5 * scale ? count.outside_error : count.inside_error) += error * error;
    if (x > 127.5 * scale) ++count.clipped;
    if (x < 0.5 * scale) ++count.coarse;
  }
}

}  // namespace

void count_range(const Tensor& given, Precision precision, float scale, RangeCount& count) {
  if (given.type() != DataType::kFloat32) return;
  const Tensor values = given.in_memory();
  count.total += values.size();
  scale > 0 ? count_integers(values.values<float>(), scale, count)
            : count_floats(values.values<float>(), precision, count);
  MappedFile::release(values.raw(), values.bytes());
}

double step_at(double value, int mantissa_bits) {
  return value > 0 ? std::ldexp(1.0, std::ilogb(value) - mantissa_bits) : 0;
}

namespace {

/// As FloatCounts.
struct SumCounts {
  std::int32_t cancelled = 0;
  std::array<std::int32_t, 2> swallows{}, absent{};
  Lanes cancelled_large{}, cancelled_small{}, swallowed_large{}, swallowed_small{};
};

/// `steps`: kSteps steps of the type at 1. REQUIRES: whole rows of kLanes.
ULPSCOPE_VECTOR_CLONES void add_sums(const float* a, const float* b, const float* y, std::size_t n, double steps,
                                     SumCounts& counts) {
  Lanes cancelled_large = counts.cancelled_large, cancelled_small = counts.cancelled_small;
  Lanes swallowed_large = counts.swallowed_large, swallowed_small = counts.swallowed_small;
  Counts cancelled{}, swallows_a{}, swallows_b{}, absent_a{}, absent_b{};
  for (std::size_t i = 0; i < n; i += kLanes) {
    Counts of_a, of_b, of_y;  // Magnitudes are in the order of their bits.
    std::memcpy(&of_a, a + i, sizeof of_a);
    std::memcpy(&of_b, b + i, sizeof of_b);
    std::memcpy(&of_y, y + i, sizeof of_y);
    of_a &= static_cast<int>(kMagnitude);
    of_b &= static_cast<int>(kMagnitude);
    of_y &= static_cast<int>(kMagnitude);
    constexpr int kLimit = static_cast<int>(kInfinite);
    const Counts finite = (of_a < kLimit) & (of_b < kLimit) & (of_y < kLimit), first = of_a >= of_b;
    const Counts most = finite & (first ? of_a : of_b), least = finite & (first ? of_b : of_a);
    const auto large = reinterpret_cast<Floats>(most), small = reinterpret_cast<Floats>(least);
    const auto result = reinterpret_cast<Floats>(of_y & finite);
    // Exact zeros cancel without a loss when both operands are the same number.
    const Counts cancels = large > kCancels * result;
    const auto wide = __builtin_convertvector(large, Lanes), wide_small = __builtin_convertvector(small, Lanes);
    const auto power = reinterpret_cast<Lanes>(reinterpret_cast<WideBits>(wide) & 0x7ff0000000000000u);
    const Counts lost = __builtin_convertvector(wide_small < power * steps, Counts);
    const Counts swallows = (least > 0) & (large > kCancels * small) & lost & ~cancels;
    absent_a -= finite & (of_a == 0);
    absent_b -= finite & (of_b == 0);
    cancelled -= cancels;
    swallows_a -= swallows & first;
    swallows_b -= swallows & ~first;
    cancelled_large += __builtin_convertvector(reinterpret_cast<Floats>(most & cancels), Lanes);
    cancelled_small += __builtin_convertvector(reinterpret_cast<Floats>(of_y & cancels), Lanes);
    swallowed_large += __builtin_convertvector(reinterpret_cast<Floats>(most & swallows), Lanes);
    swallowed_small += __builtin_convertvector(reinterpret_cast<Floats>(least & swallows), Lanes);
  }
  counts.cancelled = total(cancelled);
  counts.swallows = {total(swallows_a), total(swallows_b)};
  counts.absent = {total(absent_a), total(absent_b)};
  counts.cancelled_large = cancelled_large;
  counts.cancelled_small = cancelled_small;
  counts.swallowed_large = swallowed_large;
  counts.swallowed_small = swallowed_small;
}

/// `from`, with what counts as nothing behind it, as whole rows of kLanes.
const float* whole_rows(const float* from, std::size_t n, std::array<float, kChunk>& copy) {
  if (n % kLanes == 0) return from;
  std::copy_n(from, n, copy.begin());
  std::fill(copy.begin() + static_cast<std::ptrdiff_t>(n), copy.end(), std::numeric_limits<float>::quiet_NaN());
  return copy.data();
}

}  // namespace

void count_sums(const Tensor& a, const Tensor& b, const Tensor& out, Precision precision, SumCount& count) {
  if (a.type() != DataType::kFloat32 || b.type() != DataType::kFloat32 || out.type() != DataType::kFloat32) return;
  const double steps = std::ldexp(kSteps, -range_of(precision).mantissa_bits);
  BroadcastElements of_a(a, out.shape()), of_b(b, out.shape());
  const std::span<const float> results = out.values<float>();
  SumCounts counts;
  for (std::size_t begin = 0; begin < results.size(); begin += kChunk) {
    const std::size_t n = std::min(kChunk, results.size() - begin), rows = (n + kLanes - 1) / kLanes * kLanes;
    std::array<float, kChunk> x, y, z;
    add_sums(whole_rows(of_a.next(n), n, x), whole_rows(of_b.next(n), n, y), whole_rows(results.data() + begin, n, z),
             rows, steps, counts);
    count.cancelled.count += counts.cancelled;
    for (std::size_t k = 0; k < 2; ++k) {
      count.swallows[k] += counts.swallows[k];
      count.swallowed.count += counts.swallows[k];
      count.absent[k] += counts.absent[k];
    }
  }
  count.total += static_cast<std::int64_t>(results.size());
  count.cancelled.large += total(counts.cancelled_large);
  count.cancelled.small += total(counts.cancelled_small);
  count.swallowed.large += total(counts.swallowed_large);
  count.swallowed.small += total(counts.swallowed_small);
}

}  // namespace ulpscope
