// Matrix products and convolutions through oneDNN, or by our own loops in a build without it (without_onednn.cpp).
// Inputs and weights arrive rounded; products are exact in the accumulator's sense of fp32, and nothing is rounded on
// the way out.
#pragma once

#include <functional>
#include <memory>
#include <optional>
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
  enum class Kind : std::uint8_t { kHardSwish, kAddTensor } kind;
  // kAddTensor adds the next input of the kernel, of the output's shape and layout.
};

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

/// This processor has dot products of bytes, which oneDNN multiplies by, and sums of so many products are exact.
bool multiplies_bytes(std::int64_t k);

/// Float32 loses digits in sums of so many products: they are added in pieces of k.
bool is_long_sum(const MatMulSpec& spec);

/// Inputs of the kernel: a, b (unless constant). Output: dense [batch..., m, n]. Null only with panels_b.
std::unique_ptr<Kernel> make_matmul_kernel(const MatMulSpec& spec, const ObjectCache& cache);
/// The same for all but long sums.
std::unique_ptr<Kernel> make_short_matmul_kernel(const MatMulSpec& spec, const ObjectCache& cache);

struct ConvolutionSpec {
  Shape input, output;  ///< Logical, [n, c, spatial...] with one or two spatial dimensions.
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

/// Inputs of the kernel: x, then one tensor per kAddTensor. All activations are channels last.
/// Nothing when there is no fast kernel for it; of bytes, none with instructions for them.
std::unique_ptr<Kernel> make_convolution_kernel(const ConvolutionSpec& spec, const ObjectCache& cache);

}  // namespace ulpscope::cpu
