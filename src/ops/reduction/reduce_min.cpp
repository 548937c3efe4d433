// ReduceMin, ai.onnx 1, 11, 12, 13, 18, 20: the smallest element over axes; NaN wins. Of bools too, from opset 20.
#include "ops/reduction/reduction.h"

namespace ulpscope::ops {
namespace {

struct SmallestOf {
  template <typename T>
  T operator()(const T* row, std::int64_t length) const {
    using Limits = std::numeric_limits<T>;
    T smallest = Limits::has_infinity ? Limits::infinity() : Limits::max();
    for (std::int64_t i = 0; i < length; ++i) smallest = smaller(smallest, row[i]);
    return smallest;
  }
};

}  // namespace

OpDef reduce_min() { return reduction_op("ReduceMin", run_reduction<AllTypes, SmallestOf>, selection_adjoint); }

}  // namespace ulpscope::ops
