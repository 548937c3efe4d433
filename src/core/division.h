#pragma once

#include <cstdint>

namespace ulpscope {

/// `a` / `b`, rounded up. REQUIRES: a >= 0, b > 0.
constexpr std::int64_t divided_up(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

/// The least multiple of `unit` that is not below `value`. REQUIRES: value >= 0, unit > 0.
constexpr std::int64_t round_up(std::int64_t value, std::int64_t unit) { return divided_up(value, unit) * unit; }

}  // namespace ulpscope
