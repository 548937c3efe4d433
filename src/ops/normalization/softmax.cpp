// Softmax and its kin, and the losses of classification.
#include <cmath>

#include "ops/adjoint_values.h"
#include "ops/elementwise.h"
#include "ops/extremes.h"
#include "ops/rows.h"

namespace ulpscope::ops {
namespace {

/// NaN when there is one; -inf for no elements.
template <typename T>
T largest_of(const T* row, std::int64_t length) {
  T largest = -std::numeric_limits<T>::infinity();
  for (std::int64_t i = 0; i < length; ++i) largest = larger(largest, row[i]);
  return largest;
}

/// out = x - log(sum(e^x)) for one row, without overflow.
constexpr auto kLogShares = []<typename T>(const T* in, T* out, std::int64_t length) {
  const T largest = largest_of(in, length);
  const T sum = pairwise_sum<T>(0, length, [&](std::int64_t i) { return std::exp(in[i] - largest); });
  const T log_sum = std::log(sum);
  for (std::int64_t i = 0; i < length; ++i) out[i] = (in[i] - largest) - log_sum;
};

/// The axes of a row. Opset 13 on: the axis. Before: that axis (default 1) and all after it.
template <typename Context>
std::vector<std::int64_t> softmax_axes(const Context& ctx, std::int64_t rank) {
  const bool one_axis = ctx.opset() >= 13;
  std::int64_t axis = ctx.attributes().integer("axis", one_axis ? -1 : 1);
  // The flattening of old opsets takes axis == rank: rows of one element.
  if (!one_axis && axis == rank) return {};
  axis = normalize_axis(ctx, axis, rank);
  return one_axis ? std::vector<std::int64_t>{axis} : axes_from(axis, rank);
}

std::optional<std::vector<std::int64_t>> axes_of_softmax(const Layer& layer, std::int64_t rank, const Tensor*) {
  const bool one_axis = layer.opset >= 13;
  const std::int64_t axis = layer.attributes.integer("axis", one_axis ? -1 : 1), first = axis < 0 ? axis + rank : axis;
  if (!one_axis && first == rank) return std::vector<std::int64_t>{};
  if (first < 0 || first >= rank) return std::nullopt;
  return one_axis ? std::vector<std::int64_t>{first} : axes_from(first, rank);
}

void infer_softmax(InferContext& ctx) {
  infer_same_as_first(ctx);
  softmax_axes(ctx, ctx.rank(0));
}

constexpr auto kShares = []<typename T>(const T* in, T* out, std::int64_t length) {
  const T largest = largest_of(in, length);
  for (std::int64_t i = 0; i < length; ++i) out[i] = std::exp(in[i] - largest);
  const T sum = pairwise_sum<T>(0, length, [&](std::int64_t i) { return out[i]; });
  for (std::int64_t i = 0; i < length; ++i) out[i] /= sum;
};

constexpr auto kFirstLargest = []<typename T>(const T* in, T* out, std::int64_t length) {
  std::fill(out, out + length, T{0});
  if (length == 0) return;
  if constexpr (std::is_same_v<T, float>)
    out[in[0] != in[0] ? 0 : find_first(in, length, extremes_of(in, length).high)] = 1;
  else
    out[std::max_element(in, in + length) - in] = 1;
};

/// A row of the table: f(const T* in, T* out, length) for every row.
template <typename Rows>
OpDef softmax_row(OpDef op, Rows, void (*adjoint)(AdjointContext&) = nullptr) {
  op.types = {kFloats};
  op.infer = infer_softmax;
  op.run = [](KernelContext& ctx) {
    const std::vector<std::int64_t> axes = softmax_axes(ctx, ctx.input(0).rank());
    with_type(FloatTypes{}, ctx, ctx.input(0).type(),
              [&](auto tag) { map_rows<decltype(tag)>(ctx.input(0), ctx.output(0), axes, Rows{}); });
  };
  op.adjoint = adjoint;
  op.axes = axes_of_softmax;
  return op;
}

std::vector<std::int64_t> axes_of_result(AdjointContext& ctx) {
  return softmax_axes(ctx, static_cast<std::int64_t>(ctx.input_shape(0).size()));
}

void adjoint_softmax(AdjointContext& ctx) {
  const Value y = output(ctx), share = gradient(ctx) * y;
  const std::vector<std::int64_t> axes = axes_of_result(ctx);
  ctx.set(0, (axes.empty() ? share - share * y : share - y * sum(share, axes)).id);
}

void adjoint_log_softmax(AdjointContext& ctx) {
  const Value y = output(ctx), g = gradient(ctx);
  ctx.set(0, (g - exp(y) * sum(g, axes_of_result(ctx))).id);
}

/// out = kLogShares of every row over `axes`.
void log_softmax(const KernelContext& ctx, const Tensor& in, Tensor& out, const std::vector<std::int64_t>& axes) {
  with_type(FloatTypes{}, ctx, in.type(), [&](auto tag) { map_rows<decltype(tag)>(in, out, axes, kLogShares); });
}

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
  require_type_of_first(ctx, {2});
  const std::string reduction = ctx.attributes().text("reduction", "mean");
  if (reduction != "none" && reduction != "sum" && reduction != "mean")
    ctx.fail("expected reduction none, sum or mean, got '{}'", reduction);
  const Shape& values = ctx.shape(0);
  const Shape& targets = ctx.shape(1);
  Shape expected = values;
  if (values.size() < 2) ctx.fail("expected values (N, C, ...), got shape {}", to_string(values));
  expected.erase(expected.begin() + 1);
  if (targets != expected) ctx.fail("expected targets of shape {}, got {}", to_string(expected), to_string(targets));
  if (ctx.has_input(2) && ctx.shape(2) != Shape{values[1]})
    ctx.fail("expected {} weights, one per class, got shape {}", values[1], to_string(ctx.shape(2)));
  ctx.set_shape(0, reduction == "none" ? targets : Shape{});
}

/// loss = -weight[target] * log_probabilities[target] per target, reduced as the attribute says. A target that equals
/// ignore_index counts for nothing; other targets must be in [0, C). "mean" divides by the sum of the weights.
void negative_log_likelihood(KernelContext& ctx, const Tensor& log_probabilities) {
  const std::vector<std::int64_t> targets = ctx.input_ints(1);
  const Shape& shape = log_probabilities.shape();
  const std::int64_t classes = shape[1], inner = product(shape, 2, shape.size());
  const bool ignores = ctx.attributes().has("ignore_index");
  const std::int64_t ignored = ctx.attributes().integer("ignore_index", 0);
  with_type(FloatTypes{}, ctx, log_probabilities.type(), [&]<typename T>(T) {
    const T* x = log_probabilities.data<T>();
    const T* class_weights = ctx.has_input(2) ? ctx.input(2).data<T>() : nullptr;
    std::vector<T> losses(targets.size(), T{0}), weights(targets.size(), T{0});
    for (std::size_t i = 0; i < targets.size(); ++i) {
      const std::int64_t target = targets[i];
      if (ignores && target == ignored) continue;
      if (target < 0 || target >= classes) ctx.fail("target {} is outside of [0, {}]", target, classes - 1);
      const auto at = static_cast<std::int64_t>(i);
      weights[i] = class_weights != nullptr ? class_weights[target] : T{1};
      losses[i] = -weights[i] * x[(at / inner * classes + target) * inner + at % inner];
    }
    reduce_losses(ctx, losses, weights);
  });
}

void run_negative_log_likelihood(KernelContext& ctx) { negative_log_likelihood(ctx, ctx.input(0)); }

void infer_cross_entropy(InferContext& ctx) {
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

OpTable softmax() {
  return {
      // Softmax, ai.onnx 1, 11 (flattens from axis on), 13 (along axis): e^x / sum(e^x), without overflow.
      softmax_row({.name = "Softmax", .kind = OpKind::kSoftmax, .function = Function::kSoftmax}, kShares,
                  adjoint_softmax),
      // LogSoftmax, ai.onnx 1, 11 (flattens from axis on), 13 (along axis): x - log(sum(e^x)), without overflow.
      softmax_row({.name = "LogSoftmax", .kind = OpKind::kSoftmax, .function = Function::kLogSoftmax}, kLogShares,
                  adjoint_log_softmax),
      // Hardmax, ai.onnx 1, 11 (flattens from axis on), 13 (along axis): 1 for the first of the largest elements, else
      // 0.
      softmax_row({.name = "Hardmax"}, kFirstLargest),
      // NegativeLogLikelihoodLoss, ai.onnx 12, 13, 22: the weighted loss of log probabilities (N, C, d...) for targets
      // (N, d...).
      make_op({.name = "NegativeLogLikelihoodLoss",
               .since_version = 12,
               .inputs = {2, 3},
               .types = {kFloats, kIndices, kFloats}},
              infer_loss, run_negative_log_likelihood),
      // SoftmaxCrossEntropyLoss, ai.onnx 12, 13: NegativeLogLikelihoodLoss of the log softmax of scores over axis 1;
      // the log probabilities are output 1.
      make_op({.name = "SoftmaxCrossEntropyLoss",
               .since_version = 12,
               .inputs = {2, 3},
               .outputs = {1, 2},
               .types = {kFloats, kIndices, kFloats}},
              infer_cross_entropy, run_cross_entropy),
  };
}

}  // namespace ulpscope::ops
