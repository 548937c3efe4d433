// MaxUnpool, ai.onnx 9, 11, 22: puts values back to where MaxPool found them; zeros elsewhere.
#include <algorithm>

#include "ops/common.h"
#include "ops/type_rules.h"

namespace ulpscope::ops {
namespace {

/// The shape that MaxPool with these attributes would have started from; the indices refer to it.
template <typename Context>
Shape unpooled_shape(const Context& ctx, const Shape& x) {
  const Shape kernel = ctx.attributes().required_integers("kernel_shape");
  const std::size_t rank = kernel.size();
  if (x.size() != rank + 2)
    ctx.fail(fmt::format("'kernel_shape' {} does not fit an input of shape {}", to_string(kernel), to_string(x)));
  Shape strides = ctx.attributes().integers("strides"), pads = ctx.attributes().integers("pads");
  if (strides.empty()) strides.assign(rank, 1);
  if (pads.empty()) pads.assign(2 * rank, 0);
  if (strides.size() != rank || pads.size() != 2 * rank)
    ctx.fail(
        fmt::format("expected {} strides and {} pads, got {} and {}", rank, 2 * rank, strides.size(), pads.size()));
  Shape shape{x[0], x[1]};
  for (std::size_t i = 0; i < rank; ++i)
    shape.push_back((x[i + 2] - 1) * strides[i] - pads[i] - pads[i + rank] + kernel[i]);
  return shape;
}

// Inputs: X, I (int64 indices), output_shape.
void infer_max_unpool(InferContext& ctx) {
  ctx.set_type(0, ctx.type(0));
  require_type(ctx, 1, DataType::kInt64);
  const Shape shape = unpooled_shape(ctx, ctx.shape(0));
  ctx.set_shape(0, ctx.has_input(2) ? ctx.integers(2) : shape);
}

void run_max_unpool(KernelContext& ctx) {
  const Tensor& x = ctx.input(0);
  const Shape shape = unpooled_shape(ctx, x.shape());
  const Shape& wanted = ctx.output(0).shape();
  if (wanted.size() != shape.size())
    ctx.fail(fmt::format("expected an output shape of {} dimensions, got {}", shape.size(), to_string(wanted)));
  const std::int64_t total = num_elements(shape);
  const auto indices = ctx.input(1).values<std::int64_t>();
  if (indices.size() != static_cast<std::size_t>(x.size()))
    ctx.fail(fmt::format("expected {} indices, one per value, got {}", x.size(), indices.size()));
  const auto strides = strides_of(wanted);
  with_type(NumericTypes{}, ctx, x.type(), [&](auto tag) {
    using T = decltype(tag);
    const T* in = x.data<T>();
    T* out = ctx.output(0).data<T>();
    std::fill(out, out + ctx.output(0).size(), T{});
    for (std::size_t i = 0; i < indices.size(); ++i) {
      if (indices[i] < 0 || indices[i] >= total)
        ctx.fail(fmt::format("index {} is outside of a tensor of shape {}", indices[i], to_string(shape)));
      std::int64_t rest = indices[i], at = 0;
      bool inside = true;
      for (std::size_t d = shape.size(); d-- > 0; rest /= shape[d]) {
        inside = inside && rest % shape[d] < wanted[d];
        at += rest % shape[d] * strides[d];
      }
      if (inside) out[at] = in[i];
    }
  });
}

}  // namespace

OpDef max_unpool() {
  return {.name = "MaxUnpool",
          .since_version = 9,
          .inputs = {2, 3},
          .types = {kNumbers, kIndices},
          .precision = PrecisionRule::kMovement,
          .kind = OpKind::kMovement,
          .weights = 0b100,
          .infer = infer_max_unpool,
          .run = run_max_unpool};
}

}  // namespace ulpscope::ops
