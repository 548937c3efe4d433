// CUDA source of kernels that move, select, pool, resample and count elements.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "backend/cuda/kernel_source.h"
#include "formats/rounding.h"
#include "ops/predicates.h"
#include "ops/reduction/cumulative.h"
#include "ulpscope/data_type.h"
#include "ulpscope/shape.h"
#include "ulpscope/tensor.h"

namespace ulpscope::cuda {

/// A tensor in device memory as a kernel sees it; strides in elements, one per dimension of its shape.
struct StridedTensor {
  DataType type = DataType::kFloat32;
  Shape shape;
  std::vector<std::int64_t> strides;
};

/// kernel(in, out): out[i] = in[i] for every index i of the shape, which both have. Types: equal, or both among
/// float32, float16, bfloat16, or any two of these and integers and bool (conversions as ONNX Cast 13: to nearest even;
/// float to integer truncates; to bool: not equal 0). Transposes go through shared memory.
KernelSource copy_source(const StridedTensor& in, const StridedTensor& out);

/// kernel(data, indices, out): Gather of ONNX 13 along `axis`. Indices are int32 or int64; negative ones count from the
/// end; one outside of the dimension gives zeros instead of reading elsewhere. out.type may be another float type.
KernelSource gather_source(const StridedTensor& data, const StridedTensor& indices, const StridedTensor& out,
                           std::int64_t axis);

/// kernel(in, index of each axis..., out): along each of these axes position x of the output is position index[x] of
/// the input, or `fill` where index[x] is -1; along the others both have the same positions. Indices are int32. `fill`:
/// one element of the type of the output, which may be another float type than that of the input.
KernelSource place_source(const StridedTensor& in, const StridedTensor& out, const std::vector<std::size_t>& axes,
                          const Tensor& fill);

/// kernel(places, a, b, out): element `place` of `a` where it is below the number of a's elements, else that much less
/// of `b`; below 0: zero. Places are int64, row-major over the output; the inputs are row-major. Types: equal, or
/// floats.
KernelSource merge_source(const StridedTensor& a, const StridedTensor& b, const StridedTensor& out);

/// kernel(in, out): running sums or products in float32, one after the other. Elements are rounded to `load` when they
/// are read; results are rounded to `store`, then to the output's type.
KernelSource cumulative_source(const StridedTensor& in, const StridedTensor& out, const ops::CumulativeForm& form,
                               Rounding load, Rounding store);

/// kernel(in..., out): one input or two, with strides over the output's shape; the output is bool. Inputs are of one
/// type, or floats, which are rounded to `load` when they are read.
KernelSource predicate_source(std::span<const StridedTensor> inputs, std::span<const Rounding> load,
                              const StridedTensor& out, ops::Predicate predicate);

/// kernel(condition, x, y, out): Where of ONNX 16; strides of inputs are already those of the output's shape.
KernelSource where_source(const StridedTensor& condition, const StridedTensor& x, const StridedTensor& y,
                          const StridedTensor& out);

struct PoolWindow {
  bool average = false, count_pads = false;  ///< Maximum, or mean in float32 with or without the pads.
  std::vector<std::int64_t> kernel, strides, dilations, pads_begin;  ///< One per spatial dimension (1 to 3).
};
/// kernel(in, out): shapes (n, c, d...), any strides. Elements are rounded to `load` when they are read; the result is
/// rounded to `store`, then to the output's type. NaN wins a maximum. count_pads: the divisor counts pads up to
/// input + `pads_end` (per spatial dimension), as ONNX Runtime does with ceil_mode.
KernelSource pool_source(const StridedTensor& in, const StridedTensor& out, const PoolWindow& window,
                         const std::vector<std::int64_t>& pads_end, Rounding load, Rounding store);

/// An axis along which elements of the output are weighted sums of `taps` elements of the input.
struct ResampledDimension {
  std::size_t dimension = 0;
  std::int64_t taps = 1;
};
/// kernel(in, index and weight of each axis..., out): ops::ResampledAxis; tables are int32 and float32. Sums are in
/// float32, those of the last axis first; nothing but elements that are loaded and the results is rounded.
KernelSource resample_source(const StridedTensor& in, const StridedTensor& out,
                             const std::vector<ResampledDimension>& axes, Rounding load, Rounding store);

/// kernel(in, counts): adds those of all rows (ops/reduction/row_magnitudes.h) to what is there, zeros at first. The
/// mean square of a row is in float64.
KernelSource magnitudes_source(const StridedTensor& in);

}  // namespace ulpscope::cuda
