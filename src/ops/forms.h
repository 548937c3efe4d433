// What backends may know of operators that run by themselves: their forms, for those that have a fast path.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "graph/network.h"
#include "ops/window.h"

namespace ulpscope::ops {

/// Weights that slide over spatial dimensions: Conv and ConvTranspose.
bool is_convolution(const Layer& layer);
bool is_transposed_convolution(const Layer& layer);
bool is_resize(const Layer& layer);
/// Cast and CastLike: another type of the same values.
bool is_cast(const Layer& layer);
bool is_quantize(const Layer& layer);
bool is_dequantize(const Layer& layer);

/// A product of 8-bit integers with zero points: x, by weights.
struct IntegerProductForm {
  bool convolution = false;  ///< Else of matrices.
  /// Of 8 bits again, or float32 where there is no scale for that; else the sums in int32.
  bool quantized = false;
  int weights = 1, zero = 2, weights_zero = 3;        ///< Which inputs they are, and of quantized ones:
  int scale = 1, weights_scale = 4;                   ///< of x and of the weights,
  int out_scale = 6, out_zero = 7, bias = 8;          ///< of the results, and what is added to the sums.
  bool transpose = false, transpose_weights = false;  ///< x and the weights, of matrices.
  float factor = 1;                                   ///< Of the results.
};
/// MatMulInteger, QLinearMatMul, ConvInteger, QLinearConv and QGemm; nothing for other layers.
std::optional<IntegerProductForm> integer_product_form(const Layer& layer);

/// Layers of bytes with one scale each, of com.microsoft.
enum class ByteLayer : std::uint8_t { kAdd, kMul, kSigmoid, kLeakyRelu, kGlobalAveragePool, kAveragePool, kConcat };
/// Nothing for other layers, and for pools that say that their channels are last.
std::optional<ByteLayer> byte_layer(const Layer& layer);

/// Input 0's elements in their order, under another shape or name. `values`: per input, null where it is not known.
bool is_view(const Layer& layer, std::span<const Tensor* const> values);

/// The axis, in [0, rank), along which the inputs are laid side by side. Nothing: the layer does not do that.
std::optional<std::int64_t> concatenation_axis(const Layer& layer, std::int64_t rank);

/// The axis, in [0, rank of input 0), along which input 1 picks slices of input 0 (Gather).
std::optional<std::int64_t> gather_axis(const Layer& layer, std::int64_t rank);
/// Input 0 says for each element whether it is that of input 1 or of input 2.
bool is_where(const Layer& layer);
/// Says for each element whether it is not a number (IsNaN).
bool is_nan_test(const Layer& layer);
/// Elements are put around input 0, copies of its own or of a constant.
bool is_pad(const Layer& layer);
bool is_top_k(const Layer& layer);
bool is_arg_max(const Layer& layer);
bool is_arg_min(const Layer& layer);
/// Every element of the result is one of input 0, chosen by the shapes and parameters alone: Resize in mode nearest.
bool is_nearest_resize(const Layer& layer);

/// Elements of input 0: per dimension, every `step`-th (0: the same) from `begin` on.
struct Cut {
  std::vector<std::int64_t> begin, step;
};
/// What a Slice takes of an input of this shape. `values`: per input, null where it is not known. Nothing: another
/// layer, or one whose starts, ends, axes or steps are not known.
std::optional<Cut> cut_of_slice(const Layer& layer, const Shape& input, std::span<const Tensor* const> values);
/// The axis, in [0, rank), along which the outputs of a Split are laid side by side. Nothing for other layers.
std::optional<std::int64_t> split_axis(const Layer& layer, std::int64_t rank);

/// The permutation of a Transpose of this rank; nothing for other layers.
std::optional<std::vector<std::int64_t>> permutation(const Layer& layer, std::int64_t rank);

enum class PoolForm : std::uint8_t { kMax, kAverageIncludingPads, kAverageExcludingPads };
struct Pooling {
  PoolForm form;
  WindowGeometry windows;
};
/// A window's maximum or mean. Nothing: no pooling, or means over pads of windows that reach beyond these.
std::optional<Pooling> pooling_of(const Layer& layer, const Shape& input);
/// The mean over all spatial positions of a rank-4 tensor, if the layer computes that over `row_dims` innermost ones.
bool is_spatial_mean(const Layer& layer, std::int64_t rank, int row_dims);

/// One axis of Resize: position `at` of the output is the sum over k of weight[at, k] times position index[at, k] of
/// the input, in the order of k; weights of 0 do not count.
struct ResampledAxis {
  std::int64_t axis = 0, taps = 1;
  Tensor index;   ///< int32 [output, taps].
  Tensor weight;  ///< float32, likewise.
};
/// Resize and Upsample of floats: the sums of the last axis first, all in float32; with mode nearest one tap of
/// weight 1. Without axes that stay as they are. `values`: per input, null where it is not known. Nothing for other
/// layers, for parameters that are not known, and for regions that reach out of the input.
std::optional<std::vector<ResampledAxis>> resampled_axes(const Layer& layer, const Shape& input,
                                                         std::span<const Tensor* const> values);

/// Parameters after input 0 are one value per channel (dimension 1), not broadcast from the right.
bool has_channel_parameters(const Layer& layer);

/// Input `input` is added to scores of which the layer takes the softmax: the mask of Attention.
bool is_mask_operand(const Layer& layer, std::size_t input);

/// A product of matrices, and what is done to its operands: alpha a' b' + beta c.
struct MatrixForm {
  bool transpose_a = false, transpose_b = false;
  float alpha = 1, beta = 1;
  bool plain = true;  ///< MatMul: batches broadcast; else Gemm: two matrices, and an addend (input 2).
};
std::optional<MatrixForm> matrix_form(const Layer& layer);

}  // namespace ulpscope::ops
