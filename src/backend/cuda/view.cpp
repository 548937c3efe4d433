#include "backend/cuda/view.h"

#include <algorithm>
#include <numeric>

namespace ulpscope::cuda {

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

std::vector<std::int64_t> strides_in_order_of(const Shape& from, std::span<const std::int64_t> strides,
                                              const Shape& to) {
  return is_one_to_one(from, strides) ? ordered_strides(to, strides) : ops::strides_of(to);
}

bool same_places(const Shape& shape, std::span<const std::int64_t> strides, std::span<const std::int64_t> wanted) {
  for (std::size_t d = 0; d < shape.size(); ++d)
    if (shape[d] > 1 && strides[d] != wanted[d]) return false;
  return true;
}

std::optional<std::vector<std::int64_t>> reshaped_strides(const Shape& from, std::span<const std::int64_t> strides,
                                                          const Shape& to) {
  if (num_elements(from) == 0) return ops::strides_of(to);
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

std::optional<FineStrides> refined(const FineStrides& from, const Shape& to) {
  // From the innermost dimension outwards: whatever ends first, ends a fine dimension.
  FineStrides result;
  std::size_t f = from.dims.size(), t = to.size();
  std::int64_t left = 1, stride = 1, wanted = 1;
  while (true) {
    while (left == 1 && f > 0) {
      left = from.dims[--f];
      stride = from.strides[f];
    }
    while (wanted == 1 && t > 0) wanted = to[--t];
    if (left == 1 || wanted == 1) break;
    const std::int64_t size = std::min(left, wanted);
    if (left % size != 0 || wanted % size != 0) return std::nullopt;
    result.dims.push_back(size);
    result.strides.push_back(stride);
    stride *= size;
    left /= size;
    wanted /= size;
  }
  std::ranges::reverse(result.dims);
  std::ranges::reverse(result.strides);
  return left == 1 && wanted == 1 ? std::optional(std::move(result)) : std::nullopt;
}

std::vector<std::int64_t> finer_strides(const Shape& shape, std::span<const std::int64_t> strides, const Shape& fine) {
  std::vector<std::int64_t> result(fine.size(), 0);
  std::size_t f = fine.size();
  for (std::size_t d = shape.size(); d-- > 0;)
    for (std::int64_t product = 1; product < shape[d]; product *= fine[f]) result[--f] = strides[d] * product;
  return result;
}

FineStrides permuted(const FineStrides& from, const Shape& shape, std::span<const std::int64_t> permutation) {
  std::vector<std::pair<std::size_t, std::size_t>> runs;  // Per dimension of the tensor.
  std::size_t f = 0;
  for (std::int64_t size : shape) {
    const std::size_t begin = f;
    for (std::int64_t product = 1; product < size; ++f) product *= from.dims[f];
    runs.emplace_back(begin, f);
  }
  FineStrides result;
  for (std::int64_t d : permutation)
    for (auto [i, end] = runs[static_cast<std::size_t>(d)]; i < end; ++i) {
      result.dims.push_back(from.dims[i]);
      result.strides.push_back(from.strides[i]);
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
