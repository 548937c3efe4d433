// Which layers have an int8 form, and which tensors need scales for it. docs/numerics.md has the rules.
#pragma once

#include <optional>
#include <vector>

#include "engine/specialization.h"
#include "formats/quantized.h"

namespace ulpscope {

/// The zero point of a QuantizeLinear or DequantizeLinear is absent, or a constant 0.
bool is_symmetric(const Specialization& spec, const Layer& layer);

/// True for what can compute in int8 once its inputs have scales: Conv, ConvTranspose, MatMul and Gemm (weights
/// constant, or both operands activations), Add and Mul of two tensors, AveragePool, GlobalAveragePool. False for the
/// bias of a product, for Add and Mul inside of a normalization that is written out in pointwise layers, and for
/// arithmetic that only computes shapes or indices. Says nothing about scales.
bool has_int8_form(const Specialization& spec, LayerId id);

/// The activations that the layer reads as int8: each needs a scale. Each once, in the order of the inputs; constants
/// bring their own scales. Empty for a layer without an int8 form.
std::vector<TensorId> quantized_inputs(const Specialization& spec, LayerId id);

/// The tensors that need scales for all layers with an int8 form to use it: ascending, each once.
std::vector<TensorId> int8_tensors(const Specialization& spec);

/// What the DequantizeLinear layer says that makes this tensor, or what the tensor was moved from (by Transpose, say):
/// one with a constant scale for the whole tensor, without a zero point (absent or 0), and with 8-bit integers or E4M3
/// behind it; else nothing.
std::optional<Quantization> dequantized(const Specialization& spec, TensorId id);

/// The scales of constant weights that come out of a DequantizeLinear without a zero point, and may have been moved
/// since: `channels` float32 scales along `axis`. Nothing when it has another form.
Tensor dequantized_weights(const Specialization& spec, TensorId id, std::size_t axis, std::int64_t channels);

/// The format of the elements behind the DequantizeLinear that makes this tensor; int8 where there is none.
Format format_in_file(const Specialization& spec, TensorId id);

/// A product of integers, or of E4M3, as the file has it: all operands come from dequantized() and
/// dequantized_weights().
bool is_integer_product(const Specialization& spec, LayerId id);

/// A layer that reads integers in the file: an integer product, or Add, Mul or a pool of dequantized() values (and
/// constants with one scale).
bool reads_integers(const Specialization& spec, LayerId id);

/// Of a float32 product with is_integer_product(), or of operands in blocks: the Cast to float16 or bfloat16 that alone
/// reads what it and its bias compute. Both together are a product of elements that stores this type. kNone: none.
LayerId storing_cast(const Specialization& spec, LayerId product);

/// The reverse: the product whose storing_cast() this layer is, or kNone.
LayerId product_of_cast(const Specialization& spec, LayerId cast);

/// For products with an int8 form: which dimension of input 1 counts the output channels (ConvTranspose: within one
/// group).
std::size_t weight_channel_axis(const Specialization& spec, const Layer& layer);

/// The output channels of a product with constant weights.
std::int64_t output_channels(const Specialization& spec, const Layer& layer);

/// The scales of the weights of a product: one per output channel.
ScaleLayout weight_scales(const Specialization& spec, const Layer& layer);

}  // namespace ulpscope
