// Tolerances as a share, with the numerics of difference.h.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "compare/blocks.h"
#include "compare/difference.h"
#include "compare/metrics.h"
#include "compare/statistics.h"
#include "compare/visit.h"
#include "core/parallel.h"
#include "ulpscope/error.h"

namespace ulpscope {
namespace {

/// error / limit: at most 1 exactly where error <= limit, as the quotient of two numbers is rounded to 1 only if they
/// are equal.
double share(double error, double limit) {
  if (!(limit > 0) || std::isinf(limit)) return error <= limit ? 0 : kInfinity;
  const double result = error / limit;
  return std::isnan(result) ? kInfinity : result;
}

/// Neighboring numbers of either type differ by more than the rounding of their quotient, but for subnormals.
template <typename A, typename R>
double element_share(A absolute, R relative, double atol, double rtol) {
  return std::min(share(static_cast<double>(absolute), atol), share(static_cast<double>(relative), rtol));
}

/// NumPy compares a float32 array with a Python float in float32.
template <typename T>
double limit_for(double limit) {
  return std::is_same_v<T, float> ? static_cast<double>(static_cast<float>(limit)) : limit;
}

ToleranceUse any_elements(const Difference& difference, double atol, double rtol) {
  ToleranceUse result;
  visit_elements(difference, [&]<typename A, typename R>(const A* absolute, const R* relative) {
    const double limit_a = limit_for<A>(atol), limit_r = limit_for<R>(rtol);
    for (std::int64_t i = 0; i < difference.absolute.size(); ++i) {
      result.used = std::max(result.used, element_share(absolute[i], relative[i], limit_a, limit_r));
      const auto error = static_cast<double>(absolute[i]);
      if (!(error <= result.absolute_error)) result.absolute_error = std::isnan(error) ? kInfinity : error;
    }
  });
  return result;
}

/// The common case in one pass: both float32, limits positive and finite. What is not finite counts as infinite.
ToleranceUse float_elements(const float* g, const float* c, std::int64_t count, double atol, double rtol) {
  constexpr std::int64_t kLanes = 8;
  std::vector<ToleranceUse> parts(static_cast<std::size_t>((count + kBlock - 1) / kBlock));
  parallel_for(count, kBlock, [&](std::int64_t begin, std::int64_t end) {
    double used[kLanes] = {};
    float largest[kLanes] = {};
    const auto add = [&](std::int64_t lane, std::int64_t i) {
      const float absolute = std::fabs(c[i] - g[i]);
      const float magnitude = std::fabs(g[i]);
      const float relative = absolute / (magnitude == 0 ? 0x1p-52F : magnitude);
      double of_atol = static_cast<double>(absolute) / atol;
      double of_rtol = static_cast<double>(relative) / rtol;
      of_atol = of_atol < kInfinity ? of_atol : kInfinity;  // NaN as well
      of_rtol = of_rtol < kInfinity ? of_rtol : kInfinity;
      const double either = of_atol < of_rtol ? of_atol : of_rtol;
      used[lane] = either > used[lane] ? either : used[lane];
      const float error =
          absolute < std::numeric_limits<float>::infinity() ? absolute : std::numeric_limits<float>::infinity();
      largest[lane] = error > largest[lane] ? error : largest[lane];
    };
    std::int64_t i = begin;
    for (; i + kLanes <= end; i += kLanes)
      for (std::int64_t lane = 0; lane < kLanes; ++lane) add(lane, i + lane);
    for (; i < end; ++i) add(i % kLanes, i);
    parts[static_cast<std::size_t>(begin / kBlock)] = {*std::max_element(used, used + kLanes),
                                                       *std::max_element(largest, largest + kLanes)};
  });
  ToleranceUse result;
  for (const ToleranceUse& part : parts) {
    result.used = std::max(result.used, part.used);
    result.absolute_error = std::max(result.absolute_error, part.absolute_error);
  }
  return result;
}

double statistic_of(const Tensor& difference, const Tolerance& tolerance) {
  if (tolerance.statistic == "max") return max_of(difference);
  if (tolerance.statistic == "mean") return mean_f32(difference);
  if (tolerance.statistic == "median") return median_of(difference);
  if (tolerance.statistic == "quantile") return quantile_of(difference, tolerance.quantile);
  throw InternalError("share_of_tolerance: unknown statistic " + tolerance.statistic);
}

}  // namespace

ToleranceUse share_of_tolerance(const Tensor& golden, const Tensor& candidate, const Tolerance& tolerance) {
  const bool elementwise = tolerance.statistic == "elemwise";
  const double atol_f32 = limit_for<float>(tolerance.atol), rtol_f32 = limit_for<float>(tolerance.rtol);
  const auto ordinary = [](double limit) { return limit > 0 && std::isfinite(limit); };
  const Tensor g = widen(golden), c = widen(candidate);
  if (elementwise && g.type() == DataType::kFloat32 && c.type() == DataType::kFloat32 && g.shape() == c.shape() &&
      !tolerance.infinities_equal && ordinary(atol_f32) && ordinary(rtol_f32))
    return float_elements(g.data<float>(), c.data<float>(), g.size(), atol_f32, rtol_f32);
  const Difference diff = difference(candidate, golden, tolerance.infinities_equal);
  if (elementwise) return any_elements(diff, tolerance.atol, tolerance.rtol);
  const double absolute = statistic_of(diff.absolute, tolerance), relative = statistic_of(diff.relative, tolerance);
  return {std::min(share(absolute, tolerance.atol), share(relative, tolerance.rtol)), absolute};
}

}  // namespace ulpscope
