// An operator's reference kernel as a step of a plan.
#pragma once

#include <functional>
#include <memory>
#include <string_view>
#include <vector>

#include "backend/kernel.h"
#include "formats/rounding.h"
#include "graph/network.h"

namespace ulpscope::cpu {

/// Runs the graph that is this attribute of a layer; `inputs` are all inputs of its network, captured values included.
using GraphFunction = std::function<std::vector<Tensor>(std::string_view attribute, std::span<const Tensor> inputs)>;

/// `types`: declared types of the outputs (kUndefined: not wanted). `rounding`: applied to every float32 output.
/// `static_shapes` false: shapes are inferred from the actual inputs and outputs are allocated in every run.
/// `layer` outlives the kernel. `graphs` is empty for layers without sub-graphs.
std::unique_ptr<Kernel> make_op_kernel(const Layer& layer, std::vector<DataType> types, std::vector<Rounding> rounding,
                                       bool static_shapes, GraphFunction graphs = {});

/// out = round(in), float32, same layout; in place when both are the same tensor.
std::unique_ptr<Kernel> make_round_kernel(Rounding rounding);

/// out = clamp(round(in / scale), low, high), times scale again with `dequantise`; float32, same layout, in place when
/// both are the same tensor. An output that is not allocated is allocated.
struct QuantiseSpec {
  float scale, low, high;
  bool dequantise;
};
std::unique_ptr<Kernel> make_quantise_kernel(const QuantiseSpec& spec);

/// out = the sum of the inputs, added exactly and rounded once: partial sums of integers, each of them exact.
std::unique_ptr<Kernel> make_integer_sum_kernel();

/// Rounds all elements on all threads.
void round_parallel(const float* in, float* out, std::int64_t count, Rounding rounding);

}  // namespace ulpscope::cpu
