// Steps that convert: rounding, integers and their sums.
#pragma once

#include <memory>

#include "backend/kernel.h"
#include "engine/int8.h"
#include "formats/rounding.h"

namespace ulpscope {

/// out = clamp(round(in / scale), low, high), times scale again with `dequantize`; float32, same layout, in place when
/// both are the same tensor. An output that is not allocated is allocated.
struct QuantizeSpec {
  float scale, low, high;
  bool dequantize;
};
QuantizeSpec quantize_spec(const Quantization& quantization, bool dequantize);
std::unique_ptr<Kernel> make_quantize_kernel(const QuantizeSpec& spec);

/// The same integers as bytes: int8, or uint8 where `low` is 0.
std::unique_ptr<Kernel> make_quantize_bytes_kernel(const QuantizeSpec& spec);

/// out = round(in), float32, same layout; in place when both are the same tensor. An output that is not allocated is
/// allocated.
std::unique_ptr<Kernel> make_rounding_kernel(Rounding rounding);

/// out = the sum of the inputs, added exactly and rounded once: partial sums of integers, each of them exact.
std::unique_ptr<Kernel> make_integer_sum_kernel();

}  // namespace ulpscope
