// LayerNormalization and its kin: rows over the axes from `axis` on become standard, then are scaled and shifted.
#include "ops/normalization/normalization.h"

namespace ulpscope::ops {
namespace {

Tensor* wanted_output(const KernelContext& ctx, int i) { return ctx.has_output(i) ? &ctx.output(i) : nullptr; }
const Tensor* given_input(const KernelContext& ctx, int i) { return ctx.has_input(i) ? &ctx.input(i) : nullptr; }

/// What differs between the operators of the table: where scale, shift and bias are (-1: there is none), where the mean
/// and the inverse deviation go, and whether input 1 is added first, with the sum as output 3.
struct Form {
  bool centered = true;
  int scale = 1, shift = -1, mean_output = -1, inverse_output = -1;
  bool skip = false;
  int bias = -1;
  float epsilon = 1e-5F;
};

void infer_with_skip(InferContext& ctx) {
  ctx.set_type(3, ctx.type(0));
  infer_layer_normalization(ctx);
  ctx.set_shape(3, ctx.shape(0));
}

/// x + skip (+ bias); also written to output 3 where that is wanted.
Tensor sum_with_skip(const KernelContext& ctx, int bias) {
  const Tensor& x = ctx.input(0);
  Tensor sum = ctx.has_output(3) ? ctx.output(3) : Tensor(x.type(), x.shape());
  const auto add = [](auto a, auto b) { return a + b; };
  const BinaryLoop loop = find_binary_loop<FloatTypes, decltype(add)>(ctx);
  map_binary(x, ctx.input(1), sum, loop);
  if (ctx.has_input(bias)) map_binary(sum, ctx.input(bias), sum, loop);
  return sum;
}

template <Form form>
void run_normalization(KernelContext& ctx) {
  const Tensor x = form.skip ? sum_with_skip(ctx, form.bias) : ctx.input(0);
  Tensor y = ctx.has_output(0) ? ctx.output(0) : Tensor(x.type(), x.shape());
  const float epsilon = ctx.attributes().real("epsilon", form.epsilon);
  Tensor* inverses = form.inverse_output < 0 ? nullptr : wanted_output(ctx, form.inverse_output);
  if (form.centered)
    return layer_normalize(ctx, x, ctx.input(form.scale), given_input(ctx, form.shift), epsilon, y,
                           wanted_output(ctx, form.mean_output), inverses);
  rms_normalize(ctx, x, ctx.input(form.scale), epsilon, y, inverses);
  if (form.inverse_output == 2 && ctx.has_output(1))  // there is no mean
    std::fill_n(ctx.output(1).data<float>(), ctx.output(1).size(), 0.0F);
}

template <Form form>
void adjoint_normalization_row(AdjointContext& ctx) {
  Value x = input(ctx, 0);
  if (form.skip) x = x + input(ctx, 1);
  if (form.bias >= 0 && ctx.has_input(form.bias)) x = x + input(ctx, form.bias);
  const double epsilon = static_cast<double>(ctx.attributes().real("epsilon", form.epsilon));
  Value gx = normalization_adjoint(ctx, x, ctx.attributes().integer("axis", -1), epsilon, form.centered, form.scale,
                                   form.shift, form.mean_output, form.inverse_output);
  if (form.skip && ctx.gradient(3) != kNone) gx = gx + gradient(ctx, 3);
  if (!form.skip) {
    if (ctx.wants(0)) ctx.set(0, gx.id);
    return;
  }
  for (int i : {0, 1, form.bias})
    if (ctx.wants(i)) set(ctx, i, gx);
}

std::optional<std::vector<std::int64_t>> normalized_axes(const Layer& layer, std::int64_t rank, const Tensor*) {
  const std::int64_t axis = layer.attributes.integer("axis", -1), first = axis < 0 ? axis + rank : axis;
  if (first < 0 || first >= rank) return std::nullopt;
  return axes_from(first, rank);
}

/// A row of the table.
template <Form form>
OpDef normalization(OpDef op) {
  op.types = {kFloats};
  op.kind = OpKind::kNormalization;
  op.weights = 1U << form.scale | (form.shift < 0 ? 0U : 1U << form.shift) | (form.bias < 0 ? 0U : 1U << form.bias);
  if (op.infer == nullptr) op.infer = form.skip ? infer_with_skip : infer_layer_normalization;
  op.run = run_normalization<form>;
  op.adjoint = adjoint_normalization_row<form>;
  op.axes = normalized_axes;
  return op;
}

}  // namespace

OpTable layer_normalization() {
  constexpr std::string_view kMicrosoft = "com.microsoft";
  return {
      // LayerNormalization, ai.onnx 17: standardizes.
      normalization<Form{.shift = 2, .mean_output = 1, .inverse_output = 2}>(
          {.name = "LayerNormalization",
           .since_version = 17,
           .inputs = {2, 3},
           .outputs = {1, 3},
           .function = Function::kLayerNormalization}),
      // RMSNormalization, ai.onnx 23: divides by the root of the mean square.
      normalization<Form{.centered = false}>({.name = "RMSNormalization",
                                              .since_version = 23,
                                              .inputs = {2, 2},
                                              .function = Function::kRmsNormalization,
                                              .infer = infer_same_as_first}),
      // SimplifiedLayerNormalization, as ONNX Runtime's fusions write it into ai.onnx: RMSNormalization with the
      // inverse
      // deviation as output 1.
      normalization<Form{.centered = false, .inverse_output = 1}>({.name = "SimplifiedLayerNormalization",
                                                                   .inputs = {2, 2},
                                                                   .outputs = {1, 2},
                                                                   .function = Function::kRmsNormalization}),
      // SkipLayerNormalization, com.microsoft 1: LayerNormalization of x + skip + bias over the last axis.
      normalization<Form{
          .scale = 2, .shift = 3, .mean_output = 1, .inverse_output = 2, .skip = true, .bias = 4, .epsilon = 1e-12F}>(
          {.name = "SkipLayerNormalization", .domain = kMicrosoft, .inputs = {3, 5}, .outputs = {1, 4}}),
      // SkipSimplifiedLayerNormalization, com.microsoft 1: RMSNormalization of x + skip + bias over the last axis.
      normalization<Form{
          .centered = false, .scale = 2, .inverse_output = 2, .skip = true, .bias = 3, .epsilon = 1e-12F}>(
          {.name = "SkipSimplifiedLayerNormalization", .domain = kMicrosoft, .inputs = {3, 4}, .outputs = {1, 4}}),
  };
}

}  // namespace ulpscope::ops
