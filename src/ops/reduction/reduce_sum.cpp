// ReduceSum, ai.onnx 1, 11, 13: the sum over axes.
#include "ops/reduction/reduction.h"

namespace ulpscope::ops {
namespace {

struct SumOf {
  template <typename T>
  T operator()(const T* row, std::int64_t length) const {
    return row_sum(row, length, [](T x) { return x; });
  }
};

void adjoint(AdjointContext& ctx) { ctx.set(0, ctx.broadcast_to(kept_gradient(ctx).id, ctx.input_shape(0))); }

}  // namespace

OpDef reduce_sum() { return reduction_op("ReduceSum", run_reduction<SummedTypes, SumOf>, adjoint); }

}  // namespace ulpscope::ops
