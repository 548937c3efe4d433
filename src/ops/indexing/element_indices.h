// Where the indices of GatherElements and ScatterElements point.
#pragma once

#include "ops/movement.h"

namespace ulpscope::ops {

/// The attribute `axis`, in [0, rank).
template <typename Context>
std::int64_t indexed_axis(const Context& ctx) {
  return normalize_axis(ctx, ctx.attributes().integer("axis", 0), static_cast<std::int64_t>(shape_of(ctx, 0).size()));
}

/// Fails unless `indices` has the rank of `data` and, outside of `axis`, no dimension is larger.
template <typename Context>
void check_element_indices(const Context& ctx, const Shape& data, const Shape& indices, std::int64_t axis) {
  bool fits = data.size() == indices.size();
  for (std::size_t d = 0; fits && d < data.size(); ++d)
    fits = static_cast<std::int64_t>(d) == axis || indices[d] <= data[d];
  if (!fits)
    ctx.fail(fmt::format("indices of shape {} do not fit data of shape {} along axis {}", to_string(indices),
                         to_string(data), axis));
}

/// Calls function(i, offset into data) for every index i of the tensor of indices in row-major order, where the
/// coordinate `axis` is replaced by the index itself. Fails when an index is out of range.
template <typename Function>
void for_each_element_index(const KernelContext& ctx, const Shape& data, const Tensor& indices,
                            const std::vector<std::int64_t>& values, std::int64_t axis, Function&& function) {
  const std::vector<std::int64_t> strides = strides_of(data);
  const Shape& shape = indices.shape();
  const std::size_t a = static_cast<std::size_t>(axis);
  std::vector<std::int64_t> at(shape.size(), 0);
  std::int64_t base = 0;  // the offset of all coordinates but `axis`
  for (std::size_t i = 0; i < values.size(); ++i) {
    function(static_cast<std::int64_t>(i), base + normalize_index(ctx, values[i], data[a]) * strides[a]);
    for (std::size_t d = shape.size(); d-- > 0;) {
      if (d != a) base += strides[d];
      if (++at[d] < shape[d]) break;
      if (d != a) base -= strides[d] * shape[d];
      at[d] = 0;
    }
  }
}

}  // namespace ulpscope::ops
