// InstanceNormalization and GroupNormalization: channels, or groups of them, of every sample become standard.
#include "ops/normalization/normalization.h"

namespace ulpscope::ops {
namespace {

std::int64_t channels_of(const Shape& shape) { return shape.size() < 2 ? 1 : shape[1]; }

void run_instance(KernelContext& ctx) { group_normalize(ctx, channels_of(ctx.input(0).shape())); }
void adjoint_instance(AdjointContext& ctx) { group_normalization_adjoint(ctx, channels_of(ctx.input_shape(0))); }

std::int64_t groups_attribute(const Attributes& attributes) { return attributes.required_integer("num_groups"); }

void run_group(KernelContext& ctx) { group_normalize(ctx, groups_attribute(ctx.attributes())); }
void adjoint_group(AdjointContext& ctx) { group_normalization_adjoint(ctx, groups_attribute(ctx.attributes())); }

std::optional<std::vector<std::int64_t>> spatial_axes(const Layer&, std::int64_t rank, const Tensor*) {
  return axes_from(2, rank);
}

}  // namespace

OpTable group_normalization() {
  return {
      // InstanceNormalization, ai.onnx 1, 6, 22: standardizes every channel of every sample, then scales and shifts.
      {.name = "InstanceNormalization",
       .inputs = {3, 3},
       .types = {kFloats},
       .kind = OpKind::kNormalization,
       .function = Function::kInstanceNormalization,
       .weights = 0b110,
       .infer = infer_instance_normalization,
       .run = run_instance,
       .adjoint = adjoint_instance,
       .axes = spatial_axes},
      // GroupNormalization, ai.onnx 18 (parameters per group), 21 (per channel): standardizes groups of channels.
      {.name = "GroupNormalization",
       .since_version = 18,
       .inputs = {3, 3},
       .types = {kFloats},
       .kind = OpKind::kNormalization,
       .weights = 0b110,
       .infer = infer_same_as_first,
       .run = run_group,
       .adjoint = adjoint_group},
  };
}

}  // namespace ulpscope::ops
