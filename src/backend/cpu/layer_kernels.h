// The kernels that layers and copies have of their own; those of products are in product.h.
#pragma once

#include <memory>
#include <vector>

#include "backend/kernel.h"
#include "formats/rounding.h"
#include "graph/network.h"
#include "ops/forms.h"

namespace ulpscope::cpu {

/// out[o, :] = the inputs' rows o side by side; input i has rows of widths[i] floats.
std::unique_ptr<Kernel> make_concat_kernel(std::int64_t outer, std::vector<std::int64_t> widths);

/// A part of `input`, of shape `output`, both channels last.
std::unique_ptr<Kernel> make_cut_kernel(const Shape& input, const ops::Cut& cut, const Shape& output);

/// A dense tensor of this shape, whose elements have these strides in the input.
std::unique_ptr<Kernel> make_arranging_kernel(std::vector<std::int64_t> strides, Shape shape);

/// Mean over all positions of each channel, channels last; partial sums in fixed blocks of positions.
std::unique_ptr<Kernel> make_channel_mean_kernel(std::int64_t batch, std::int64_t positions, std::int64_t channels);

/// out[n, s, c] = round(in[n, c, s]) (to channels last) or the reverse; float32. `shape` is the logical one, rank 3
/// to 5.
std::unique_ptr<Kernel> make_reorder_kernel(const Shape& shape, Layout to, Rounding rounding);

/// Strides, in elements and per logical dimension, of a tensor in this layout.
std::vector<std::int64_t> layout_strides(const Shape& shape, Layout layout);

/// Pooling over spatial dimensions.
struct PoolSpec {
  ops::PoolForm form;
  Shape input, output;  ///< Logical, one or two spatial dimensions; channels last in memory, but for the dense kernel.
  std::vector<std::int64_t> kernel, strides, dilations, pads_begin, pads_end;
};

/// One of them is NaN. Without that, the maxima of pools need no care.
bool any_nan(const float* in, std::int64_t count);

/// NaN in a window is the maximum of the window, as ONNX's reference has it (oneDNN drops it).
std::unique_ptr<Kernel> make_max_pool_kernel(const PoolSpec& spec);

/// Through oneDNN. Nothing when it has no such pooling, in a build without it, and for windows of thousands of
/// elements, whose sums in float32 lose digits.
std::unique_ptr<Kernel> make_average_pool_kernel(const PoolSpec& spec);

/// The bits of these two, dense, over one to three spatial dimensions. Means over three, and those of windows of
/// thousands of elements, are summed in float64, as by the reference kernel.
std::unique_ptr<Kernel> make_dense_pool_kernel(const PoolSpec& spec);

/// Resize and Upsample of floats. `shape`: of the input as it lies in memory. `axes`: into that, in the order in which
/// they are to be summed, which is from the last to the first of the layer; the operator's bits.
std::unique_ptr<Kernel> make_resample_kernel(Shape shape, std::vector<ops::ResampledAxis> axes);

/// Softmax, or LogSoftmax, over `length` of [outer, length, inner]: with the bits that it has over rows.
std::unique_ptr<Kernel> make_column_softmax_kernel(std::int64_t outer, std::int64_t length, std::int64_t inner,
                                                   bool logarithm);

/// Attention as one layer. Of float32, with what `reference`, its reference kernel, computes, by the loops of
/// packed products and of programs: sums are those of ProductPart. Else `reference` itself, which also carries out what
/// exposes its scores. `layer` outlives the kernel; `types` and `rounding` as make_reference_kernel() has them. Shapes
/// are known.
std::unique_ptr<Kernel> make_attention_kernel(const Layer& layer, std::vector<DataType> types,
                                              std::vector<Rounding> rounding, std::unique_ptr<Kernel> reference);

/// Products with weights of a few bits: `reference` itself for other layers than MatMulNBits. Else a kernel that
/// unpacks some columns of the weights at a time into the panels of packed products, and adds up as these do
/// (ProductPart); few rows are left to `reference`, which unpacks for less. Results are rounded by `rounding`, as those
/// of `reference` are.
std::unique_ptr<Kernel> make_nbits_kernel(const Layer& layer, std::unique_ptr<Kernel> reference, Rounding rounding);

}  // namespace ulpscope::cpu
