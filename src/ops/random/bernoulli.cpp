// Bernoulli, ai.onnx 15, 22: 1 with the probability that the input gives, else 0 (the generator: ops/random/random.h).
#include "ops/common.h"
#include "ops/onnx_types.h"
#include "ops/random/random.h"

namespace ulpscope::ops {
namespace {

void infer(InferContext& ctx) {
  ctx.set_type(0, dtype_attribute(ctx.layer(), ctx.type(0)));
  ctx.set_shape(0, ctx.shape(0));
}

void run(KernelContext& ctx) {
  RandomStream stream = random_stream(ctx.layer());
  const Tensor& in = ctx.input(0);
  Tensor& out = ctx.output(0);
  std::vector<bool> drawn(static_cast<std::size_t>(in.size()));
  with_type(FloatTypes{}, ctx, in.type(), [&](auto tag) {
    const auto* p = in.data<decltype(tag)>();
    for (std::size_t i = 0; i < drawn.size(); ++i) drawn[i] = stream.uniform() < static_cast<double>(p[i]);
  });
  with_type(AllTypes{}, ctx, out.type(), [&](auto tag) {
    using T = decltype(tag);
    T* at = out.data<T>();
    for (std::size_t i = 0; i < drawn.size(); ++i) at[i] = drawn[i] ? T{1} : T{0};
  });
}

}  // namespace

OpDef bernoulli() {
  return {.name = "Bernoulli", .since_version = 15, .precision = PrecisionRule::kFixed, .infer = infer, .run = run};
}

}  // namespace ulpscope::ops
