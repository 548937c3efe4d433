// Where, ai.onnx 9, 16: selects from two tensors by a condition, with NumPy broadcasting of all three.
#include "ops/adjoint_values.h"
#include "ops/elementwise.h"
#include "ops/movement.h"
#include "ops/type_rules.h"

namespace ulpscope::ops {
namespace {

void infer_where(InferContext& ctx) {
  ctx.set_type(0, ctx.type(1));
  require_type(ctx, 0, DataType::kBool);
  require_type(ctx, 2, ctx.type(1));
  ctx.set_shape(0, broadcast_or_fail(ctx, broadcast_or_fail(ctx, ctx.shape(0), ctx.shape(1)), ctx.shape(2)));
}

void run_where(KernelContext& ctx) {
  const Tensor &condition = ctx.input(0), &x = ctx.input(1), &y = ctx.input(2);
  Tensor& out = ctx.output(0);
  if (x.type() != y.type())
    ctx.fail(fmt::format("expected one type, got {} and {}", name_of(x.type()), name_of(y.type())));
  const BroadcastRows rows(
      out.shape(), {broadcast_strides(condition.shape(), out.shape()), broadcast_strides(x.shape(), out.shape()),
                    broadcast_strides(y.shape(), out.shape())});
  const bool* choose = condition.data<bool>();
  with_word(x.type(), [&](auto tag) {
    using Word = decltype(tag);
    rows.for_each([&](std::int64_t first, const std::int64_t* at) {
      for (std::int64_t i = 0; i < rows.count(); ++i)
        store_word(out.raw(), first + i,
                   choose[at[0] + i * rows.step(0)] ? load_word<Word>(x.raw(), at[1] + i * rows.step(1))
                                                    : load_word<Word>(y.raw(), at[2] + i * rows.step(2)));
    });
  });
}

void adjoint_where(AdjointContext& ctx) {
  const Value condition = input(ctx, 0), g = gradient(ctx), none = scalar(ctx, 0);
  if (ctx.wants(1)) set(ctx, 1, where(condition, g, none));
  if (ctx.wants(2)) set(ctx, 2, where(condition, none, g));
}

}  // namespace

OpDef where() {
  return {.name = "Where",
          .since_version = 9,
          .inputs = {3, 3},
          .types = {kBooleans, kEverything},
          .precision = PrecisionRule::kMovement,
          .kind = OpKind::kMovement,
          .selects = 0b1,
          .infer = infer_where,
          .run = run_where,
          .adjoint = adjoint_where};
}

}  // namespace ulpscope::ops
