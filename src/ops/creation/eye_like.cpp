// EyeLike, ai.onnx 9, 22: ones on diagonal k of a matrix with the shape of the input.
#include <algorithm>

#include "ops/movement.h"
#include "ops/onnx_types.h"

namespace ulpscope::ops {
namespace {

void infer_eye_like(InferContext& ctx) {
  ctx.set_type(0, dtype_attribute(ctx.layer(), ctx.type(0)));
  if (ctx.rank(0) != 2) ctx.fail(fmt::format("expected a matrix, got shape {}", to_string(ctx.shape(0))));
  ctx.set_shape(0, ctx.shape(0));
}

void run_eye_like(KernelContext& ctx) {
  Tensor& out = ctx.output(0);
  const std::int64_t rows = out.shape()[0], columns = out.shape()[1];
  const std::int64_t k = std::clamp(ctx.attributes().integer("k", 0), -rows, columns);
  with_type(AllTypes{}, ctx, out.type(), [&](auto tag) {
    using T = decltype(tag);
    T* at = out.data<T>();
    std::fill(at, at + out.size(), T{0});
    for (std::int64_t row = std::max<std::int64_t>(0, -k); row < rows && row + k < columns; ++row)
      at[row * columns + row + k] = T{1};
  });
}

}  // namespace

OpDef eye_like() {
  return {.name = "EyeLike",
          .since_version = 9,
          .precision = PrecisionRule::kFixed,
          .infer = infer_eye_like,
          .run = run_eye_like};
}

}  // namespace ulpscope::ops
