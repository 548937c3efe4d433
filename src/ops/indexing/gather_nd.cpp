// GatherND, ai.onnx 11, 12 (batch_dims), 13: slices chosen by index tuples.
#include <algorithm>

#include "ops/adjoint_values.h"
#include "ops/movement.h"

namespace ulpscope::ops {
namespace {

struct GatherLayout {
  std::size_t batch_dims;
  std::size_t depth;  ///< Length of an index tuple.
};

template <typename Context>
GatherLayout gather_layout(const Context& ctx, const Shape& data, const Shape& indices) {
  const std::int64_t batch = ctx.attributes().integer("batch_dims", 0);
  const auto fits = [&] {
    if (batch < 0 || batch >= static_cast<std::int64_t>(std::min(data.size(), indices.size()))) return false;
    if (indices.back() < 0 || indices.back() > static_cast<std::int64_t>(data.size()) - batch) return false;
    return std::equal(data.begin(), data.begin() + batch, indices.begin());
  };
  if (!fits())
    ctx.fail(fmt::format("indices of shape {} do not fit data of shape {} with batch_dims {}", to_string(indices),
                         to_string(data), batch));
  return {static_cast<std::size_t>(batch), static_cast<std::size_t>(indices.back())};
}

void infer_gather_nd(InferContext& ctx) {
  ctx.set_type(0, ctx.type(0));
  const Shape &data = ctx.shape(0), &indices = ctx.shape(1);
  const GatherLayout layout = gather_layout(ctx, data, indices);
  Shape result(indices.begin(), indices.end() - 1);
  result.insert(result.end(), data.begin() + static_cast<std::ptrdiff_t>(layout.batch_dims + layout.depth), data.end());
  ctx.set_shape(0, std::move(result));
}

void run_gather_nd(KernelContext& ctx) {
  const Tensor& in = ctx.input(0);
  Tensor& out = ctx.output(0);
  const Shape& data = in.shape();
  const Shape& indices = ctx.input(1).shape();
  const auto [batch_dims, depth] = gather_layout(ctx, data, indices);
  if (out.size() == 0) return;
  const std::vector<std::int64_t> values = ctx.integers(1), strides = strides_of(data);
  const std::int64_t slice = product(data, batch_dims + depth, data.size());
  const std::int64_t batches = product(data, 0, batch_dims), per_batch = product(data, batch_dims, data.size());
  const std::int64_t tuples = product(indices, batch_dims, indices.size() - 1);
  const std::size_t bytes = static_cast<std::size_t>(slice) * size_of(in.type());
  std::size_t next = 0;
  for (std::int64_t row = 0; row < batches * tuples; ++row) {
    std::int64_t from = row / tuples * per_batch;
    for (std::size_t k = 0; k < depth; ++k)
      from += normalize_index(ctx, values[next++], data[batch_dims + k]) * strides[batch_dims + k];
    std::memcpy(element(out, row * slice), element(in, from), bytes);
  }
}

void adjoint_gather_nd(AdjointContext& ctx) {
  if (!ctx.wants(0)) return;
  const Shape &data = ctx.input_shape(0), &indices = ctx.input_shape(1);
  const auto [batch_dims, depth] = gather_layout(ctx, data, indices);
  // The dimensions of the batch are one more index in front of each tuple.
  const std::int64_t batches = product(data, 0, batch_dims), tuples = product(indices, batch_dims, indices.size() - 1);
  Tensor numbers(DataType::kInt64, {batches, tuples, 1});
  for (std::int64_t i = 0; i < numbers.size(); ++i) numbers.data<std::int64_t>()[i] = i / tuples;
  const Value given{&ctx, ctx.reshape(ctx.input(1), {batches, tuples, static_cast<std::int64_t>(depth)})};
  const Value wide{&ctx, ctx.add("Cast", {given.id}, {{"to", std::int64_t{7}}})};
  const Value pointers = concat(ctx, std::array{Value{&ctx, ctx.constant(numbers)}, wide}, 2);
  Shape rows{batches}, updates{batches, tuples};
  rows.insert(rows.end(), data.begin() + static_cast<std::ptrdiff_t>(batch_dims), data.end());
  updates.insert(updates.end(), data.begin() + static_cast<std::ptrdiff_t>(batch_dims + depth), data.end());
  const TensorId sums = ctx.add("ScatterND", {zeros(ctx, rows).id, pointers.id, ctx.reshape(ctx.gradient(0), updates)},
                                {{"reduction", std::string("add")}});
  ctx.set(0, ctx.reshape(sums, data));
}

}  // namespace

OpDef gather_nd() {
  return {.name = "GatherND",
          .since_version = 11,
          .inputs = {2, 2},
          .types = {kEverything, kIndices},
          .precision = PrecisionRule::kMovement,
          .kind = OpKind::kMovement,
          .selects = 0b10,
          .moves_values = true,
          .infer = infer_gather_nd,
          .run = run_gather_nd,
          .adjoint = adjoint_gather_nd};
}

}  // namespace ulpscope::ops
