// Steps that convert: rounding, integers and their sums.
#pragma once

#include <memory>

#include "backend/kernel.h"
#include "formats/rounding.h"

namespace ulpscope::cpu {

/// out = round(in), float32, same layout; in place when both are the same tensor. An output that is not allocated is
/// allocated.
std::unique_ptr<Kernel> make_round_kernel(Rounding rounding);

/// out = clamp(round(in / scale), low, high), times scale again with `dequantize`; float32, same layout, in place when
/// both are the same tensor. An output that is not allocated is allocated.
struct QuantizeSpec {
  float scale, low, high;
  bool dequantize;
};
std::unique_ptr<Kernel> make_quantize_kernel(const QuantizeSpec& spec);

/// out = the sum of the inputs, added exactly and rounded once: partial sums of integers, each of them exact.
std::unique_ptr<Kernel> make_integer_sum_kernel();

/// Rounds all elements on all threads.
void round_parallel(const float* in, float* out, std::int64_t count, Rounding rounding);

}  // namespace ulpscope::cpu
