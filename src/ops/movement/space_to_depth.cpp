// SpaceToDepth, ai.onnx 1, 13, 28 (mode): moves blocks of space into channels, in the order of mode DCR or CRD.
#include <array>

#include "ops/adjoint_values.h"
#include "ops/movement.h"

namespace ulpscope::ops {
namespace {

void infer_space_to_depth(InferContext& ctx) {
  ctx.set_type(0, ctx.type(0));
  const std::string mode = ctx.attributes().text("mode", "DCR");
  if (mode != "DCR" && mode != "CRD") ctx.fail(fmt::format("expected mode DCR or CRD, got '{}'", mode));
  const std::int64_t block = ctx.attributes().required_integer("blocksize");
  if (block < 1 || block > 1 << 20) ctx.fail(fmt::format("expected a blocksize of 1 to 2^20, got {}", block));
  const Shape& shape = ctx.shape(0);
  if (shape.size() != 4 || shape[2] % block != 0 || shape[3] % block != 0)
    ctx.fail(fmt::format("cannot cut the space of {} into blocks of {} x {}", to_string(shape), block, block));
  ctx.set_shape(0, {shape[0], shape[1] * block * block, shape[2] / block, shape[3] / block});
}

void run_space_to_depth(KernelContext& ctx) {
  const Shape& s = ctx.input(0).shape();
  const std::int64_t block = ctx.attributes().required_integer("blocksize");
  const Shape cut{s[0], s[1], s[2] / block, block, s[3] / block, block};
  const bool depth_first = ctx.attributes().text("mode", "DCR") == "DCR";
  const std::array<std::int64_t, 6> perm =
      depth_first ? std::array<std::int64_t, 6>{0, 3, 5, 1, 2, 4} : std::array<std::int64_t, 6>{0, 1, 3, 5, 2, 4};
  copy_permuted(ctx.input(0), cut, perm, ctx.output(0));
}

void adjoint_space_to_depth(AdjointContext& ctx) {
  const Shape& s = ctx.input_shape(0);
  const std::int64_t block = ctx.attributes().required_integer("blocksize"), h = s[2] / block, w = s[3] / block;
  const bool depth_first = ctx.attributes().text("mode", "DCR") == "DCR";
  const Value g = reshape(gradient(ctx),
                          depth_first ? Shape{s[0], block, block, s[1], h, w} : Shape{s[0], s[1], block, block, h, w});
  ctx.set(0, reshape(transpose(g, depth_first ? std::vector<std::int64_t>{0, 3, 4, 1, 5, 2}
                                              : std::vector<std::int64_t>{0, 1, 4, 2, 5, 3}),
                     s)
                 .id);
}

}  // namespace

OpDef space_to_depth() {
  return {.name = "SpaceToDepth",
          .types = {kEverything},
          .precision = PrecisionRule::kMovement,
          .kind = OpKind::kMovement,
          .moves_values = true,
          .infer = infer_space_to_depth,
          .run = run_space_to_depth,
          .adjoint = adjoint_space_to_depth};
}

}  // namespace ulpscope::ops
