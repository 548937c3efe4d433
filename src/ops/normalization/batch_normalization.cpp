// BatchNormalization, ai.onnx 1, 6, 7 (attribute spatial), 9, 14, 15 (training_mode): (x - mean) / sqrt(variance +
// epsilon) * scale + shift per channel. Training computes mean and variance from x, and updates the running ones.
#include <cmath>

#include "ops/adjoint_values.h"
#include "ops/movement.h"
#include "ops/normalization/normalization.h"

namespace ulpscope::ops {
namespace {

constexpr int kX = 0, kScale = 1, kShift = 2, kMean = 3, kVariance = 4;

/// x seen as (samples, channels, inner).
struct ChannelLayout {
  std::int64_t samples, channels, inner;
};

template <typename Context>
ChannelLayout channel_layout(const Context& ctx, const Shape& shape) {
  if (shape.empty()) ctx.fail("expected an input (N, C, ...), got a scalar");
  if (shape.size() == 1) return {shape[0], 1, 1};
  if (ctx.opset() < 9 && ctx.attributes().integer("spatial", 1) == 0)
    return {shape[0], product(shape, 1, shape.size()), 1};
  return {shape[0], shape[1], product(shape, 2, shape.size())};
}

void infer_batch_normalization(InferContext& ctx) {
  ctx.set_type(0, ctx.type(kX));
  for (int i = 1; i < 5; ++i) ctx.set_type(i, ctx.type(kMean));
  ctx.set_shape(0, ctx.shape(kX));
  for (int i = 1; i < 5; ++i) ctx.set_shape(i, ctx.shape(kMean));
  const std::int64_t channels = channel_layout(ctx, ctx.shape(kX)).channels;
  for (int i = kScale; i <= kVariance; ++i)
    if (num_elements(ctx.shape(i)) != channels)
      ctx.fail(fmt::format("expected {} elements, one per channel, as input {}, got shape {}", channels, i,
                           to_string(ctx.shape(i))));
}

template <typename Context>
bool updates_statistics(const Context& ctx) {
  if (ctx.opset() >= 14) return ctx.attributes().integer("training_mode", 0) != 0;
  const std::vector<TensorId>& outputs = ctx.layer().outputs;
  return std::any_of(outputs.begin() + 1, outputs.end(), [](TensorId id) { return id != kNone; });
}

/// Statistics of the batch, per channel.
template <typename T>
void measure(const Tensor& x, const ChannelLayout& layout, Tensor& mean, Tensor& variance) {
  const Rows rows = to_rows(x.reshaped({layout.samples, layout.channels, layout.inner}), {0, 2});
  for (std::int64_t c = 0; c < layout.channels; ++c) {
    const T* row = rows.tensor.data<T>() + c * rows.length;
    mean.data<T>()[c] = mean_of(row, rows.length);
    variance.data<T>()[c] = variance_of(row, rows.length, mean.data<T>()[c]);
  }
}

/// running = running * momentum + current * (1 - momentum), and the current values for the saved_* outputs.
template <typename T>
void update(KernelContext& ctx, int input, int running, int saved, const Tensor& current) {
  const T momentum = static_cast<T>(ctx.attributes().real("momentum", 0.9F));
  const Tensor before = parameter_as(ctx.input(input), current.type());
  if (ctx.has_output(running)) {
    Tensor after(current.type(), before.shape());
    for (std::int64_t c = 0; c < current.size(); ++c)
      after.data<T>()[c] = before.data<T>()[c] * momentum + current.data<T>()[c] * (T{1} - momentum);
    ctx.set_output(running, parameter_as(after, physical_type(ctx.output_type(running))));
  }
  if (ctx.has_output(saved))
    ctx.set_output(saved, parameter_as(current.reshaped(before.shape()), physical_type(ctx.output_type(saved))));
}

void run_batch_normalization(KernelContext& ctx) {
  const Tensor& x = ctx.input(kX);
  const ChannelLayout layout = channel_layout(ctx, ctx.input(kX).shape());
  for (int i = kScale; i <= kVariance; ++i)
    if (ctx.input(i).size() != layout.channels)
      ctx.fail(fmt::format("expected {} elements, one per channel, as input {}, got {}", layout.channels, i,
                           ctx.input(i).size()));
  with_type(FloatTypes{}, ctx, x.type(), [&](auto tag) {
    using T = decltype(tag);
    Tensor mean = parameter_as(ctx.input(kMean), x.type()), variance = parameter_as(ctx.input(kVariance), x.type());
    const Tensor scale = parameter_as(ctx.input(kScale), x.type()), shift = parameter_as(ctx.input(kShift), x.type());
    if (updates_statistics(ctx)) {
      mean = Tensor(x.type(), {layout.channels});
      variance = Tensor(x.type(), {layout.channels});
      measure<T>(x, layout, mean, variance);
      update<T>(ctx, kMean, 1, 3, mean);
      update<T>(ctx, kVariance, 2, 4, variance);
    }
    const T epsilon = static_cast<T>(ctx.attributes().real("epsilon", 1e-5F));
    const T *m = mean.data<T>(), *v = variance.data<T>(), *s = scale.data<T>(), *b = shift.data<T>();
    const T* in = x.data<T>();
    T* out = ctx.output(0).data<T>();
    parallel_for(layout.samples * layout.channels, rows_per_task(layout.inner),
                 [&](std::int64_t begin, std::int64_t end) {
                   for (std::int64_t plane = begin; plane < end; ++plane) {
                     const std::int64_t c = plane % layout.channels;
                     const T factor = s[c] / std::sqrt(v[c] + epsilon);
                     for (std::int64_t i = plane * layout.inner; i < (plane + 1) * layout.inner; ++i)
                       out[i] = (in[i] - m[c]) * factor + b[c];
                   }
                 });
  });
}

void adjoint_batch_normalization(AdjointContext& ctx) {
  if (updates_statistics(ctx) || ctx.gradient(0) == kNone) {
    for (int i = 0; i < ctx.num_inputs(); ++i) ctx.leave_out(i);
    return;
  }
  const Shape& shape = ctx.input_shape(kX);
  Shape channels(shape.size(), 1);
  if (num_elements(ctx.input_shape(kScale)) == product(shape, 1, shape.size()))
    std::copy(shape.begin() + 1, shape.end(), channels.begin() + 1);  // spatial = 0, or nothing behind the channels
  else
    channels[1] = num_elements(ctx.input_shape(kScale));
  const auto parameter = [&](int i) { return reshape(input(ctx, i), channels); };
  const auto give = [&](int i, Value value) { ctx.set(i, reshape(sum_to(value, channels), ctx.input_shape(i)).id); };
  const Value g = gradient(ctx);
  const Value inverse = 1 / sqrt(parameter(kVariance) + static_cast<double>(ctx.attributes().real("epsilon", 1e-5F)));
  if (ctx.wants(kX)) ctx.set(kX, (g * (parameter(kScale) * inverse)).id);
  if (ctx.wants(kShift)) give(kShift, g);
  if (ctx.wants(kMean)) give(kMean, -g * (parameter(kScale) * inverse));
  if (!ctx.wants(kScale) && !ctx.wants(kVariance)) return;
  const Value centred = (input(ctx, kX) - parameter(kMean)) * inverse;
  if (ctx.wants(kScale)) give(kScale, g * centred);
  if (ctx.wants(kVariance)) give(kVariance, g * centred * (parameter(kScale) * square(inverse) * -0.5));
}

}  // namespace

OpDef batch_normalization() {
  return {.name = "BatchNormalization",
          .inputs = {5, 5},
          .outputs = {1, 5},
          .types = {kFloats},
          .kind = OpKind::kNormalization,
          .function = Function::kBatchNormalization,
          .weights = 0b11110,
          .infer = infer_batch_normalization,
          .run = run_batch_normalization,
          .adjoint = adjoint_batch_normalization};
}

}  // namespace ulpscope::ops
