#include "formats/rounding.h"

#include <cmath>
#include <cstring>

#include "core/instruction_set.h"
#include "core/vector_clones.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace ulpscope {

float round_to_odd(double value) noexcept {
  const float nearest = static_cast<float>(value);
  if (std::isnan(value) || static_cast<double>(nearest) == value) return nearest;
  std::uint32_t bits = std::bit_cast<std::uint32_t>(nearest);
  // Step back to the neighbor nearer to zero, then set the last bit.
  if (std::fabs(static_cast<double>(nearest)) > std::fabs(value)) --bits;
  return std::bit_cast<float>(bits | 1u);
}

Rounding rounding_of(DataType type) noexcept {
  switch (type) {
    case DataType::kFloat16:
      return Rounding::kF16;
    case DataType::kBFloat16:
      return Rounding::kBF16;
    default:
      return Rounding::kNone;
  }
}

DataType narrow_type(Rounding rounding) noexcept {
  if (rounding == Rounding::kF16) return DataType::kFloat16;
  return rounding == Rounding::kBF16 ? DataType::kBFloat16 : DataType::kUndefined;
}

float round_value(float value, Rounding rounding) noexcept {
  switch (rounding) {
    case Rounding::kNone:
      return value;
    case Rounding::kF16:
      return round_to_f16(value);
    case Rounding::kBF16:
      return round_to_bf16(value);
    case Rounding::kTF32:
      return round_to_tf32(value);
  }
  round_array(&value, &value, 1, rounding);
  return value;
}

