// ReduceProd, ai.onnx 1, 11, 13, 18: the product over axes.
#include "ops/adjoint_values.h"
#include "ops/reduction/reduction.h"

namespace ulpscope::ops {
namespace {

struct ProductOf {
  template <typename T>
  T operator()(const T* row, std::int64_t length) const {
    T product = 1;
    for (std::int64_t i = 0; i < length; ++i) product = times(product, row[i]);
    return product;
  }
};

void adjoint(AdjointContext& ctx) {
  // The product of all others, also where one of them is 0.
  const std::vector<std::int64_t> axes = reduced_axes(ctx);
  const Value x = input(ctx, 0), zero = 1 - abs(sign(x)), divisor = x + zero;
  const Value others = reduce("ReduceProd", divisor, axes) / divisor, zeros = sum(zero, axes);
  const Value none = 1 - minimum(zeros, scalar(ctx, 1)), one = (1 - abs(zeros - 1)).with("Relu");
  ctx.set(0, (kept_gradient(ctx) * others * (none + one * zero)).id);
}

}  // namespace

OpDef reduce_prod() { return reduction_op("ReduceProd", run_reduction<SummedTypes, ProductOf>, adjoint); }

}  // namespace ulpscope::ops
