// What the normalisations with a skip connection (com.microsoft) share.
#pragma once

#include "ops/normalization/normalization.h"

namespace ulpscope::ops {

inline void infer_skip_normalization(InferContext& ctx) {
  ctx.set_type(3, ctx.type(0));
  infer_layer_normalization(ctx);
  ctx.set_shape(3, ctx.shape(0));
}

/// x + skip (+ the bias that is input `bias`); also written to output 3 where that is wanted.
inline Tensor sum_with_skip(KernelContext& ctx, int bias) {
  const Tensor& x = ctx.input(0);
  Tensor sum = ctx.has_output(3) ? ctx.output(3) : Tensor(x.type(), x.shape());
  with_type(FloatTypes{}, ctx, x.type(), [&](auto tag) {
    using T = decltype(tag);
    const auto add = [](T a, T b) { return a + b; };
    map_binary<T, T>(x, ctx.input(1), sum, add);
    if (ctx.has_input(bias)) map_binary<T, T>(sum, ctx.input(bias), sum, add);
  });
  return sum;
}

}  // namespace ulpscope::ops
