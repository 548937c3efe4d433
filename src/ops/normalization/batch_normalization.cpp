// Normalization over the batch, neighboring channels, and given axes.
#include <cmath>

#include "ops/adjoint_values.h"
#include "ops/elementwise.h"
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
  for (int i = 1; i < 5; ++i) ctx.set_type(i, ctx.type(kMean));
  ctx.set_shape(0, ctx.shape(kX));
  for (int i = 1; i < 5; ++i) ctx.set_shape(i, ctx.shape(kMean));
  const std::int64_t channels = channel_layout(ctx, ctx.shape(kX)).channels;
  for (int i = kScale; i <= kVariance; ++i)
    if (num_elements(ctx.shape(i)) != channels)
      ctx.fail("expected {} elements, one per channel, as input {}, got shape {}", channels, i,
               to_string(ctx.shape(i)));
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
      ctx.fail("expected {} elements, one per channel, as input {}, got {}", layout.channels, i, ctx.input(i).size());
  with_type(FloatTypes{}, ctx, x.type(), [&]<typename T>(T) {
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
    parallel_each(layout.samples * layout.channels, rows_per_task(layout.inner), [&](std::int64_t plane) {
      const std::int64_t c = plane % layout.channels;
      const T factor = s[c] / std::sqrt(v[c] + epsilon);
      for (std::int64_t i = plane * layout.inner; i < (plane + 1) * layout.inner; ++i)
        out[i] = (in[i] - m[c]) * factor + b[c];
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
  const Value centered = (input(ctx, kX) - parameter(kMean)) * inverse;
  if (ctx.wants(kScale)) give(kScale, g * centered);
  if (ctx.wants(kVariance)) give(kVariance, g * centered * (parameter(kScale) * square(inverse) * -0.5));
}

void run_mean_variance_normalization(KernelContext& ctx) {
  const Tensor& in = ctx.input(0);
  const std::vector<std::int64_t> axes = normalize_axes(ctx, ctx.attributes().ints("axes", {0, 2, 3}), in.rank());
  with_type(FloatTypes{}, ctx, in.type(), [&]<typename T>(T) {
    map_rows<T>(in, ctx.output(0), axes, [](const T* x, T* y, std::int64_t length) {
      const T mean = mean_of(x, length);
      const T deviation = std::sqrt(variance_of(x, length, mean)) + T(1e-9);
      for (std::int64_t i = 0; i < length; ++i) y[i] = (x[i] - mean) / deviation;
    });
  });
}

void adjoint_mean_variance_normalization(AdjointContext& ctx) {
  std::vector<std::int64_t> axes = ctx.attributes().ints("axes", {0, 2, 3});
  for (std::int64_t& axis : axes) axis = positive_axis(axis, ctx.input_shape(0).size());
  const Value x = input(ctx, 0), centered = x - mean(x, axes), deviation = sqrt(mean(square(centered), axes));
  const Value inverse = 1 / (deviation + 1e-9), y = centered * inverse;
  const Value g = (gradient(ctx) - centered / deviation * mean(gradient(ctx) * y, axes)) * inverse;
  ctx.set(0, (g - mean(g, axes)).id);
}

std::optional<std::vector<std::int64_t>> axes_of_mean_variance(const Layer& layer, std::int64_t rank, const Tensor*) {
  return sorted_axes(layer.attributes.ints("axes", {0, 2, 3}), rank);
}

void run_lp_normalization(KernelContext& ctx) {
  const Tensor& in = ctx.input(0);
  const std::int64_t p = ctx.attributes().integer("p", 2);
  if (p != 1 && p != 2) ctx.fail("expected p = 1 or 2, got {}", p);
  const std::int64_t axis = normalize_axis(ctx, ctx.attributes().integer("axis", -1), in.rank());
  with_type(FloatTypes{}, ctx, in.type(), [&]<typename T>(T) {
    map_rows<T>(in, ctx.output(0), {axis}, [p](const T* x, T* y, std::int64_t length) {
      const T norm = p == 1 ? pairwise_sum<T>(0, length, [&](std::int64_t i) { return std::abs(x[i]); })
                            : std::sqrt(pairwise_sum<T>(0, length, [&](std::int64_t i) { return x[i] * x[i]; }));
      for (std::int64_t i = 0; i < length; ++i) y[i] = norm == 0 ? T{0} : x[i] / norm;
    });
  });
}

void adjoint_lp_normalization(AdjointContext& ctx) {
  const Value x = input(ctx, 0), y = output(ctx), g = gradient(ctx);
  const bool first = ctx.attributes().integer("p", 2) == 1;
  const std::vector<std::int64_t> axes{positive_axis(ctx.attributes().integer("axis", -1), ctx.input_shape(0).size())};
  const Value norm = first ? sum(abs(x), axes) : sqrt(sum(square(x), axes));
  const Value along = (first ? sign(x) : y) * sum(g * y, axes);
  ctx.set(0, ((g - along) * sign(norm) / (norm + (1 - sign(norm)))).id);  // 0 where the norm is
}

void infer_lrn(InferContext& ctx) {
  infer_same_as_first(ctx);
  if (ctx.rank(0) < 2) ctx.fail("expected an input (N, C, ...), got shape {}", to_string(ctx.shape(0)));
}

void run_lrn(KernelContext& ctx) {
  const Tensor& in = ctx.input(0);
  const std::int64_t size = ctx.attributes().required_integer("size");
  if (size < 1) ctx.fail("expected a positive size, got {}", size);
  const float alpha = ctx.attributes().real("alpha", 1e-4F), beta = ctx.attributes().real("beta", 0.75F);
  const float bias = ctx.attributes().real("bias", 1);
  const std::int64_t channels = in.shape()[1], inner = product(in.shape(), 2, in.shape().size());
  const std::int64_t before = (size - 1) / 2, after = size - 1 - before;
  with_type(FloatTypes{}, ctx, in.type(), [&]<typename T>(T) {
    const T* x = in.data<T>();
    T* y = ctx.output(0).data<T>();
    const T factor = static_cast<T>(alpha) / static_cast<T>(size);
    parallel_each(
        in.shape()[0] * channels,
        std::max<std::int64_t>(1, kElementsPerTask / std::max<std::int64_t>(1, inner * std::min(size, channels))),
        [&](std::int64_t plane) {
          const std::int64_t c = plane % channels;
          const T* sample = x + (plane - c) * inner;
          const std::int64_t first = std::max<std::int64_t>(0, c - before), last = std::min(channels - 1, c + after);
          for (std::int64_t i = 0; i < inner; ++i) {
            T sum = 0;
            for (std::int64_t k = first; k <= last; ++k) sum += sample[k * inner + i] * sample[k * inner + i];
            y[plane * inner + i] =
                sample[c * inner + i] / std::pow(static_cast<T>(bias) + factor * sum, static_cast<T>(beta));
          }
        });
  });
}

/// The sums over each channel (dimension 1) and so many before and after it.
Value channel_sums(Value x, std::int64_t before, std::int64_t after) {
  const Shape shape = x.shape();
  const std::int64_t size = before + 1 + after;
  const Value plane = reshape(x, {shape[0], 1, shape[1], product(shape, 2, shape.size())});
  const Value means{x.ctx, x.ctx->add("AveragePool", {plane.id},
                                      {{"kernel_shape", Shape{size, 1}},
                                       {"pads", Shape{before, 0, after, 0}},
                                       {"count_include_pad", std::int64_t{1}}})};
  return reshape(means * static_cast<double>(size), shape);
}

void adjoint_lrn(AdjointContext& ctx) {
  if (num_elements(ctx.input_shape(0)) == 0) return ctx.set(0, zeros(ctx, ctx.input_shape(0)).id);
  const std::int64_t size = ctx.attributes().required_integer("size");
  const double alpha = static_cast<double>(ctx.attributes().real("alpha", 1e-4F)),
               beta = static_cast<double>(ctx.attributes().real("beta", 0.75F)),
               bias = static_cast<double>(ctx.attributes().real("bias", 1));
  const std::int64_t before = (size - 1) / 2, after = size - 1 - before;
  const double factor = alpha / static_cast<double>(size);
  const Value x = input(ctx, 0), g = gradient(ctx);
  const Value base = channel_sums(square(x), before, after) * factor + bias, scaled = g * power(base, -beta);
  const Value through = channel_sums(scaled * x / base, after, before);
  ctx.set(0, (scaled - x * through * (2 * factor * beta)).id);
}

}  // namespace

OpTable batch_normalization() {
  return {
      // BatchNormalization, ai.onnx 1, 6, 7 (attribute spatial), 9, 14, 15 (training_mode): (x - mean) / sqrt(variance
      // + epsilon) * scale + shift per channel. Training computes mean and variance from x, and updates the running
      // ones.
      make_op({.name = "BatchNormalization",
               .inputs = {5, 5},
               .outputs = {1, 5},
               .types = {kFloats},
               .kind = OpKind::kNormalization,
               .function = Function::kBatchNormalization,
               .weights = 0b11110},
              infer_batch_normalization, run_batch_normalization, adjoint_batch_normalization),
      // MeanVarianceNormalization, ai.onnx 9, 13: (x - mean) / (deviation + 1e-9) over axes (default 0, 2, 3).
      make_op({.name = "MeanVarianceNormalization",
               .since_version = 9,
               .types = {kFloats},
               .kind = OpKind::kNormalization,
               .axes = axes_of_mean_variance},
              infer_same_as_first, run_mean_variance_normalization, adjoint_mean_variance_normalization),
      // LpNormalization, ai.onnx 1, 22: divides by the 1- or 2-norm along an axis; 0 where that is 0.
      make_op({.name = "LpNormalization",
               .types = {kFloats},
               .kind = OpKind::kNormalization,
               .axes = axes_of_attribute<-1>},
              infer_same_as_first, run_lp_normalization, adjoint_lp_normalization),
      // LRN, ai.onnx 1, 13: x / (bias + alpha / size * sum of squares over `size` neighboring channels)^beta.
      make_op({.name = "LRN", .types = {kFloats}, .kind = OpKind::kNormalization}, infer_lrn, run_lrn, adjoint_lrn),
  };
}

}  // namespace ulpscope::ops
