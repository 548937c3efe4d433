// ReduceLogSumExp, ai.onnx 1, 11, 13, 18, 28: the logarithm of the sum of e^x over axes, in a form that does not
// overflow.
#include <cmath>

#include "ops/reduction/reduction.h"

namespace ulpscope::ops {
namespace {

struct LogOfSumOfExponentials {
  template <typename T>
  T operator()(const T* row, std::int64_t length) const {
    using Real = std::conditional_t<std::is_floating_point_v<T>, T, double>;
    Real largest = -std::numeric_limits<Real>::infinity();
    for (std::int64_t i = 0; i < length; ++i) largest = larger(largest, static_cast<Real>(row[i]));
    // All -inf (or nothing), an infinity or a NaN among them: that is the result.
    const Real result =
        std::isfinite(largest)
            ? largest + std::log(pairwise_sum<Real>(
                            0, length, [&](std::int64_t i) { return std::exp(static_cast<Real>(row[i]) - largest); }))
            : largest;
    if constexpr (std::is_floating_point_v<T>)
      return result;
    else
      return to_integer<T>(result);
  }
};

void adjoint(AdjointContext& ctx) { ctx.set(0, (exp(input(ctx, 0) - kept_output(ctx)) * kept_gradient(ctx)).id); }

}  // namespace

OpDef reduce_log_sum_exp() {
  return reduction_op("ReduceLogSumExp", run_reduction<SummedTypes, LogOfSumOfExponentials>, adjoint);
}

}  // namespace ulpscope::ops
