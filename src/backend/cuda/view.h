// Where a tensor's elements are on the device: a buffer, an offset and strides. Layers that only rename or permute
// elements give other views of the same buffer.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "backend/strides.h"
#include "ops/common.h"
#include "ulpscope/data_type.h"
#include "ulpscope/shape.h"

namespace ulpscope::cuda {

struct View {
  int buffer = -1;  ///< Of the plan; -1: none.
  DataType type = DataType::kFloat32;
  std::int64_t offset = 0;            ///< Of the first element, in elements.
  std::vector<std::int64_t> strides;  ///< In elements, one per dimension of the shape; may be 0 or negative.
};

/// Strides without gaps that keep the order of the dimensions in memory. REQUIRES: is_one_to_one.
std::vector<std::int64_t> ordered_strides(const Shape& shape, std::span<const std::int64_t> strides);

/// Strides of `to` without gaps, with its dimensions in the order that those of `from`, which are as many, have in
/// memory; row-major where elements of `from` share places.
std::vector<std::int64_t> strides_in_order_of(const Shape& from, std::span<const std::int64_t> strides,
                                              const Shape& to);

/// The strides give every element the place that `wanted` gives it: those of dimensions of size 1 do not matter.
bool same_places(const Shape& shape, std::span<const std::int64_t> strides, std::span<const std::int64_t> wanted);

/// The strides of a view of the same elements, in the same row-major order, with the shape `to`; nothing when there is
/// no such view.
std::optional<std::vector<std::int64_t>> reshaped_strides(const Shape& from, std::span<const std::int64_t> strides,
                                                          const Shape& to);

/// Strides over finer dimensions than those of a tensor, each of which is a run of these side by side: they can say
/// where elements are after any chain of reshapes and transposes.
struct FineStrides {
  Shape dims;
  std::vector<std::int64_t> strides;
};
/// The same elements, in the same row-major order, so that the dimensions of `to` are runs of dimensions. Nothing where
/// sizes do not divide each other.
std::optional<FineStrides> refined(const FineStrides& from, const Shape& to);
/// The strides over the dimensions `fine` of a tensor with these strides over its own. REQUIRES: each of its own is a
/// run of `fine`.
std::vector<std::int64_t> finer_strides(const Shape& shape, std::span<const std::int64_t> strides, const Shape& fine);
/// Dimensions of a tensor of this shape in another order, with the fine ones that each consists of.
FineStrides permuted(const FineStrides& from, const Shape& shape, std::span<const std::int64_t> permutation);

/// Strides of a tensor that broadcasts to `domain`: 0 where it is repeated.
std::vector<std::int64_t> broadcast_strides(const Shape& shape, std::span<const std::int64_t> strides,
                                            const Shape& domain);

/// Bytes that the address of element 0 is a multiple of, at most 16, when the buffer is aligned to 256.
int alignment_of(const View& view);

/// Whether every element of a buffer has its own place: no stride of 0 or below where there is more than one element.
bool is_one_to_one(const Shape& shape, std::span<const std::int64_t> strides);

}  // namespace ulpscope::cuda
