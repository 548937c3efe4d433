// Log, ai.onnx 1, 6, 13: the natural logarithm.
#include <cmath>

#include "ops/adjoint_values.h"
#include "ops/elementwise.h"

namespace ulpscope::ops {
namespace {

struct Logarithm {
  template <typename T>
  T operator()(T x) const {
    return std::log(x);
  }
};

void adjoint(AdjointContext& ctx) { ctx.set(0, (gradient(ctx) / input(ctx, 0)).id); }

}  // namespace

OpDef log() { return unary_op("Log", 1, run_unary<FloatTypes, Logarithm>, adjoint); }

}  // namespace ulpscope::ops
