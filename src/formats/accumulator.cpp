#include "formats/accumulator.h"

#include <algorithm>
#include <bit>
#include <cstdlib>

#include "core/parallel.h"

namespace ulpscope {
namespace {

constexpr int kNothing = -1 << 20;  ///< The exponent of zero.

int exponent_of(float value, int smallest) noexcept {
  const std::uint32_t magnitude = std::bit_cast<std::uint32_t>(value) & 0x7fffffffu;
  return magnitude == 0 ? kNothing : std::max(static_cast<int>(magnitude >> 23) - 127, smallest);
}

bool is_finite(float value) noexcept { return (std::bit_cast<std::uint32_t>(value) & 0x7f800000u) != 0x7f800000u; }

double two_to_the(int exponent) noexcept {
  return std::bit_cast<double>(static_cast<std::uint64_t>(exponent + 1023) << 52);
}

int exponent_of(double value) noexcept {
  return value == 0 ? kNothing : static_cast<int>(std::bit_cast<std::uint64_t>(value) >> 52 & 0x7ff) - 1023;
}

/// The sum after one more step of `count` products.
double add_step(const Accumulator& accumulator, double sum, const float* a, const float* b, int count) noexcept {
  int largest = exponent_of(sum);
  for (int i = 0; i < count; ++i)
    largest = std::max(largest, exponent_of(a[i], accumulator.smallest_a) + exponent_of(b[i], accumulator.smallest_b));
  if (largest < kNothing / 2) return 0;
  const int unit = largest - accumulator.fraction;
  const double scale = two_to_the(-unit);
  // A cut term is below 2^(fraction + 2) <= 2^27 of these units: its conversion to an integer is the cut.
  std::int64_t total = static_cast<std::int64_t>(sum * scale);
  for (int i = 0; i < count; ++i)
    total += static_cast<std::int32_t>(static_cast<double>(a[i]) * static_cast<double>(b[i]) * scale);
  const auto magnitude = static_cast<std::uint64_t>(std::abs(total));
  const int dropped = std::max(0, static_cast<int>(std::bit_width(magnitude)) - accumulator.bits);
  const double kept = static_cast<double>(magnitude >> dropped << dropped) * two_to_the(unit);
  return total < 0 ? -kept : kept;
}

float sum_in_floats(const float* a, const float* b, std::int64_t k) noexcept {
  float sum = 0;
  for (std::int64_t i = 0; i < k; ++i) sum += a[i] * b[i];
  return sum;
}

}  // namespace

std::optional<Accumulator> accumulator_of(Accumulation accumulation, Format a, Format b) noexcept {
  if (accumulation == Accumulation::kFP32) return std::nullopt;
  const auto is_fp8 = [](Format format) { return format == Format::kFloat8E4M3 || format == Format::kFloat8E5M2; };
  const int smallest_a = format_of(a).min_exponent(), smallest_b = format_of(b).min_exponent();
  if (is_fp8(a) && is_fp8(b))
    return Accumulator{.step = 32,
                       .fraction = 13,
                       .bits = 14,
                       .restart = accumulation == Accumulation::kHopper ? 128 : 0,
                       .smallest_a = smallest_a,
                       .smallest_b = smallest_b};
  if (a == b && (a == Format::kFloat16 || a == Format::kBFloat16))
    return Accumulator{
        .step = 16, .fraction = 25, .bits = 24, .restart = 0, .smallest_a = smallest_a, .smallest_b = smallest_b};
  return std::nullopt;
}

float sum_of_products(const Accumulator& accumulator, const float* a, const float* b, std::int64_t k) noexcept {
  if (!std::all_of(a, a + k, is_finite) || !std::all_of(b, b + k, is_finite)) return sum_in_floats(a, b, k);
  const std::int64_t piece = accumulator.restart == 0 ? k : accumulator.restart;
  float result = 0;
  for (std::int64_t begin = 0; begin < k; begin += piece) {
    const std::int64_t end = std::min(begin + piece, k);
    double sum = 0;
    for (std::int64_t at = begin; at < end; at += accumulator.step)
      sum = add_step(accumulator, sum, a + at, b + at,
                     static_cast<int>(std::min<std::int64_t>(accumulator.step, end - at)));
    result += static_cast<float>(sum);
  }
  return result;
}

void multiply_rows(const Accumulator& accumulator, const float* a, const float* b, float* out, std::int64_t m,
                   std::int64_t n, std::int64_t k) {
  const std::int64_t rows = std::max<std::int64_t>(1, (std::int64_t{1} << 14) / std::max<std::int64_t>(1, n * k));
  parallel_each(m, rows, [&](std::int64_t i) {
    for (std::int64_t j = 0; j < n; ++j) out[i * n + j] = sum_of_products(accumulator, a + i * k, b + j * k, k);
  });
}

}  // namespace ulpscope
