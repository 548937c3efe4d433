// Steps that convert: rounding, integers and their sums.
#pragma once

#include <memory>

#include "backend/kernel.h"
#include "formats/quantized.h"
#include "formats/rounding.h"

namespace ulpscope {

/// How 8-bit integers are held.
enum class IntegerForm : std::uint8_t {
  kFloats,       ///< float32.
  kDequantized,  ///< float32, times their scale again.
  kBytes,        ///< int8 or uint8.
};

/// out = clamp(round(in / scale)), in the same layout; in place when both are the same tensor of floats. An output that
/// is not allocated is allocated.
std::unique_ptr<Kernel> make_quantize_kernel(const Quantization& quantization, IntegerForm form);

/// out = what products sum of an activation in this encoding (quantize_activation), float32; `back`: times its scale.
/// The axis of blocks is known. In place when both are the same tensor; an output that is not allocated is allocated.
std::unique_ptr<Kernel> make_element_kernel(const Encoding& encoding, float scale, bool back);

/// out = round(in), float32, same layout; in place when both are the same tensor. An output that is not allocated is
/// allocated; one of narrow_type(rounding) gets the elements of that.
std::unique_ptr<Kernel> make_rounding_kernel(Rounding rounding);

/// out = the sum of the inputs, added exactly and rounded once: partial sums of integers, each of them exact.
std::unique_ptr<Kernel> make_integer_sum_kernel();

}  // namespace ulpscope
