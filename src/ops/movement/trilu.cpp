// Trilu, ai.onnx 14: the upper or lower triangle of matrices, from diagonal k on; zero elsewhere.
#include <algorithm>

#include "core/parallel.h"
#include "ops/adjoint_values.h"
#include "ops/movement.h"

namespace ulpscope::ops {
namespace {

void infer_trilu(InferContext& ctx) {
  ctx.set_type(0, ctx.type(0));
  if (ctx.rank(0) < 2) ctx.fail(fmt::format("expected matrices, got shape {}", to_string(ctx.shape(0))));
  ctx.set_shape(0, ctx.shape(0));
}

void run_trilu(KernelContext& ctx) {
  const Tensor& in = ctx.input(0);
  Tensor& out = ctx.output(0);
  if (in.size() == 0) return;
  const std::int64_t columns = in.shape().back(), rows = in.shape()[in.shape().size() - 2];
  const bool upper = ctx.attributes().integer("upper", 1) != 0;
  const std::int64_t k = std::clamp<std::int64_t>(ctx.has_input(1) ? single_integer(ctx, 1) : 0, -rows, columns);
  const std::int64_t width = static_cast<std::int64_t>(size_of(in.type()));
  parallel_for(in.size() / columns, std::max<std::int64_t>(1, (1 << 15) / columns),
               [&](std::int64_t begin, std::int64_t end) {
                 for (std::int64_t i = begin; i < end; ++i) {
                   // The kept columns: [first, last).
                   const std::int64_t diagonal = i % rows + k;
                   const std::int64_t first = upper ? std::clamp<std::int64_t>(diagonal, 0, columns) : 0;
                   const std::int64_t last = upper ? columns : std::clamp<std::int64_t>(diagonal + 1, 0, columns);
                   std::byte* row = element(out, i * columns);
                   std::memset(row, 0, static_cast<std::size_t>(columns * width));
                   std::memcpy(row + first * width, element(in, i * columns + first),
                               static_cast<std::size_t>((last - first) * width));
                 }
               });
}

void adjoint_trilu(AdjointContext& ctx) {
  const TensorId k = ctx.has_input(1) ? ctx.input(1) : kNone;
  ctx.set(0, ctx.add("Trilu", {ctx.gradient(0), k}, {{"upper", ctx.attributes().integer("upper", 1)}}));
}

}  // namespace

OpDef trilu() {
  return {.name = "Trilu",
          .since_version = 14,
          .inputs = {1, 2},
          .types = {kEverything, kIndices},
          .precision = PrecisionRule::kMovement,
          .kind = OpKind::kMovement,
          .weights = 0b10,
          .infer = infer_trilu,
          .run = run_trilu,
          .adjoint = adjoint_trilu};
}

}  // namespace ulpscope::ops
