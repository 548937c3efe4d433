#include "ops/extremes.h"

#include <algorithm>
#include <limits>

#include "core/vector_clones.h"

namespace ulpscope::ops {
namespace {

constexpr std::int64_t kSome = 64;
constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct Some {
  float low[kSome], high[kSome];
  std::int32_t is_number[kSome];
};

/// Of every kSome-th element from each of the first ones on. REQUIRES: a multiple of kSome.
ULPSCOPE_VECTOR_CLONES void extremes_of_columns(const float* x, std::int64_t count, Some& of) {
  Some s = of;
  for (std::int64_t i = 0; i < count; i += kSome)
    for (std::int64_t j = 0; j < kSome; ++j) {
      const float value = x[i + j];
      s.low[j] = value < s.low[j] ? value : s.low[j];
      s.high[j] = value > s.high[j] ? value : s.high[j];
      s.is_number[j] &= static_cast<std::int32_t>(value == value);
    }
  of = s;
}

/// How many of kSome elements equal a number, or are NaN.
ULPSCOPE_VECTOR_CLONES std::int32_t count_matches(const float* x, float value, bool nan) {
  std::int32_t matches = 0;
  for (std::int64_t j = 0; j < kSome; ++j) matches += static_cast<std::int32_t>(nan ? x[j] != x[j] : x[j] == value);
  return matches;
}

}  // namespace

Extremes extremes_of(const float* x, std::int64_t count) {
  Some some;
  std::fill_n(some.low, kSome, kInfinity);
  std::fill_n(some.high, kSome, -kInfinity);
  std::fill_n(some.is_number, kSome, 1);
  const std::int64_t whole = count / kSome * kSome;
  if (whole > 0) extremes_of_columns(x, whole, some);
  Extremes result{*std::min_element(some.low, some.low + kSome), *std::max_element(some.high, some.high + kSome),
                  std::find(some.is_number, some.is_number + kSome, 0) != some.is_number + kSome};
  for (std::int64_t i = whole; i < count; ++i) {
    result.low = x[i] < result.low ? x[i] : result.low;
    result.high = x[i] > result.high ? x[i] : result.high;
    result.has_nan |= x[i] != x[i];
  }
  return result;
}

std::int64_t find_first(const float* x, std::int64_t count, float value) {
  const bool nan = value != value;
  std::int64_t i = 0;
  while (i + kSome <= count && count_matches(x + i, value, nan) == 0) i += kSome;
  while (i < count && !(nan ? x[i] != x[i] : x[i] == value)) ++i;
  return i;
}

}  // namespace ulpscope::ops
