// Which element of a tensor belongs to which of another one that it is broadcast to.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "ulpscope/tensor.h"

namespace ulpscope {

/// The element of `shape`, broadcast to `to` as NumPy does it, that belongs to each element of `to`.
std::vector<std::int64_t> broadcast_indices(const Shape& shape, const Shape& to);

/// The elements of a tensor of float32, broadcast to a shape, piece by piece.
class BroadcastElements {
 public:
  /// `tensor` outlives this.
  BroadcastElements(const Tensor& tensor, const Shape& to);
  /// The next `count` of them, until the next call.
  const float* next(std::size_t count);

 private:
  /// Neighbors that are one run in memory are one dimension, the innermost first.
  struct Dimension {
    std::int64_t size = 1, stride = 0, at = 0;
  };
  const float* from_;
  std::vector<Dimension> dims_;
  std::vector<float> piece_;
};

}  // namespace ulpscope
