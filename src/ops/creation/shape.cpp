// Shape, ai.onnx 1, 13, 15 (start, end), 19, 21, 23, 24, 25: the dimensions of a tensor.
#include <algorithm>

#include "ops/movement.h"

namespace ulpscope::ops {
namespace {

/// The dimensions that are asked for.
template <typename Context>
Shape selected(const Context& ctx) {
  const Shape& shape = shape_of(ctx, 0);
  const std::int64_t rank = static_cast<std::int64_t>(shape.size());
  const auto place = [&](std::int64_t at) { return std::clamp<std::int64_t>(at < 0 ? at + rank : at, 0, rank); };
  const std::int64_t start = place(ctx.attributes().integer("start", 0)),
                     end = place(ctx.attributes().integer("end", rank));
  return start < end ? Shape(shape.begin() + start, shape.begin() + end) : Shape{};
}

void infer_shape(InferContext& ctx) {
  ctx.set_type(0, DataType::kInt64);
  ctx.set_shape(0, {static_cast<std::int64_t>(selected(ctx).size())});
}

void run_shape(KernelContext& ctx) {
  const Shape dims = selected(ctx);
  std::copy(dims.begin(), dims.end(), ctx.output(0).data<std::int64_t>());
}

}  // namespace

OpDef shape() {
  return {.name = "Shape",
          .precision = PrecisionRule::kFixed,
          .storage_types = StorageTypes::kTaken,
          .reads_shape_only = true,
          .infer = infer_shape,
          .run = run_shape};
}

}  // namespace ulpscope::ops
