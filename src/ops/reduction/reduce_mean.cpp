// ReduceMean, ai.onnx 1, 11, 13, 18: the mean over axes; integers truncate.
#include "ops/reduction/reduction.h"

namespace ulpscope::ops {
namespace {

struct MeanOf {
  template <typename T>
  T operator()(const T* row, std::int64_t length) const {
    return divided(row_sum(row, length, [](T x) { return x; }), static_cast<T>(length));
  }
};

void adjoint(AdjointContext& ctx) {
  const Shape &shape = ctx.input_shape(0), kept = kept_shape(ctx);
  const double count =
      static_cast<double>(num_elements(shape)) / static_cast<double>(std::max<std::int64_t>(1, num_elements(kept)));
  ctx.set(0, ctx.broadcast_to(kept_gradient(ctx).id, shape, 1 / count));
}

}  // namespace

OpDef reduce_mean() { return reduction_op("ReduceMean", run_reduction<SummedTypes, MeanOf>, adjoint); }

}  // namespace ulpscope::ops
