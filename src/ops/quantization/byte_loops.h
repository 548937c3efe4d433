// Arithmetic on 8-bit integers that stand for real numbers, with the bits of ONNX Runtime's kernels (of those for AVX2
// and later, where they fuse a multiplication and an addition).
#pragma once

#include <array>
#include <cmath>
#include <cstdint>

#include "ops/window.h"
#include "ulpscope/shape.h"

namespace ulpscope::ops {

/// real number = scale * (integer - zero).
struct ByteScale {
  float scale = 1;
  std::int32_t zero = 0;

  float real(std::int32_t integer) const { return scale * static_cast<float>(integer - zero); }
  bool operator==(const ByteScale&) const = default;
};

/// Whether bytes are int8.
enum class ByteSign : std::uint8_t { kUnsigned, kSigned };

/// The nearest integer of `sign` to a real number that has been divided by its scale; ties to even. `zero` is added
/// before the rounding.
std::int32_t nearest_byte(float ratio, std::int32_t zero, ByteSign sign);

/// QLinearAdd and QLinearMul.
struct ByteArithmetic {
  bool multiplies;
  ByteSign sign;
  ByteScale a, b, out;
};
/// NumPy's broadcasting; all dense.
void run_byte_arithmetic(const ByteArithmetic& form, const void* a, const Shape& a_shape, const void* b,
                         const Shape& b_shape, void* out, const Shape& out_shape);

/// What becomes of each byte, by its bits.
using ByteTable = std::array<std::uint8_t, 256>;
/// function(real number) as a byte again, where the zero point is added to the rounded ratio.
template <typename Function>
ByteTable make_byte_table(ByteSign sign, const ByteScale& in, const ByteScale& out, const Function& function) {
  ByteTable table;
  for (std::int32_t i = 0; i < 256; ++i) {
    const std::int32_t integer = sign == ByteSign::kSigned ? static_cast<std::int8_t>(i) : i;
    const float ratio = std::nearbyint(function(in.real(integer)) / out.scale);
    table[static_cast<std::size_t>(i)] = static_cast<std::uint8_t>(nearest_byte(ratio, out.zero, sign));
  }
  return table;
}
void look_up_bytes(const ByteTable& table, const void* in, std::int64_t count, void* out);

/// Softmax of bytes along the middle one of three dimensions, as QLinearSoftmax has it: the powers of e come from a
/// table whose largest leaves room for their sum in float32, which is added up in order.
void softmax_bytes(ByteSign sign, float in_scale, const ByteScale& out_scale, const void* in,
                   const std::array<std::int64_t, 3>& sizes, void* out);

/// The mean over all positions, as QLinearGlobalAveragePool has it. `in`: [batch, channels, positions], or with
/// `channels_last` [batch, positions, channels]. `out`: [batch, channels].
void average_bytes(ByteSign sign, const ByteScale& in_scale, const ByteScale& out_scale, const void* in,
                   const std::array<std::int64_t, 3>& sizes, bool channels_last, void* out);

/// The means of windows, as QLinearAveragePool has them: of real numbers, in float32 in the order of the window. Pads
/// count with `include_pad`. In and out: [batch, channels, positions...], or with `channels_last` the latter innermost.
struct ByteWindows {
  std::int64_t batch, channels;
  Window3 windows;
  bool include_pad;
};
void average_windows(ByteSign sign, const ByteScale& in_scale, const ByteScale& out_scale, const ByteWindows& form,
                     const void* in, bool channels_last, void* out);

/// `outer` rows of `width` bytes, in another scale: a row every `out_stride` bytes.
void place_bytes(ByteSign sign, const ByteScale& in_scale, const ByteScale& out_scale, const void* in,
                 std::int64_t outer, std::int64_t width, std::uint8_t* out, std::int64_t out_stride);

/// Sums of bytes as a real number again: round(sum * scale) + zero, saturated; ties to even, and NaN counts as 0.
std::int32_t requantized(std::int32_t sum, float scale, std::int32_t zero, ByteSign sign);

}  // namespace ulpscope::ops
