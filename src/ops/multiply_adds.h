// How many products layers add up (OpDef::multiply_adds).
#pragma once

#include "ops/common.h"

namespace ulpscope::ops {

/// For every element of the output, a row of input 0.
double multiply_adds_of_matmul(const Layer& layer, std::span<const Shape* const> inputs, const Shape& output);
double multiply_adds_of_gemm(const Layer& layer, std::span<const Shape* const> inputs, const Shape& output);
double multiply_adds_of_fused_matmul(const Layer& layer, std::span<const Shape* const> inputs, const Shape& output);
/// For every element of the output, one filter; of the input, for ConvTranspose.
double multiply_adds_of_conv(const Layer& layer, std::span<const Shape* const> inputs, const Shape& output);
double multiply_adds_of_qlinear_conv(const Layer& layer, std::span<const Shape* const> inputs, const Shape& output);
double multiply_adds_of_conv_transpose(const Layer& layer, std::span<const Shape* const> inputs, const Shape& output);
/// For every step of every sequence, every weight.
double multiply_adds_of_recurrent(const Layer& layer, std::span<const Shape* const> inputs, const Shape& output);

}  // namespace ulpscope::ops
