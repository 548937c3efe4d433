// ReduceL1, ai.onnx 1, 11, 13, 18: the sum of absolute values over axes.
#include "ops/reduction/reduction.h"

namespace ulpscope::ops {
namespace {

struct SumOfMagnitudes {
  template <typename T>
  T operator()(const T* row, std::int64_t length) const {
    return row_sum(row, length, [](T x) { return x < T{0} ? minus(T{0}, x) : x; });
  }
};

void adjoint(AdjointContext& ctx) { ctx.set(0, (sign(input(ctx, 0)) * kept_gradient(ctx)).id); }

}  // namespace

OpDef reduce_l1() { return reduction_op("ReduceL1", run_reduction<SummedTypes, SumOfMagnitudes>, adjoint); }

}  // namespace ulpscope::ops
