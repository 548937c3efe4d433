// Hardmax, ai.onnx 1, 11 (flattens from axis on), 13 (along axis): 1 for the first of the largest elements, else 0.
#include "ops/normalization/softmax.h"

namespace ulpscope::ops {
namespace {

struct FirstLargest {
  template <typename T>
  void operator()(const T* in, T* out, std::int64_t length) const {
    std::fill(out, out + length, T{0});
    if (length > 0) out[std::max_element(in, in + length) - in] = 1;
  }
};

}  // namespace

OpDef hardmax() { return {.name = "Hardmax", .infer = infer_softmax, .run = run_softmax<FloatTypes, FirstLargest>}; }

}  // namespace ulpscope::ops