namespace {

void narrow_portable(const float* in, std::uint16_t* out, std::size_t count) noexcept {
  for (std::size_t i = 0; i < count; ++i) out[i] = f16_bits(in[i]);
}

void widen_portable(const std::uint16_t* in, float* out, std::size_t count) noexcept {
  for (std::size_t i = 0; i < count; ++i) out[i] = f16_value(in[i]);
}

void round_f16_portable(const float* in, float* out, std::size_t count) noexcept {
  for (std::size_t i = 0; i < count; ++i) out[i] = round_to_f16(in[i]);
}

#if defined(__x86_64__)
__attribute__((target("avx512f"))) void round_f16_avx512(const float* in, float* out, std::size_t count) noexcept {
  std::size_t i = 0;
  for (; i + 16 <= count; i += 16) {
    const __m256i half = _mm512_cvtps_ph(_mm512_loadu_ps(in + i), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    _mm512_storeu_ps(out + i, _mm512_cvtph_ps(half));
  }
  for (; i < count; ++i) out[i] = round_to_f16(in[i]);
}

// The instructions have their own way with the bits of a NaN: such blocks are left to the portable functions.
__attribute__((target("avx2,f16c"))) void narrow_avx2(const float* in, std::uint16_t* out, std::size_t count) noexcept {
  std::size_t i = 0;
  for (; i + 8 <= count; i += 8) {
    const __m256 x = _mm256_loadu_ps(in + i);
    if (_mm256_movemask_ps(_mm256_cmp_ps(x, x, _CMP_UNORD_Q)) != 0)
      narrow_portable(in + i, out + i, 8);
    else
      _mm_storeu_si128(reinterpret_cast<__m128i*>(out + i),
                       _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  }
  narrow_portable(in + i, out + i, count - i);
}

__attribute__((target("avx2,f16c"))) void widen_avx2(const std::uint16_t* in, float* out, std::size_t count) noexcept {
  std::size_t i = 0;
  for (; i + 8 <= count; i += 8) {
    const __m256 x = _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(in + i)));
    if (_mm256_movemask_ps(_mm256_cmp_ps(x, x, _CMP_UNORD_Q)) != 0)
      widen_portable(in + i, out + i, 8);
    else
      _mm256_storeu_ps(out + i, x);
  }
  widen_portable(in + i, out + i, count - i);
}

__attribute__((target("avx2,f16c"))) void round_f16_avx2(const float* in, float* out, std::size_t count) noexcept {
  std::size_t i = 0;
  for (; i + 8 <= count; i += 8) {
    const __m128i half = _mm256_cvtps_ph(_mm256_loadu_ps(in + i), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    _mm256_storeu_ps(out + i, _mm256_cvtph_ps(half));
  }
  for (; i < count; ++i) out[i] = round_to_f16(in[i]);
}
#endif

using RoundFunction = void (*)(const float*, float*, std::size_t) noexcept;

RoundFunction choose_f16() noexcept {
#if defined(__x86_64__)
  if (instruction_set() >= InstructionSet::kAvx512) return round_f16_avx512;
  if (instruction_set() >= InstructionSet::kAvx2) return round_f16_avx2;
#endif
  return round_f16_portable;
}

// Integer arithmetic and not vcvtneps2bf16, which flushes subnormals.
template <int kept>
ULPSCOPE_VECTOR_CLONES void round_fraction_array(const float* in, float* out, std::size_t count) noexcept {
  for (std::size_t i = 0; i < count; ++i) {
    std::uint32_t bits;
    std::memcpy(&bits, in + i, 4);
    constexpr int kDropped = 23 - kept;
    const std::uint32_t rounded =
        (bits + ((1u << (kDropped - 1)) - 1u) + ((bits >> kDropped) & 1u)) & ~((1u << kDropped) - 1u);
    const std::uint32_t result = (bits & 0x7fffffffu) > 0x7f800000u ? ((bits | 0x00400000u)) : rounded;
    std::memcpy(out + i, &result, 4);
  }
}

/// Rounding to a float format with a sign and a largest value below 2^100, by the addition of a number whose last bit
/// is the format's.
struct RoundingStep {
  explicit RoundingStep(const NumericFormat& f, bool saturate) noexcept
      : smallest_exponent(static_cast<std::uint32_t>(f.min_exponent() + 127) << 23),
        shift(static_cast<std::uint32_t>(23 - f.mantissa_bits) << 23),
        largest(static_cast<float>(f.largest())),
        overflow(saturate || !f.has_nan() ? largest
                 : f.has_infinity()       ? INFINITY
                                          : NAN),
        nan(f.has_nan() ? NAN : -0.0f),
        sign_of_zero(f.specials == Specials::kNanAsZero ? 0 : 0x80000000u),
        sign_of_nan(f.has_nan() && f.specials != Specials::kNanAsZero ? 0x80000000u : 0) {}

  std::uint32_t smallest_exponent, shift;
  float largest, overflow, nan;
  std::uint32_t sign_of_zero, sign_of_nan;
};

ULPSCOPE_VECTOR_CLONES void round_small(const float* in, float* out, std::size_t count,
                                        const RoundingStep& step) noexcept {
  const RoundingStep s = step;
  for (std::size_t i = 0; i < count; ++i) {
    std::uint32_t bits;
    std::memcpy(&bits, in + i, 4);
    const std::uint32_t sign = bits & 0x80000000u;
    const bool is_nan = (bits & 0x7fffffffu) > 0x7f800000u;
    const float whole = std::fabs(in[i]), limit = 4 * s.largest;
    const float magnitude = whole < limit ? whole : limit;
    std::uint32_t exponent;
    std::memcpy(&exponent, &magnitude, 4);
    exponent &= 0x7f800000u;
    exponent = (exponent > s.smallest_exponent ? exponent : s.smallest_exponent) + s.shift;
    float last_bit;
    std::memcpy(&last_bit, &exponent, 4);
    const float rounded = (magnitude + last_bit) - last_bit;
    const float bounded = rounded > s.largest ? s.overflow : rounded;
    const float value = is_nan ? s.nan : bounded;
    std::uint32_t result;
    std::memcpy(&result, &value, 4);
    const bool not_a_number = (result & 0x7fffffffu) > 0x7f800000u;
    result |= sign & (is_nan || not_a_number ? s.sign_of_nan : result == 0 ? s.sign_of_zero : 0x80000000u);
    std::memcpy(out + i, &result, 4);
  }
}

constexpr float kMagic = 0x1.8p23f;  // adding it leaves no room for a fraction

[[gnu::always_inline]] inline float bounded_quotient(float value, float scale, float low, float high) noexcept {
  float x = value / scale;
  x = x == x ? x : 0.0f;
  x = x < low ? low : x;
  return x > high ? high : x;
}

template <bool dequantize>
ULPSCOPE_VECTOR_CLONES void quantize_loop(const float* in, float* out, std::size_t count, float scale, float low,
                                          float high) noexcept {
  for (std::size_t i = 0; i < count; ++i) {
    const float q = (bounded_quotient(in[i], scale, low, high) + kMagic) - kMagic;
    out[i] = dequantize ? q * scale : q;
  }
}

ULPSCOPE_VECTOR_CLONES void quantize_bytes_loop(const float* in, std::uint8_t* out, std::size_t count, float scale,
                                                float low, float high) noexcept {
  for (std::size_t i = 0; i < count; ++i) {
    const float sum = bounded_quotient(in[i], scale, low, high) + kMagic;
    std::uint32_t bits;
    std::memcpy(&bits, &sum, 4);
    out[i] = static_cast<std::uint8_t>(bits);  // The last bits of the sum are those of the integer.
  }
}

#if defined(__x86_64__)
/// Compilers narrow by way of 16 bits, which takes as long as the rest. How many elements are done: all but the last
/// ones.
__attribute__((target("avx512f"))) std::size_t quantize_bytes_avx512(const float* in, std::uint8_t* out,
                                                                     std::size_t count, float scale, float low,
                                                                     float high) noexcept {
  const __m512 by = _mm512_set1_ps(scale), least = _mm512_set1_ps(low), most = _mm512_set1_ps(high);
  std::size_t i = 0;
  for (; i + 16 <= count; i += 16) {
    const __m512 x = _mm512_div_ps(_mm512_loadu_ps(in + i), by);
    const __m512 number = _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(x, x, _CMP_ORD_Q), x);
    const __m512 bounded = _mm512_min_ps(_mm512_max_ps(number, least), most);
    const __m512i integers = _mm512_cvt_roundps_epi32(bounded, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out + i), _mm512_cvtepi32_epi8(integers));
  }
  return i;
}
#endif

}  // namespace

