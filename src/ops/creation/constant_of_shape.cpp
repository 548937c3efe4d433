// ConstantOfShape, ai.onnx 9, 20, 21, 23, 24, 25: one value (float32 zero by default) in a shape given as input.
#include "ops/movement.h"

namespace ulpscope::ops {
namespace {

template <typename Context>
Tensor value_of(const Context& ctx) {
  if (!ctx.attributes().has("value")) return Tensor::scalar(0.0f);
  Tensor value = ctx.attributes().required_tensor("value");
  if (value.size() != 1) ctx.fail(fmt::format("expected one element as value, got {}", value.size()));
  return value;
}

void infer_constant_of_shape(InferContext& ctx) {
  ctx.set_type(0, value_of(ctx).type());
  const Shape shape = ctx.integers(0);
  for (std::int64_t dim : shape)
    if (dim < 0) ctx.fail(fmt::format("cannot fill the shape {}", to_string(shape)));
  ctx.set_shape(0, shape);
}

void run_constant_of_shape(KernelContext& ctx) {
  Tensor& out = ctx.output(0);
  const Tensor value = value_of(ctx).cast(out.type());
  fill_elements(out.type(), out.raw(), out.size(), value.raw());
}

}  // namespace

OpDef constant_of_shape() {
  return {.name = "ConstantOfShape",
          .since_version = 9,
          .types = {kIndices},
          .precision = PrecisionRule::kFixed,
          .weights = 0b1,
          .storage_types = StorageTypes::kTaken,
          .fills = true,
          .infer = infer_constant_of_shape,
          .run = run_constant_of_shape};
}

}  // namespace ulpscope::ops
