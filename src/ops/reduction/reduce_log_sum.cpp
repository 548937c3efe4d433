// ReduceLogSum, ai.onnx 1, 11, 13, 18, 28: the logarithm of the sum over axes.
#include <cmath>

#include "ops/reduction/reduction.h"

namespace ulpscope::ops {
namespace {

struct LogOfSum {
  template <typename T>
  T operator()(const T* row, std::int64_t length) const {
    return through_real(row_sum(row, length, [](T x) { return x; }), [](auto x) { return std::log(x); });
  }
};

void adjoint(AdjointContext& ctx) {
  ctx.set(0, ctx.broadcast_to((kept_gradient(ctx) * exp(-kept_output(ctx))).id, ctx.input_shape(0)));
}

}  // namespace

OpDef reduce_log_sum() { return reduction_op("ReduceLogSum", run_reduction<SummedTypes, LogOfSum>, adjoint); }

}  // namespace ulpscope::ops
