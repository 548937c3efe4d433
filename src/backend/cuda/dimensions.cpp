#include "backend/cuda/dimensions.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <numeric>

#include "backend/cuda/element_source.h"

namespace ulpscope::cuda {
namespace {

/// The operands that move farther along `a` say that it lies outside of `b`.
bool lies_outside(const Dimension& a, const Dimension& b, const std::vector<std::size_t>& rank) {
  for (std::size_t operand : rank) {
    const std::int64_t x = std::abs(a.strides[operand]), y = std::abs(b.strides[operand]);
    if (x != 0 && y != 0 && x != y) return x > y;
  }
  return false;
}

bool merges(const Dimension& outer, const Dimension& inner) {
  for (std::size_t i = 0; i < outer.strides.size(); ++i)
    if (outer.strides[i] != inner.strides[i] * inner.size) return false;
  return true;
}

}  // namespace

Dimensions dimensions_of(const Shape& shape, const std::vector<const std::vector<std::int64_t>*>& strides) {
  Dimensions dims;
  for (std::size_t d = 0; d < shape.size(); ++d) {
    dims.push_back({shape[d], {}});
    for (const auto* operand : strides) dims.back().strides.push_back((*operand)[d]);
  }
  return dims;
}

Dimensions canonical(Dimensions dims, const std::vector<std::size_t>& rank) {
  std::erase_if(dims, [](const Dimension& d) { return d.size == 1; });
  // By insertion: the relation is no strict order, since different operands decide about different pairs.
  for (std::size_t i = 1; i < dims.size(); ++i)
    for (std::size_t j = i; j > 0 && lies_outside(dims[j], dims[j - 1], rank); --j) std::swap(dims[j], dims[j - 1]);
  Dimensions merged;
  for (const Dimension& d : dims) {
    if (merged.empty() || !merges(merged.back(), d)) {
      merged.push_back(d);
    } else {
      merged.back().size *= d.size;
      merged.back().strides = d.strides;
    }
  }
  return merged;
}

std::vector<std::size_t> memory_order(const std::vector<std::int64_t>& strides) {
  std::vector<std::size_t> order(strides.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, std::greater{}, [&](std::size_t d) { return std::abs(strides[d]); });
  return order;
}

std::int64_t count_of(const Dimensions& dims) {
  std::int64_t count = 1;
  for (const Dimension& d : dims) count *= d.size;
  return count;
}

std::int64_t reach_of(const Dimensions& dims, std::size_t operand) {
  std::int64_t reach = 0;
  for (const Dimension& d : dims) reach += (d.size - 1) * std::abs(d.strides[operand]);
  return reach;
}

std::string coordinate_code(const Dimensions& dims, const std::string& index, const std::string& prefix,
                            std::int64_t step, bool wide) {
  if (dims.empty()) return "";
  const char* type = wide ? "i64" : "u32";
  const std::string rest = prefix + "_";
  std::string text;
  if (dims.size() > 1) text += fmt::format("{} {} = {};\n", type, rest, index);
  for (std::size_t d = dims.size(); d-- > 0;) {
    const std::int64_t unit = d + 1 == dims.size() ? step : 1;
    const std::string size = literal(dims[d].size / unit, wide);
    std::string value = dims.size() == 1 ? index : d == 0 ? rest : fmt::format("{} % {}", rest, size);
    if (unit != 1) value = fmt::format("({}) * {}", value, literal(unit, wide));
    text += fmt::format("const {} {}{} = {};\n", type, prefix, d, value);
    if (d > 0) text += fmt::format("{} /= {};\n", rest, size);
  }
  return text;
}

std::string offset_code(const Dimensions& dims, std::size_t operand, const std::string& prefix, bool wide) {
  std::string text;
  for (std::size_t d = 0; d < dims.size(); ++d) {
    const std::int64_t stride = dims[d].strides[operand];
    if (stride == 0) continue;
    text += fmt::format("{}{}{}", text.empty() ? "" : " + ", prefix, d);
    if (stride != 1) text += fmt::format(" * {}", literal(stride, wide));
  }
  return text.empty() ? "0" : text;
}

int word_bytes(const std::vector<const Dimensions*>& groups, const Dimension& last, std::size_t operand, int vector,
               int element_bytes, int alignment) {
  std::int64_t word = std::gcd(std::gcd(16, alignment), static_cast<std::int64_t>(vector) * element_bytes);
  for (const Dimensions* dims : groups)
    for (const Dimension& d : *dims)
      if (&d != &last) word = std::gcd(word, std::abs(d.strides[operand]) * element_bytes);
  return static_cast<int>(std::max<std::int64_t>(word, 1));
}

}  // namespace ulpscope::cuda
