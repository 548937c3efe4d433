// Matrix products and convolutions through oneDNN, or by our own loops in a build without it (without_onednn.cpp).
// Inputs and weights arrive rounded; products are exact in the accumulator's sense of fp32, and nothing is rounded on
// the way out.
#pragma once

#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "backend/kernel.h"
#include "backend/prepared_constants.h"
#include "backend/product_form.h"

namespace ulpscope::cpu {

/// "3.2.0"; empty: this build is without oneDNN.
std::string onednn_version();

/// With AVX-512, oneDNN's products have the same bits for every number of threads, but those of a long transposed `a`,
/// which make_reorder_kernel() is for; with less, it splits sums over threads. Our own loops never do.
bool products_depend_on_threads();

/// Keeps packed weights; WeightCache::source behind a function.
using ObjectCache = std::function<PreparedSource(const std::string& key, std::function<PreparedObject()> make)>;

/// What is done to each result before it is stored, in order, in fp32: folded into the product's own last pass. All of
/// them keep infinities and NaN.
struct PostOp {
  enum class Kind : std::uint8_t { kHardSwish, kAddTensor, kRelu, kClip } kind;
  // kAddTensor adds the next input of the kernel, of the output's shape and layout. kRelu and kClip are last, and for
  // kernels of ours alone: oneDNN's make a number of NaN.
  float p = 0, q = 0;  ///< Of kClip.

  bool is_bound() const { return kind == Kind::kRelu || kind == Kind::kClip; }
};

/// The last of these bounds results.
inline bool are_bounded(std::span<const PostOp> ops) { return !ops.empty() && ops.back().is_bound(); }

struct MatMulSpec : MatrixShape {
  /// The product takes only k_begin <= k < k_end of both operands; k_end 0: all of k.
  std::int64_t k_begin = 0, k_end = 0;
  ConstantSource constant_b;  ///< Rounded; empty: b is an input.
  /// float32, or the types of bytes (a: int8 or uint8, b: int8): the exact sums, rounded to float32 once. Without bias.
  DataType type_a = DataType::kFloat32, type_b = DataType::kFloat32;
  std::string key_b;  ///< Names constant_b with everything done to it.
  Tensor bias;        ///< If any, n elements.
  /// b is an input as panels: k rows of 64 columns, for each 64 columns; k and n are filled up with zeros to multiples
  /// of 16 and 64. That is how oneDNN packs; where it does not, there is no kernel.
  bool panels_b = false;
};

/// This processor has dot products of bytes that oneDNN multiplies by, and sums of so many products are exact.
bool multiplies_bytes(std::int64_t k);
/// oneDNN does so with AMX.
bool multiplies_in_tiles();

/// Float32 loses digits in sums of so many products: they are added in pieces of k.
bool is_long_sum(const MatMulSpec& spec);

/// Inputs of the kernel: a, b (unless constant). Output: dense [batch..., m, n]. Null only with panels_b.
std::unique_ptr<Kernel> make_matmul_kernel(const MatMulSpec& spec, const ObjectCache& cache);
/// The same for all but long sums.
std::unique_ptr<Kernel> make_short_matmul_kernel(const MatMulSpec& spec, const ObjectCache& cache);

/// How sums become bytes: (sum + bias) * scale + offset, within [least, most], is divided by `step`, rounded, ties to
/// even, and moved by `zero`, saturated; NaN counts as 0. Each operation is rounded to float32.
struct Requantization {
  DataType type = DataType::kUndefined;  ///< int8 or uint8; float32: the sums as they are, rounded once.
  std::vector<float> scales;             ///< One per channel.
  std::vector<std::int32_t> bias;        ///< One per channel, or none; sums wrap around.
  std::int32_t zero = 0;
  std::vector<float> offset = {};  ///< One per channel, or none. Then it and the scales are finite.
  float least = -std::numeric_limits<float>::infinity(), most = std::numeric_limits<float>::infinity();
  float step = 1;

