// GlobalAveragePool, GlobalMaxPool, GlobalLpPool: one number per batch and channel.
#pragma once

#include "core/parallel.h"
#include "ops/common.h"

namespace ulpscope::ops {

/// (N, C, d...) to (N, C, 1...).
inline void infer_global_pool(InferContext& ctx) {
  ctx.set_type(0, ctx.type(0));
  Shape shape = ctx.shape(0);
  if (shape.size() < 2) ctx.fail(fmt::format("expected an input (N, C, ...), got shape {}", to_string(shape)));
  for (std::size_t i = 2; i < shape.size(); ++i) shape[i] = 1;
  ctx.set_shape(0, std::move(shape));
}

/// out[plane] = reduce(elements of the plane, their number).
template <typename Reduce>
void run_global_pool(KernelContext& ctx, Reduce&& reduce) {
  const std::int64_t planes = ctx.output(0).size();
  const std::int64_t volume = planes == 0 ? 0 : ctx.input(0).size() / planes;
  with_type(FloatTypes{}, ctx, ctx.input(0).type(), [&](auto tag) {
    using T = decltype(tag);
    const T* x = ctx.input(0).data<T>();
    T* out = ctx.output(0).data<T>();
    parallel_for(planes, 8, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) out[i] = reduce(x + i * volume, volume);
    });
  });
}

}  // namespace ulpscope::ops
