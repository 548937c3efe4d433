// What is in front of products of 8-bit integers with zero points, and behind them: ConvInteger, QLinearConv,
// QLinearMatMul and QGemm.
#pragma once

#include <memory>
#include <vector>

#include "backend/cpu/layer_kernels.h"
#include "backend/cpu/product.h"

namespace ulpscope::cpu {

/// Of an image [n, c, ...], also where it has no channels.
inline std::int64_t positions_of(const Shape& image) { return num_elements(Shape(image.begin() + 2, image.end())); }

/// Bytes in the other layout, where they come from; rank 3 or 4.
std::unique_ptr<Kernel> make_byte_reorder_kernel(const Shape& shape, Layout to);
/// Inputs of the kernel: bytes [n, c, spatial...] in this layout, and their zero point (one element; null: 0). Output:
/// int16 [n, spatial..., c] without the zero point.
std::unique_ptr<Kernel> make_centering_kernel(const Shape& shape, Layout from);
/// The same inputs. Outputs: uint8 [n, spatial..., c], int8 plus 128, and the zero point likewise.
std::unique_ptr<Kernel> make_unsigned_kernel(const Shape& shape, Layout from);

/// A convolution of int16 as make_integer_convolution_kernel() has it, of as many groups as there are channels of the
/// input, each of one output: depthwise. REQUIRES: that the sums are less than 2^31.
std::unique_ptr<Kernel> make_depthwise_integer_kernel(const ConvolutionSpec& spec);

/// A depthwise convolution of bytes. Inputs of the kernel: x, int8 or uint8, channels last, and its zero point (one
/// element; null or absent: 0), which is there outside of the image. spec.weights as above. Output: what `form` says,
/// channels last. Nothing where there are no products of integers.
std::unique_ptr<Kernel> make_depthwise_bytes_kernel(const ConvolutionSpec& spec, const Requantization& form,
                                                    bool is_signed);

/// Input of the kernel: int32 [rows, channels]. Output: float32, before anything makes bytes of it.
std::unique_ptr<Kernel> make_scaling_kernel(std::int64_t rows, Requantization form);
/// Input of the kernel: int32 [outer, inner, channels]. Output: int32 [outer, channels, inner].
std::unique_ptr<Kernel> make_channels_first_kernel(std::int64_t outer, std::int64_t inner, std::int64_t channels);

/// Maxima of bytes, channels last.
std::unique_ptr<Kernel> make_byte_max_pool_kernel(const PoolSpec& spec, bool is_signed);

}  // namespace ulpscope::cpu
