// Softsign, ai.onnx 1, 22: x / (1 + |x|).
#include <cmath>

#include "ops/adjoint_values.h"
#include "ops/elementwise.h"

namespace ulpscope::ops {
namespace {

struct Softened {
  template <typename T>
  T operator()(T x) const {
    return x / (T{1} + std::abs(x));
  }
};

Value derivative(const Pointwise& p) { return 1 / square(1 + abs(p.x())); }

}  // namespace

OpDef softsign() { return unary_op("Softsign", 1, run_unary<FloatTypes, Softened>, pointwise_adjoint<derivative>); }

}  // namespace ulpscope::ops
