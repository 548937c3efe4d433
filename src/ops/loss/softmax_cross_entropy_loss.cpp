// SoftmaxCrossEntropyLoss, ai.onnx 12, 13: NegativeLogLikelihoodLoss of the log softmax of scores over axis 1; the log
// probabilities are output 1.
#include "ops/loss/loss.h"
#include "ops/normalization/softmax.h"

namespace ulpscope::ops {
namespace {

void infer(InferContext& ctx) {
  ctx.set_type(0, ctx.type(0));
  ctx.set_type(1, ctx.type(0));
  infer_loss(ctx);
  ctx.set_shape(1, ctx.shape(0));
}

void run(KernelContext& ctx) {
  const Tensor& scores = ctx.input(0);
  Tensor log_probabilities = ctx.has_output(1) ? ctx.output(1) : Tensor(scores.type(), scores.shape());
  with_type(FloatTypes{}, ctx, scores.type(),
            [&](auto tag) { map_rows<decltype(tag)>(scores, log_probabilities, {1}, LogShares{}); });
  if (ctx.has_output(0)) negative_log_likelihood(ctx, log_probabilities);
}

}  // namespace

OpDef softmax_cross_entropy_loss() {
  return {.name = "SoftmaxCrossEntropyLoss",
          .since_version = 12,
          .inputs = {2, 3},
          .outputs = {1, 2},
          .infer = infer,
          .run = run};
}

}  // namespace ulpscope::ops
