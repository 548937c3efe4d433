// ReduceMean, ai.onnx 1, 11, 13, 18: the mean over axes; integers truncate.
#include "ops/reduction.h"

namespace ulpscope::ops {
namespace {

struct MeanOf {
  template <typename T>
  T operator()(const T* row, std::int64_t length) const {
    return divided(row_sum(row, length, [](T x) { return x; }), static_cast<T>(length));
  }
};

}  // namespace

OpDef reduce_mean() { return reduction_op("ReduceMean", run_reduction<SummedTypes, MeanOf>); }

}  // namespace ulpscope::ops
