// DepthToSpace, ai.onnx 1, 11, 13, 28: moves channels into blocks of space, in the order of mode DCR or CRD.
#include <array>

#include "ops/adjoint_values.h"
#include "ops/movement.h"

namespace ulpscope::ops {
namespace {

std::int64_t block_size(const InferContext& ctx) {
  const std::int64_t block = ctx.attributes().required_integer("blocksize");
  if (block < 1 || block > 1 << 20) ctx.fail(fmt::format("expected a blocksize of 1 to 2^20, got {}", block));
  return block;
}

void infer_depth_to_space(InferContext& ctx) {
  ctx.set_type(0, ctx.type(0));
  const std::string mode = ctx.attributes().text("mode", "DCR");
  if (mode != "DCR" && mode != "CRD") ctx.fail(fmt::format("expected mode DCR or CRD, got '{}'", mode));
  const std::int64_t block = block_size(ctx);
  const Shape& shape = ctx.shape(0);
  if (shape.size() != 4 || shape[1] % (block * block) != 0)
    ctx.fail(fmt::format("cannot spread the channels of {} over blocks of {} x {}", to_string(shape), block, block));
  ctx.set_shape(0, {shape[0], shape[1] / (block * block), shape[2] * block, shape[3] * block});
}

void run_depth_to_space(KernelContext& ctx) {
  const Shape& s = ctx.input(0).shape();
  const std::int64_t block = ctx.attributes().required_integer("blocksize"), depth = s[1] / (block * block);
  if (ctx.attributes().text("mode", "DCR") == "DCR")
    copy_permuted(ctx.input(0), {s[0], block, block, depth, s[2], s[3]}, std::array<std::int64_t, 6>{0, 3, 4, 1, 5, 2},
                  ctx.output(0));
  else
    copy_permuted(ctx.input(0), {s[0], depth, block, block, s[2], s[3]}, std::array<std::int64_t, 6>{0, 1, 4, 2, 5, 3},
                  ctx.output(0));
}

void adjoint_depth_to_space(AdjointContext& ctx) {
  const Shape& s = ctx.input_shape(0);
  const std::int64_t block = ctx.attributes().required_integer("blocksize"), depth = s[1] / (block * block);
  const Value g = reshape(gradient(ctx), {s[0], depth, s[2], block, s[3], block});
  const bool depth_first = ctx.attributes().text("mode", "DCR") == "DCR";
  ctx.set(0, reshape(transpose(g, depth_first ? std::vector<std::int64_t>{0, 3, 5, 1, 2, 4}
                                              : std::vector<std::int64_t>{0, 1, 3, 5, 2, 4}),
                     s)
                 .id);
}

}  // namespace

OpDef depth_to_space() {
  return {.name = "DepthToSpace",
          .types = {kEverything},
          .precision = PrecisionRule::kMovement,
          .kind = OpKind::kMovement,
          .moves_values = true,
          .infer = infer_depth_to_space,
          .run = run_depth_to_space,
          .adjoint = adjoint_depth_to_space};
}

}  // namespace ulpscope::ops
