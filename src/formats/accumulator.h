// How a tensor core adds up products: sums that are cut where an exact one would be rounded. The rules are those by
// which tests/truth/accumulators has every bit that a Hopper GPU computed; the same model was published as T-FDPA
// (arXiv 2511.10909).
#pragma once

#include <cstdint>
#include <optional>

#include "formats/numeric_format.h"

namespace ulpscope {

/// `--accumulation`: what products of fp8, fp16 and bf16 operands are added up in. Others always are in float32.
enum class Accumulation : std::uint8_t {
  kFP32,        ///< Exact products, a float32 sum.
  kHopper,      ///< As cuBLASLt does on Hopper, fast accumulation off.
  kHopperFast,  ///< The same with fast accumulation, which concerns fp8 alone.
};

/// One step takes `step` products and the sum so far. All are cut toward zero at 2^(e - fraction), where e is the
/// largest exponent among them (of a product: the exponents of its operands added up, where a subnormal operand has
/// that of the smallest normal number); the cut terms are added exactly, and what comes out is cut toward zero to so
/// many significant `bits`. Steps follow the order of k.
struct Accumulator {
  int step;
  int fraction;
  int bits;
  /// After so many products the sum is added to another one, in float32 (to nearest), and starts again at 0; 0: never.
  int restart;
  int smallest_a, smallest_b;  ///< The exponents of the operands' smallest normal numbers.
  friend bool operator==(const Accumulator&, const Accumulator&) = default;
};

/// Of products of two operands in these formats; nothing: float32.
std::optional<Accumulator> accumulator_of(Accumulation accumulation, Format a, Format b) noexcept;

/// The sum over k of a[k] * b[k], operands that the formats of the accumulator hold, as float32. Where an infinity or
/// NaN is among them, what float32 would give.
float sum_of_products(const Accumulator& accumulator, const float* a, const float* b, std::int64_t k) noexcept;

/// out(m, n) = a(m, k) times the transpose of b(n, k), all dense; on all threads.
void multiply_rows(const Accumulator& accumulator, const float* a, const float* b, float* out, std::int64_t m,
                   std::int64_t n, std::int64_t k);

}  // namespace ulpscope
