// Abs, ai.onnx 1, 6, 13: |x|.
#include <cmath>

#include "ops/adjoint_values.h"
#include "ops/elementwise.h"

namespace ulpscope::ops {
namespace {

struct Magnitude {
  template <typename T>
  T operator()(T x) const {
    if constexpr (std::is_unsigned_v<T>)
      return x;
    else if constexpr (std::is_integral_v<T>)
      return x < 0 ? minus(T{0}, x) : x;
    else
      return std::abs(x);
  }
};

Value derivative(const Pointwise& p) { return sign(p.x()); }

}  // namespace

OpDef abs() { return unary_op("Abs", 1, run_unary<NumericTypes, Magnitude>, pointwise_adjoint<derivative>); }

}  // namespace ulpscope::ops
