// What is in front of products of 8-bit integers with zero points, and behind them: ConvInteger, QLinearConv and
// QLinearMatMul.
#pragma once

#include <memory>
#include <vector>

#include "backend/cpu/product.h"

namespace ulpscope::cpu {

/// Inputs of the kernel: bytes [n, c, spatial...], and their zero point (one element; null: 0). Output: int16
/// [n, spatial..., c] without the zero point.
std::unique_ptr<Kernel> make_centering_kernel(const Shape& shape);
/// The same inputs. Outputs: uint8 [n, spatial..., c], int8 plus 128, and the zero point likewise.
std::unique_ptr<Kernel> make_unsigned_kernel(const Shape& shape);

/// A convolution of int16 as make_integer_convolution_kernel() has it, of as many groups as there are channels of the
/// input, each of one output: depthwise. REQUIRES: that the sums are less than 2^31.
std::unique_ptr<Kernel> make_depthwise_integer_kernel(const ConvolutionSpec& spec);

/// How sums become bytes: round(sum * scale) + zero, saturated; ties to even, and NaN counts as 0.
struct Requantization {
  DataType type = DataType::kUndefined;  ///< int8 or uint8.
  std::vector<double> scales;            ///< One per channel.
  std::vector<std::int32_t> bias;        ///< One per channel; added to the sums, which wrap around.
  std::int32_t zero = 0;
};

/// Input of the kernel: int32 [outer, inner, channels]. Output: bytes, with `channels_first` [outer, channels, inner].
std::unique_ptr<Kernel> make_requantizing_kernel(std::int64_t outer, std::int64_t inner, Requantization form,
                                                 bool channels_first);
/// Input of the kernel: int32 [outer, inner, channels]. Output: int32 [outer, channels, inner].
std::unique_ptr<Kernel> make_channels_first_kernel(std::int64_t outer, std::int64_t inner, std::int64_t channels);

}  // namespace ulpscope::cpu
