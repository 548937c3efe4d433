// ReverseSequence, ai.onnx 10, 28: reverses the first sequence_lens[b] entries of each sequence b.
#include "ops/adjoint_values.h"
#include "ops/movement.h"

namespace ulpscope::ops {
namespace {

void infer_reverse_sequence(InferContext& ctx) {
  ctx.set_type(0, ctx.type(0));
  const Shape& shape = ctx.shape(0);
  const std::int64_t batch_axis = ctx.attributes().integer("batch_axis", 1),
                     time_axis = ctx.attributes().integer("time_axis", 0);
  if (shape.size() < 2 || batch_axis < 0 || batch_axis > 1 || time_axis != 1 - batch_axis)
    ctx.fail(fmt::format("batch axis {} and time axis {} are not the first two of {}", batch_axis, time_axis,
                         to_string(shape)));
  const Shape expected{shape[static_cast<std::size_t>(batch_axis)]};
  if (ctx.shape(1) != expected)
    ctx.fail(fmt::format("expected sequence_lens of shape {}, got {}", to_string(expected), to_string(ctx.shape(1))));
  ctx.set_shape(0, shape);
}

void run_reverse_sequence(KernelContext& ctx) {
  const Tensor& in = ctx.input(0);
  Tensor& out = ctx.output(0);
  const bool batch_first = ctx.attributes().integer("batch_axis", 1) == 0;
  const std::int64_t batches = in.shape()[batch_first ? 0 : 1], times = in.shape()[batch_first ? 1 : 0];
  const std::int64_t row = product(in.shape(), 2, in.shape().size());
  const std::vector<std::int64_t> lengths = ctx.integers(1);
  const std::size_t bytes = static_cast<std::size_t>(row) * size_of(in.type());
  const auto place = [&](std::int64_t b, std::int64_t t) {
    return (batch_first ? b * times + t : t * batches + b) * row;
  };
  for (std::int64_t b = 0; b < batches; ++b) {
    const std::int64_t length = lengths[static_cast<std::size_t>(b)];
    if (length < 0 || length > times)
      ctx.fail(fmt::format("sequence {} has length {}, which is outside of [0, {}]", b, length, times));
    for (std::int64_t t = 0; t < times && bytes != 0; ++t)
      std::memcpy(element(out, place(b, t)), element(in, place(b, t < length ? length - 1 - t : t)), bytes);
  }
}

void adjoint_reverse_sequence(AdjointContext& ctx) {
  const std::int64_t batch_axis = ctx.attributes().integer("batch_axis", 1);
  ctx.set(0, ctx.add("ReverseSequence", {ctx.gradient(0), ctx.input(1)},
                     {{"batch_axis", batch_axis}, {"time_axis", 1 - batch_axis}}));
}

}  // namespace

OpDef reverse_sequence() {
  return {.name = "ReverseSequence",
          .since_version = 10,
          .inputs = {2, 2},
          .types = {kEverything, kIndices},
          .precision = PrecisionRule::kMovement,
          .kind = OpKind::kMovement,
          .moves_values = true,
          .infer = infer_reverse_sequence,
          .run = run_reverse_sequence,
          .adjoint = adjoint_reverse_sequence};
}

}  // namespace ulpscope::ops
