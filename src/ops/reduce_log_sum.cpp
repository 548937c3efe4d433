// ReduceLogSum, ai.onnx 1, 11, 13, 18, 28: the logarithm of the sum over axes.
#include <cmath>

#include "ops/reduction.h"

namespace ulpscope::ops {
namespace {

struct LogOfSum {
  template <typename T>
  T operator()(const T* row, std::int64_t length) const {
    return through_real(row_sum(row, length, [](T x) { return x; }), [](auto x) { return std::log(x); });
  }
};

}  // namespace

OpDef reduce_log_sum() { return reduction_op("ReduceLogSum", run_reduction<SummedTypes, LogOfSum>); }

}  // namespace ulpscope::ops
