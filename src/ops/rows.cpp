#include "ops/rows.h"

#include <numeric>

#include "ops/movement.h"

namespace ulpscope::ops {

Rows to_rows(const Tensor& tensor, const std::vector<std::int64_t>& axes) {
  const std::size_t rank = tensor.shape().size();
  std::vector<bool> reduced(rank, false);
  for (std::int64_t axis : axes) reduced[static_cast<std::size_t>(axis)] = true;
  Rows rows;
  std::vector<std::int64_t> perm;
  for (const bool last : {false, true})
    for (std::size_t d = 0; d < rank; ++d) {
      if (reduced[d] != last) continue;
      perm.push_back(static_cast<std::int64_t>(d));
      (last ? rows.length : rows.count) *= tensor.shape()[d];
    }
  // Dimensions of size 1 do not move anything.
  std::int64_t previous = -1;
  bool in_order = true;
  for (std::int64_t d : perm) {
    if (tensor.shape()[static_cast<std::size_t>(d)] == 1) continue;
    in_order &= d > previous;
    previous = d;
  }
  if (in_order || tensor.size() == 0) {
    rows.tensor = tensor;
    return rows;
  }
  Shape shape;
  for (std::int64_t d : perm) shape.push_back(tensor.shape()[static_cast<std::size_t>(d)]);
  rows.tensor = Tensor(tensor.type(), std::move(shape));
  copy_permuted(tensor, tensor.shape(), perm, rows.tensor);
  rows.perm = std::move(perm);
  return rows;
}

void from_rows(const Rows& rows, Tensor& out) {
  copy_permuted(rows.tensor, rows.tensor.shape(), inverse_permutation(rows.perm), out);
}

std::vector<std::int64_t> axes_from(std::int64_t first, std::int64_t rank) {
  std::vector<std::int64_t> axes(static_cast<std::size_t>(std::max<std::int64_t>(0, rank - first)));
  std::iota(axes.begin(), axes.end(), first);
  return axes;
}

std::optional<std::vector<std::int64_t>> sorted_axes(std::vector<std::int64_t> axes, std::int64_t rank) {
  for (std::int64_t& axis : axes) {
    if (axis < -rank || axis >= rank) return std::nullopt;
    if (axis < 0) axis += rank;
  }
  std::ranges::sort(axes);
  if (std::adjacent_find(axes.begin(), axes.end()) != axes.end()) return std::nullopt;
  return axes;
}

}  // namespace ulpscope::ops
