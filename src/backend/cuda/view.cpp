#include "backend/cuda/view.h"

#include <algorithm>
#include <numeric>

namespace ulpscope::cuda {

std::vector<std::int64_t> dense_strides(const Shape& shape) {
  std::vector<std::int64_t> strides(shape.size());
  std::int64_t next = 1;
  for (std::size_t d = shape.size(); d-- > 0; next *= shape[d]) strides[d] = next;
  return strides;
}

std::vector<std::int64_t> channels_last_strides(const Shape& shape) {
  std::vector<std::int64_t> strides(shape.size());
  std::int64_t next = shape[1];
  strides[1] = 1;
  for (std::size_t d = shape.size(); d-- > 2; next *= shape[d]) strides[d] = next;
  strides[0] = next;
  return strides;
}

std::vector<std::int64_t> ordered_strides(const Shape& shape, std::span<const std::int64_t> strides) {
  std::vector<std::size_t> order(shape.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  // Dimensions of size 1 have any stride: they go where a dense tensor has them, next to those behind them.
  std::vector<std::int64_t> key(strides.begin(), strides.end());
  for (std::size_t d = shape.size(); d-- > 0;)
    if (shape[d] == 1) key[d] = d + 1 < shape.size() ? key[d + 1] : 0;
  std::ranges::stable_sort(order, [&](std::size_t a, std::size_t b) { return key[a] > key[b]; });
  std::vector<std::int64_t> result(shape.size());
  std::int64_t next = 1;
  for (std::size_t i = order.size(); i-- > 0; next *= shape[order[i]]) result[order[i]] = next;
  return result;
}

bool same_places(const Shape& shape, std::span<const std::int64_t> strides, std::span<const std::int64_t> wanted) {
  for (std::size_t d = 0; d < shape.size(); ++d)
    if (shape[d] > 1 && strides[d] != wanted[d]) return false;
  return true;
}

std::optional<std::vector<std::int64_t>> reshaped_strides(const Shape& from, std::span<const std::int64_t> strides,
                                                          const Shape& to) {
  if (num_elements(from) == 0) return dense_strides(to);
  // Runs of dimensions with one stride, and what of each is left to hand out, innermost first.
  std::vector<std::int64_t> result(to.size(), 1);
  std::size_t d = from.size();
  std::int64_t left = 1, step = 1;
  for (std::size_t t = to.size(); t-- > 0;) {
    if (to[t] == 1) continue;
    if (left == 1) {
      while (d > 0 && from[d - 1] == 1) --d;
      if (d == 0) return std::nullopt;
      left = from[d - 1];
      step = strides[d - 1];
      --d;
      while (d > 0 && (from[d - 1] == 1 || strides[d - 1] == step * left)) left *= from[--d];
    }
    if (left % to[t] != 0) return std::nullopt;
    result[t] = step;
    step *= to[t];
    left /= to[t];
  }
  return result;
}

std::vector<std::int64_t> broadcast_strides(const Shape& shape, std::span<const std::int64_t> strides,
                                            const Shape& domain) {
  std::vector<std::int64_t> result(domain.size(), 0);
  const std::size_t added = domain.size() - shape.size();
  for (std::size_t d = 0; d < shape.size(); ++d)
    if (shape[d] != 1) result[added + d] = strides[d];
  return result;
}

int alignment_of(const View& view) {
  const auto bytes = static_cast<std::int64_t>(size_of(view.type)) * view.offset;
  return static_cast<int>(bytes == 0 ? 16 : std::gcd(bytes, std::int64_t{16}));
}

bool is_one_to_one(const Shape& shape, std::span<const std::int64_t> strides) {
  for (std::size_t d = 0; d < shape.size(); ++d)
    if (shape[d] > 1 && strides[d] <= 0) return false;
  return true;
}

}  // namespace ulpscope::cuda
