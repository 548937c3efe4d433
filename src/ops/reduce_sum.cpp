// ReduceSum, ai.onnx 1, 11, 13: the sum over axes.
#include "ops/reduction.h"

namespace ulpscope::ops {
namespace {

struct SumOf {
  template <typename T>
  T operator()(const T* row, std::int64_t length) const {
    return row_sum(row, length, [](T x) { return x; });
  }
};

}  // namespace

OpDef reduce_sum() { return reduction_op("ReduceSum", run_reduction<SummedTypes, SumOf>); }

}  // namespace ulpscope::ops
