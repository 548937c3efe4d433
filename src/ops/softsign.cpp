// Softsign, ai.onnx 1, 22: x / (1 + |x|).
#include <cmath>

#include "ops/elementwise.h"

namespace ulpscope::ops {
namespace {

struct Softened {
  template <typename T>
  T operator()(T x) const {
    return x / (T{1} + std::abs(x));
  }
};

}  // namespace

OpDef softsign() { return unary_op("Softsign", 1, run_unary<FloatTypes, Softened>); }

}  // namespace ulpscope::ops
