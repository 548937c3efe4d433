// ReduceSumSquare, ai.onnx 1, 11, 13, 18: the sum of squares over axes.
#include "ops/reduction/reduction.h"

namespace ulpscope::ops {
namespace {

struct SumOfSquares {
  template <typename T>
  T operator()(const T* row, std::int64_t length) const {
    return row_sum(row, length, [](T x) { return times(x, x); });
  }
};

void adjoint(AdjointContext& ctx) { ctx.set(0, (input(ctx, 0) * (kept_gradient(ctx) * 2)).id); }

}  // namespace

OpDef reduce_sum_square() { return reduction_op("ReduceSumSquare", run_reduction<SummedTypes, SumOfSquares>, adjoint); }

}  // namespace ulpscope::ops
