// Relu, ai.onnx 1, 6, 13, 14: max(0, x); integers from opset 14. NaN stays NaN, and
// -0 becomes 0, so that rounding before is rounding after.
#include "ops/adjoint_values.h"
#include "ops/elementwise.h"

namespace ulpscope::ops {
namespace {

struct Rectified {
  template <typename T>
  T operator()(T x) const {
    return x <= T{0} ? T{0} : x;
  }
};

Value derivative(const Pointwise& p) { return sign(p.y()); }

}  // namespace

OpDef relu() {
  return unary_op("Relu", 1,
                  run_unary<TypeList<float, double, std::int8_t, std::int16_t, std::int32_t, std::int64_t>, Rectified>,
                  pointwise_adjoint<derivative>);
}

}  // namespace ulpscope::ops
