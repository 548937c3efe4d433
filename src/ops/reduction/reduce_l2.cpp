// ReduceL2, ai.onnx 1, 11, 13, 18: the square root of the sum of squares over axes.
#include <cmath>

#include "ops/reduction/reduction.h"

namespace ulpscope::ops {
namespace {

struct Length {
  template <typename T>
  T operator()(const T* row, std::int64_t length) const {
    const T squares = row_sum(row, length, [](T x) { return times(x, x); });
    return through_real(squares, [](auto x) { return std::sqrt(x); });
  }
};

void adjoint(AdjointContext& ctx) { ctx.set(0, (input(ctx, 0) * (kept_gradient(ctx) / kept_output(ctx))).id); }

}  // namespace

OpDef reduce_l2() { return reduction_op("ReduceL2", run_reduction<SummedTypes, Length>, adjoint); }

}  // namespace ulpscope::ops
