#include <algorithm>
#include <cmath>

#include "compare/compare_functions.h"
#include "compare/log_levels.h"
#include "compare/pairing.h"
#include "compare/visit.h"

namespace ulpscope {
namespace {

template <typename T>
std::string value_text(T value) {
  if constexpr (std::is_same_v<T, bool>) {
    return value ? "True" : "False";
  } else if constexpr (std::is_floating_point_v<T>) {
    return python_float(static_cast<double>(value));
  } else {
    return std::to_string(value);
  }
}

/// Compares one row of `length` values; logs each mismatch. True if there was none.
template <typename A, typename B>
bool match_row(const A* first, const B* second, std::int64_t length, std::int64_t tolerance, bool fail_fast) {
  bool passed = true;
  // The last `tolerance` values of the first have no room to have moved down.
  for (std::int64_t i = 0; i < length - std::max<std::int64_t>(tolerance, 0); ++i) {
    const auto same = [&](std::int64_t k) { return static_cast<double>(second[k]) == static_cast<double>(first[i]); };
    if (same(i)) continue;
    std::int64_t found = 0;
    while (found < length && !same(found)) ++found;
    if (found == length) {
      log_error("FAILED | Value: " + value_text(first[i]) + " not found in output");
    } else if (std::abs(found - i) > tolerance) {
      log_error("FAILED | Difference exceeds index tolerance (" + std::to_string(tolerance) + ")");
    } else {
      continue;
    }
    passed = false;
    if (fail_fast) return false;
  }
  return passed;
}

bool match_indices(const Tensor& a, const Tensor& b, std::int64_t tolerance, bool fail_fast) {
  if (a.shape() != b.shape() || a.rank() == 0) {
    if (a.shape() == b.shape()) {
      log_error("Cannot compare indices in a scalar.");
    } else {
      log_error("Cannot compare outputs of different shapes.");
    }
    return false;
  }
  const Tensor first = widen(a), second = widen(b);
  const std::int64_t length = a.shape().back();
  bool passed = true;
  visit_type(first.type(), [&]<typename A>(A) {
    visit_type(second.type(), [&]<typename B>(B) {
      for (std::int64_t begin = 0; begin < a.size(); begin += length) {
        passed = match_row(first.data<A>() + begin, second.data<B>() + begin, length, tolerance, fail_fast) && passed;
        if (fail_fast && !passed) return;
      }
    });
  });
  if (passed) log_finish("PASSED | Difference is within index tolerance (" + std::to_string(tolerance) + ")");
  return passed;
}

}  // namespace

CompareFunction indices_compare(const CompareOptions& options) {
  return [options](const IterationResult& first, const IterationResult& second) {
    return compare_outputs(
        first, second, "", options.fail_fast,
        [&](const std::string& name, const Tensor& a, const std::string& other_name, const Tensor& b) {
          const bool passed = match_indices(a, b, options.index_tolerance.get(name, 0), options.fail_fast);
          log_both_statistics(first, name, a, second, other_name, b, passed);
          return OutputVerdict{name, other_name, passed};
        });
  };
}

}  // namespace ulpscope
