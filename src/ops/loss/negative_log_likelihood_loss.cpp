// NegativeLogLikelihoodLoss, ai.onnx 12, 13, 22: the weighted loss of log probabilities (N, C, d...) for targets (N,
// d...).
#include "ops/loss/loss.h"

namespace ulpscope::ops {
namespace {

void run(KernelContext& ctx) { negative_log_likelihood(ctx, ctx.input(0)); }

}  // namespace

OpDef negative_log_likelihood_loss() {
  return {.name = "NegativeLogLikelihoodLoss", .since_version = 12, .inputs = {2, 3}, .infer = infer_loss, .run = run};
}

}  // namespace ulpscope::ops