void quantize_bytes(const float* in, std::uint8_t* out, std::size_t count, float scale, float low,
                    float high) noexcept {
  std::size_t done = 0;
#if defined(__x86_64__)
  if (instruction_set() >= InstructionSet::kAvx512) done = quantize_bytes_avx512(in, out, count, scale, low, high);
#endif
  quantize_bytes_loop(in + done, out + done, count - done, scale, low, high);
}

void narrow_to_f16(const float* in, std::uint16_t* out, std::size_t count) noexcept {
#if defined(__x86_64__)
  if (instruction_set() >= InstructionSet::kAvx2) return narrow_avx2(in, out, count);
#endif
  narrow_portable(in, out, count);
}

void widen_f16(const std::uint16_t* in, float* out, std::size_t count) noexcept {
#if defined(__x86_64__)
  if (instruction_set() >= InstructionSet::kAvx2) return widen_avx2(in, out, count);
#endif
  widen_portable(in, out, count);
}

ULPSCOPE_VECTOR_CLONES void narrow_to_bf16(const float* in, std::uint16_t* out, std::size_t count) noexcept {
  for (std::size_t i = 0; i < count; ++i) {
    std::uint32_t bits;
    std::memcpy(&bits, in + i, 4);
    const std::uint32_t rounded = bits + 0x7fffu + ((bits >> 16) & 1u);
    const std::uint32_t result = (bits & 0x7fffffffu) > 0x7f800000u ? bits | 0x00400000u : rounded;
    out[i] = static_cast<std::uint16_t>(result >> 16);
  }
}

ULPSCOPE_VECTOR_CLONES void quantize_columns(const float* in, float* out, std::size_t count, const float* scales,
                                             float low, float high) noexcept {
  for (std::size_t i = 0; i < count; ++i) {
    out[i] = (bounded_quotient(in[i], scales[i], low, high) + kMagic) - kMagic;
  }
}

ULPSCOPE_VECTOR_CLONES void max_magnitudes(const float* in, float* largest, std::size_t count) noexcept {
  for (std::size_t i = 0; i < count; ++i) {
    const float magnitude = std::fabs(in[i]);
    largest[i] = largest[i] < magnitude ? magnitude : largest[i];
  }
}

void quantize_array(const float* in, float* out, std::size_t count, float scale, float low, float high,
                    bool dequantize) noexcept {
  if (dequantize)
    quantize_loop<true>(in, out, count, scale, low, high);
  else
    quantize_loop<false>(in, out, count, scale, low, high);
}

void round_array(const float* in, float* out, std::size_t count, Rounding rounding) noexcept {
  static const RoundFunction round_f16 = choose_f16();
  switch (rounding) {
    case Rounding::kNone:
      if (in != out) std::memcpy(out, in, count * sizeof(float));
      return;
    case Rounding::kF16:
      return round_f16(in, out, count);
    case Rounding::kBF16:
      return round_fraction_array<7>(in, out, count);
    case Rounding::kTF32:
      return round_fraction_array<10>(in, out, count);
  }
  round_array(in, out, count, format_of(format_of(rounding)), {.saturate = saturates(rounding)});
}

void round_array(const float* in, float* out, std::size_t count, const NumericFormat& format,
                 Narrowing conversion) noexcept {
  if (format.is_signed && format.exponent_bits < 8)
    return round_small(in, out, count, RoundingStep(format, conversion.saturate));
  for (std::size_t i = 0; i < count; ++i)
    out[i] = static_cast<float>(decode(format, encode(format, static_cast<double>(in[i]), conversion)));
}

}  // namespace ulpscope
