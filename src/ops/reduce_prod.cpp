// ReduceProd, ai.onnx 1, 11, 13, 18: the product over axes.
#include "ops/reduction.h"

namespace ulpscope::ops {
namespace {

struct ProductOf {
  template <typename T>
  T operator()(const T* row, std::int64_t length) const {
    T product = 1;
    for (std::int64_t i = 0; i < length; ++i) product = times(product, row[i]);
    return product;
  }
};

}  // namespace

OpDef reduce_prod() { return reduction_op("ReduceProd", run_reduction<SummedTypes, ProductOf>); }

}  // namespace ulpscope::ops
