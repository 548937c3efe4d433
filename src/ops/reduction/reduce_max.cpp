// ReduceMax, ai.onnx 1, 11, 12, 13, 18, 20: the largest element over axes; NaN wins. Of bools too, from opset 20.
#include "ops/reduction/reduction.h"

namespace ulpscope::ops {
namespace {

struct LargestOf {
  template <typename T>
  T operator()(const T* row, std::int64_t length) const {
    using Limits = std::numeric_limits<T>;
    T largest = Limits::has_infinity ? -Limits::infinity() : Limits::lowest();
    for (std::int64_t i = 0; i < length; ++i) largest = larger(largest, row[i]);
    return largest;
  }
};

}  // namespace

OpDef reduce_max() { return reduction_op("ReduceMax", run_reduction<AllTypes, LargestOf>, selection_adjoint); }

}  // namespace ulpscope::ops
