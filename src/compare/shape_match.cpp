#include "compare/shape_match.h"

#include <algorithm>
#include <cstring>

#include "core/text.h"
#include "ulpscope/log.h"

namespace ulpscope {
namespace {

/// The axes of `from` in the order of `to`, which has the same dimensions; equal ones in order.
std::vector<std::int64_t> permutation(const Shape& from, const Shape& to) {
  std::vector<bool> used(from.size());
  std::vector<std::int64_t> axes;
  for (std::int64_t dimension : to) {
    for (std::size_t axis = 0; axis < from.size(); ++axis) {
      if (used[axis] || from[axis] != dimension) continue;
      used[axis] = true;
      axes.push_back(static_cast<std::int64_t>(axis));
      break;
    }
  }
  return axes;
}

std::string python_list(const std::vector<std::int64_t>& values) {
  std::string text = "[";
  for (std::int64_t value : values) text += (text.size() > 1 ? ", " : "") + std::to_string(value);
  return text + "]";
}

bool same_dimensions(Shape a, Shape b) {
  std::ranges::sort(a);
  std::ranges::sort(b);
  return a == b;
}

Tensor try_reshape(const Tensor& tensor, const Shape& shape) {
  if (tensor.shape() == shape) return tensor;
  const bool known = std::ranges::all_of(shape, [](std::int64_t d) { return d >= 0; });
  if (!known || num_elements(shape) != tensor.size()) {
    log_warning("Could not reshape array from shape: " + to_string(tensor.shape()) + " to " + to_string(shape) +
                ". Skipping reshape.");
    return tensor;
  }
  log_info("Reshaped array from shape: " + to_string(tensor.shape()) + " to: " + to_string(shape));
  return tensor.reshaped(shape);
}

}  // namespace

bool shape_fits(const Shape& shape, const Shape& pattern) {
  if (shape.size() != pattern.size()) return false;
  for (std::size_t i = 0; i < shape.size(); ++i)
    if (pattern[i] != -1 && pattern[i] != shape[i]) return false;
  return true;
}

Tensor permute(const Tensor& tensor, const std::vector<std::int64_t>& axes) {
  const std::size_t rank = axes.size();
  Shape shape(rank);
  std::vector<std::size_t> strides(rank), stride(rank);
  std::size_t step = size_of(tensor.type());
  for (std::size_t axis = rank; axis-- > 0;) {
    strides[axis] = step;
    step *= static_cast<std::size_t>(tensor.shape()[axis]);
  }
  for (std::size_t i = 0; i < rank; ++i) {
    shape[i] = tensor.shape()[static_cast<std::size_t>(axes[i])];
    stride[i] = strides[static_cast<std::size_t>(axes[i])];
  }
  Tensor result(tensor.type(), shape);
  const auto* in = static_cast<const std::byte*>(tensor.raw());
  auto* out = static_cast<std::byte*>(result.raw());
  const std::size_t width = size_of(tensor.type());
  std::vector<std::int64_t> index(rank, 0);
  std::size_t from = 0;
  for (std::int64_t i = 0; i < result.size(); ++i) {
    std::memcpy(out, in + from, width);
    out += width;
    for (std::size_t axis = rank; axis-- > 0;) {
      from += stride[axis];
      if (++index[axis] < shape[axis]) break;
      from -= stride[axis] * static_cast<std::size_t>(shape[axis]);
      index[axis] = 0;
    }
  }
  return result;
}

Tensor match_shape(const Tensor& tensor, Shape shape) {
  if (tensor.shape() == shape) return tensor;
  const auto unknown = std::ranges::count(shape, -1);
  if (unknown == 1) {
    std::int64_t others = 1;
    for (std::int64_t dimension : shape)
      if (dimension != -1) others *= dimension;
    std::replace(shape.begin(), shape.end(), std::int64_t{-1}, others == 0 ? 0 : tensor.size() / others);
  } else if (unknown > 1 && shape.size() == tensor.shape().size()) {
    for (std::size_t i = 0; i < shape.size(); ++i)
      if (shape[i] == -1) shape[i] = tensor.shape()[i];
  }
  Tensor result = tensor;
  if (shape.size() != result.shape().size()) result = try_reshape(result, shape);
  if (result.shape() != shape && shape.size() == result.shape().size() && same_dimensions(result.shape(), shape)) {
    const std::vector<std::int64_t> axes = permutation(result.shape(), shape);
    log_info("Permuted array of shape: " + to_string(result.shape()) + " to: " + to_string(shape) +
             " using permutation " + python_list(axes));
    return permute(result, axes);
  }
  return try_reshape(result, shape);
}

std::optional<std::size_t> find_similar(std::string_view name, const std::vector<std::string>& names,
                                        std::optional<std::size_t> fallback) {
  const auto exact = std::ranges::find(names, name);
  if (exact != names.end()) return static_cast<std::size_t>(exact - names.begin());
  const std::string wanted = lower_case(name);
  for (std::size_t i = 0; i < names.size(); ++i) {
    const std::string other = lower_case(names[i]);
    if (other.find(wanted) != std::string::npos || wanted.find(other) != std::string::npos) return i;
  }
  if (fallback && *fallback < names.size()) return fallback;
  return std::nullopt;
}

bool matches_wildcard(std::string_view text, std::string_view pattern) {
  std::size_t t = 0, p = 0;
  std::size_t star = std::string_view::npos, star_text = 0;
  /// Whether one character fits the pattern at p; `next` is where the pattern goes on.
  const auto fits = [&](char c, std::size_t& next) {
    next = p + 1;
    if (pattern[p] == '?') return true;
    if (pattern[p] != '[') return pattern[p] == c;
    std::size_t i = p + 1;
    const bool negated = i < pattern.size() && pattern[i] == '!';
    if (negated) ++i;
    const std::size_t close = pattern.find(']', i < pattern.size() && pattern[i] == ']' ? i + 1 : i);
    if (close == std::string_view::npos) return c == '[';  // no end: an ordinary character
    next = close + 1;
    bool found = false;
    for (; i < close; ++i) {
      if (i + 2 < close && pattern[i + 1] == '-') {
        found = found || (pattern[i] <= c && c <= pattern[i + 2]);
        i += 2;
      } else {
        found = found || pattern[i] == c;
      }
    }
    return found != negated;
  };
  while (t < text.size()) {
    std::size_t next = 0;
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      star_text = t;
    } else if (p < pattern.size() && fits(text[t], next)) {
      p = next;
      ++t;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      t = ++star_text;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

}  // namespace ulpscope
