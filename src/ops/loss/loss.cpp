// The two classification losses.
#include "ops/normalization/softmax.h"
#include "ops/type_rules.h"

namespace ulpscope::ops {
namespace {

template <typename T>
void reduce_losses(const KernelContext& ctx, const std::vector<T>& losses, const std::vector<T>& weights) {
  const std::string reduction = ctx.attributes().text("reduction", "mean");
  T* out = ctx.output(0).data<T>();
  const auto count = static_cast<std::int64_t>(losses.size());
  const auto sum_of = [&](const std::vector<T>& values) {
    return pairwise_sum<T>(0, count, [&](std::int64_t i) { return values[static_cast<std::size_t>(i)]; });
  };
  if (reduction == "none")
    std::copy(losses.begin(), losses.end(), out);
  else if (reduction == "sum")
    out[0] = sum_of(losses);
  else
    out[0] = sum_of(losses) / sum_of(weights);
}

/// Output 0: a scalar, or one loss per target with reduction "none". Inputs: values (N, C, d...), targets (N, d...).
void infer_loss(InferContext& ctx) {
  ctx.set_type(0, ctx.type(0));
  require_type_of_first(ctx, {2});
  const std::string reduction = ctx.attributes().text("reduction", "mean");
  if (reduction != "none" && reduction != "sum" && reduction != "mean")
    ctx.fail(fmt::format("expected reduction none, sum or mean, got '{}'", reduction));
  const Shape& values = ctx.shape(0);
  const Shape& targets = ctx.shape(1);
  Shape expected = values;
  if (values.size() < 2) ctx.fail(fmt::format("expected values (N, C, ...), got shape {}", to_string(values)));
  expected.erase(expected.begin() + 1);
  if (targets != expected)
    ctx.fail(fmt::format("expected targets of shape {}, got {}", to_string(expected), to_string(targets)));
  if (ctx.has_input(2) && ctx.shape(2) != Shape{values[1]})
    ctx.fail(fmt::format("expected {} weights, one per class, got shape {}", values[1], to_string(ctx.shape(2))));
  ctx.set_shape(0, reduction == "none" ? targets : Shape{});
}

/// loss = -weight[target] * log_probabilities[target] per target, reduced as the attribute says. A target that equals
/// ignore_index counts for nothing; other targets must be in [0, C). "mean" divides by the sum of the weights.
void negative_log_likelihood(KernelContext& ctx, const Tensor& log_probabilities) {
  const std::vector<std::int64_t> targets = ctx.integers(1);
  const Shape& shape = log_probabilities.shape();
  const std::int64_t classes = shape[1], inner = product(shape, 2, shape.size());
  const bool ignores = ctx.attributes().has("ignore_index");
  const std::int64_t ignored = ctx.attributes().integer("ignore_index", 0);
  with_type(FloatTypes{}, ctx, log_probabilities.type(), [&](auto tag) {
    using T = decltype(tag);
    const T* x = log_probabilities.data<T>();
    const T* class_weights = ctx.has_input(2) ? ctx.input(2).data<T>() : nullptr;
    std::vector<T> losses(targets.size(), T{0}), weights(targets.size(), T{0});
    for (std::size_t i = 0; i < targets.size(); ++i) {
      const std::int64_t target = targets[i];
      if (ignores && target == ignored) continue;
      if (target < 0 || target >= classes)
        ctx.fail(fmt::format("target {} is outside of [0, {}]", target, classes - 1));
      const auto at = static_cast<std::int64_t>(i);
      weights[i] = class_weights != nullptr ? class_weights[target] : T{1};
      losses[i] = -weights[i] * x[(at / inner * classes + target) * inner + at % inner];
    }
    reduce_losses(ctx, losses, weights);
  });
}

void run_negative_log_likelihood(KernelContext& ctx) { negative_log_likelihood(ctx, ctx.input(0)); }

void infer_cross_entropy(InferContext& ctx) {
  ctx.set_type(0, ctx.type(0));
  ctx.set_type(1, ctx.type(0));
  infer_loss(ctx);
  ctx.set_shape(1, ctx.shape(0));
}

void run_cross_entropy(KernelContext& ctx) {
  const Tensor& scores = ctx.input(0);
  Tensor log_probabilities = ctx.has_output(1) ? ctx.output(1) : Tensor(scores.type(), scores.shape());
  log_softmax(ctx, scores, log_probabilities, {1});
  if (ctx.has_output(0)) negative_log_likelihood(ctx, log_probabilities);
}

}  // namespace

OpTable loss() {
  return {
      // NegativeLogLikelihoodLoss, ai.onnx 12, 13, 22: the weighted loss of log probabilities (N, C, d...) for targets
      // (N, d...).
      {.name = "NegativeLogLikelihoodLoss",
       .since_version = 12,
       .inputs = {2, 3},
       .types = {kFloats, kIndices, kFloats},
       .infer = infer_loss,
       .run = run_negative_log_likelihood},
      // SoftmaxCrossEntropyLoss, ai.onnx 12, 13: NegativeLogLikelihoodLoss of the log softmax of scores over axis 1;
      // the
      // log probabilities are output 1.
      {.name = "SoftmaxCrossEntropyLoss",
       .since_version = 12,
       .inputs = {2, 3},
       .outputs = {1, 2},
       .types = {kFloats, kIndices, kFloats},
       .infer = infer_cross_entropy,
       .run = run_cross_entropy},
  };
}

}  // namespace ulpscope::ops
