// Softmax, ai.onnx 1, 11 (flattens from axis on), 13 (along axis): e^x / sum(e^x), in a form that does not overflow.
#include "ops/normalization/softmax.h"

#include <cmath>

#include "ops/adjoint_values.h"

namespace ulpscope::ops {
namespace {

struct Shares {
  template <typename T>
  void operator()(const T* in, T* out, std::int64_t length) const {
    const T largest = largest_of(in, length);
    for (std::int64_t i = 0; i < length; ++i) out[i] = std::exp(in[i] - largest);
    const T sum = pairwise_sum<T>(0, length, [&](std::int64_t i) { return out[i]; });
    for (std::int64_t i = 0; i < length; ++i) out[i] /= sum;
  }
};

void adjoint(AdjointContext& ctx) {
  const Value y = output(ctx), share = gradient(ctx) * y;
  const std::vector<std::int64_t> axes = softmax_axes(ctx, static_cast<std::int64_t>(y.shape().size()));
  ctx.set(0, (axes.empty() ? share - share * y : share - y * sum(share, axes)).id);
}

}  // namespace

OpDef softmax() {
  return {.name = "Softmax",
          .kind = OpKind::kSoftmax,
          .infer = infer_softmax,
          .run = run_softmax<FloatTypes, Shares>,
          .adjoint = adjoint};
}

}  // namespace ulpscope::ops
