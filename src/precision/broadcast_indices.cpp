#include "precision/broadcast_indices.h"

namespace ulpscope {

std::vector<std::int64_t> broadcast_indices(const Shape& shape, const Shape& to) {
  std::vector<std::int64_t> strides(to.size(), 0), at(to.size(), 0);
  std::int64_t stride = 1, size = 1;
  for (std::size_t d = 0; d < shape.size(); ++d) {
    const std::size_t from = shape.size() - 1 - d, into = to.size() - 1 - d;
    if (shape[from] != 1) strides[into] = stride;
    stride *= shape[from];
  }
  for (std::int64_t dimension : to) size *= dimension;
  std::vector<std::int64_t> result(static_cast<std::size_t>(size));
  std::int64_t index = 0;
  for (std::int64_t& each : result) {
    each = index;
    for (std::size_t d = to.size(); d-- > 0;) {
      index += strides[d];
      if (++at[d] < to[d]) break;
      index -= strides[d] * to[d];
      at[d] = 0;
    }
  }
  return result;
}

}  // namespace ulpscope
