#include "ops/normalization/softmax.h"

#include "ops/adjoint_values.h"

namespace ulpscope::ops {
namespace {

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
  if (length > 0) out[std::max_element(in, in + length) - in] = 1;
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

}  // namespace

void log_softmax(const KernelContext& ctx, const Tensor& in, Tensor& out, const std::vector<std::int64_t>& axes) {
  with_type(FloatTypes{}, ctx, in.type(), [&](auto tag) { map_rows<decltype(tag)>(in, out, axes, kLogShares); });
}

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
  };
}

}  // namespace ulpscope::ops
