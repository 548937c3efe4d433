// What the scatter operators do with an element and its update.
#pragma once

#include <algorithm>
#include <string>

#include "ops/movement.h"

namespace ulpscope::ops {

/// True when the attribute `reduction` is absent or "none": updates replace elements, whatever their type.
inline bool replaces(const Attributes& attributes) { return attributes.text("reduction", "none") == "none"; }

/// Fails unless the attribute `reduction` is one that ONNX defines.
inline void check_reduction(const InferContext& ctx) {
  const std::string name = ctx.attributes().text("reduction", "none");
  for (std::string_view known : {"none", "add", "mul", "max", "min"})
    if (name == known) return;
  ctx.fail(fmt::format("expected reduction none, add, mul, max or min, got '{}'", name));
}

/// Calls visit(T{}, combine), where combine(T element, T update) is the reduction. REQUIRES: not "none". NaN wins in
/// max and min.
template <typename Visit>
void with_reduction(const KernelContext& ctx, DataType type, Visit&& visit) {
  const std::string name = ctx.attributes().text("reduction", "none");
  with_type(NumericTypes{}, ctx, type, [&](auto tag) {
    using T = decltype(tag);
    // Integers wrap around, through the unsigned type (of at least int's size: uint16 * uint16 would be int).
    if (name == "add")
      return visit(tag, [](T a, T b) {
        if constexpr (std::is_integral_v<T>)
          return static_cast<T>(static_cast<std::uint64_t>(a) + static_cast<std::uint64_t>(b));
        else
          return a + b;
      });
    if (name == "mul")
      return visit(tag, [](T a, T b) {
        if constexpr (std::is_integral_v<T>)
          return static_cast<T>(static_cast<std::uint64_t>(a) * static_cast<std::uint64_t>(b));
        else
          return a * b;
      });
    if (name == "max") return visit(tag, [](T a, T b) { return b > a || b != b ? b : a; });
    return visit(tag, [](T a, T b) { return b < a || b != b ? b : a; });
  });
}

}  // namespace ulpscope::ops