  float low() const { return static_cast<float>((type == DataType::kInt8 ? -128 : 0) - zero); }
  float high() const { return static_cast<float>((type == DataType::kInt8 ? 127 : 255) - zero); }
};

struct ConvolutionSpec {
  Shape input, output;  ///< Logical, [n, c, spatial...] with one to three spatial dimensions.
  std::vector<std::int64_t> strides, dilations, pads_begin, pads_end;
  std::int64_t groups = 1;
  bool transposed = false;  ///< ConvTranspose: weights are [c_in, c_out / groups, kernel...].
  Shape kernel;             ///< Of the weights.
  /// Of the input: float32, or int8 or uint8 with weights in int8: the exact sums, rounded to float32 once. The latter
  /// only for a convolution of bytes that has neither bias nor post_ops and is not transposed.
  DataType type = DataType::kFloat32;
  ConstantSource weights;        ///< Rounded.
  Tensor bias;                   ///< Rounded; a transposed one has none, others may.
  std::string key;               ///< Names the weights and the bias with everything done to them.
  std::vector<PostOp> post_ops;  ///< None of a transposed one.
};

/// As many groups as there are channels, each of one output.
inline bool is_depthwise(const ConvolutionSpec& spec) {
  return !spec.transposed && spec.groups == spec.input[1] && spec.kernel[0] == spec.groups;
}

/// Inputs of the kernel: x, then one tensor per kAddTensor. All activations are channels last.
/// Nothing when there is no fast kernel for it; of bytes, none with instructions for them; with bounds, none that has
/// them. Over one or two dimensions.
std::unique_ptr<Kernel> make_convolution_kernel(const ConvolutionSpec& spec, const ObjectCache& cache);

/// Of those that add no tensor.
Instruction instruction_of(PostOp::Kind kind);
/// What follows a convolution, on `count` of its results in `output`, from `first` on. Tensors that are added are the
/// kernel's inputs 1, 2, ...
void apply_post_ops(std::span<const PostOp> ops, std::span<const Tensor* const> inputs, float* output,
                    std::int64_t first, std::int64_t count);

/// As make_convolution_kernel(), of every channel, or group of few, by itself. Every sum adds up the window in its
/// order, then the bias: the same bits for any number of threads. Nothing for other convolutions than those of float32
/// in groups of one input channel, or of 2, 4 or (where a vector has these) 8 that become as many.
std::unique_ptr<Kernel> make_depthwise_kernel(const ConvolutionSpec& spec, const ObjectCache& cache);

/// As make_convolution_kernel(), as products of matrices by our own loops, over one to three dimensions; for float32,
/// transposed ones too. What the windows of some outputs read is copied side by side, and multiplied by the weights.
/// Each result has the bits that ProductPart says, over the places of its window in their order and the channels of
/// each; what the window has outside of the image counts as zero, and as nothing where a weight is not finite. Nothing
/// for steps of a transposed one that are too long to be cut by.
std::unique_ptr<Kernel> make_patch_convolution_kernel(const ConvolutionSpec& spec, const ObjectCache& cache);

/// As make_convolution_kernel() of bytes, for processors without dot products of them: what the windows of some outputs
/// read is widened to 16 bits side by side, and multiplied by the weights (IntegerPart). Nothing for groups and
/// transposed ones, and where multiplies_integers() of the products in a sum is false.
/// Of the type int16, both the input and the weights are bytes less their zero points, in any groups, and the results
/// are the sums as int32, or bytes that `bytes` makes of them.
std::unique_ptr<Kernel> make_integer_convolution_kernel(const ConvolutionSpec& spec, const ObjectCache& cache,
                                                        std::optional<Requantization> bytes = std::nullopt);

/// The same by dot products of bytes. Inputs of the kernel: uint8 [n, spatial..., c], and its zero point, which is
/// there outside of the image. The weights are int16 that int8 holds, less their zero points. Nothing on other
/// processors. Of the types int8 and uint8, the weights are int8, there is no zero point, and the results are as those
/// of make_convolution_kernel().
std::unique_ptr<Kernel> make_byte_convolution_kernel(const ConvolutionSpec& spec, const ObjectCache& cache,
                                                     std::optional<Requantization> bytes = std::nullopt);

/// As make_matmul_kernel(), with weights that stay in the narrow type that their file has. Columns of the weights are
/// widened, block by block, into memory of the thread that multiplies them: no float32 copy
/// is kept, and every run reads half of the bytes. `weights`: a matrix [k, n], [n, k] if spec.transpose_b, float32 by
/// its type; rounded by `first` and `last`. The bits are those of make_matmul_kernel(). Nothing for weights that are
/// not stored as float16 or bfloat16, for products of more than two matrices, for long sums, and without AVX-512,
/// where oneDNN's sums depend on how a product is cut.
std::unique_ptr<Kernel> make_narrow_matmul_kernel(const MatMulSpec& spec, const Tensor& weights, Rounding first,
                                                  Rounding last);

/// The elements are float16 or bfloat16 in the file, and not in memory.
bool is_stored_narrow(const Tensor& value);

}  // namespace ulpscope::cpu
