#include "ops/normalization/normalization.h"

#include "ops/movement.h"
#include "ops/onnx_types.h"

namespace ulpscope::ops {
namespace {

std::int64_t first_axis(const KernelContext& ctx, std::int64_t rank) {
  return normalize_axis(ctx, ctx.attributes().integer("axis", -1), rank);
}

/// Calls function(row, x, y, length) for the rows over the axes from `axis` on.
template <typename T, typename Function>
void for_rows(const Tensor& x, Tensor& y, std::int64_t axis, const Function& function) {
  const std::int64_t length = product(x.shape(), static_cast<std::size_t>(axis), x.shape().size());
  const std::int64_t count = product(x.shape(), 0, static_cast<std::size_t>(axis));
  const T* in = x.data<T>();
  T* out = y.data<T>();
  parallel_for(count, rows_per_task(length), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) function(row, in + row * length, out + row * length, length);
  });
}

/// Means and inverse deviations may be asked for in another type than that of the elements.
void store(Tensor* out, std::vector<double> values) {
  if (out == nullptr) return;
  if (out->type() == DataType::kFloat64)
    std::copy(values.begin(), values.end(), out->data<double>());
  else
    std::transform(values.begin(), values.end(), out->data<float>(), [](double v) { return static_cast<float>(v); });
}

}  // namespace

void scale_and_shift(const KernelContext& ctx, Tensor& y, const Tensor& scale, const Tensor* shift) {
  const auto check = [&](const Tensor& parameter) {
    if (broadcast(parameter.shape(), y.shape()) != y.shape())
      ctx.fail(fmt::format("parameters of shape {} cannot be broadcast to {}", to_string(parameter.shape()),
                           to_string(y.shape())));
  };
  const auto product = [](auto a, auto b) { return a * b; };
  const auto sum = [](auto a, auto b) { return a + b; };
  check(scale);
  map_binary(y, scale, y, find_binary_loop<FloatTypes, decltype(product)>(ctx, y.type()));
  if (shift == nullptr) return;
  check(*shift);
  map_binary(y, *shift, y, find_binary_loop<FloatTypes, decltype(sum)>(ctx, y.type()));
}

DataType stash_type(const InferContext& ctx) {
  const DataType type = data_type_from_onnx(ctx.layer(), ctx.attributes().integer("stash_type", 1));
  return is_floating(type) ? type : DataType::kFloat32;
}

void infer_layer_normalization(InferContext& ctx) {
  ctx.set_type(0, ctx.type(0));
  ctx.set_type(1, stash_type(ctx));
  ctx.set_type(2, stash_type(ctx));
  Shape shape = ctx.shape(0);
  ctx.set_shape(0, shape);
  const auto axis = static_cast<std::size_t>(normalize_axis(ctx, ctx.attributes().integer("axis", -1), ctx.rank(0)));
  std::fill(shape.begin() + static_cast<std::ptrdiff_t>(axis), shape.end(), 1);
  ctx.set_shape(1, shape);
  ctx.set_shape(2, shape);
  for (int i = 1; i < ctx.num_inputs(); ++i)
    if (ctx.has_input(i) && broadcast(ctx.shape(i), ctx.shape(0)) != ctx.shape(0))
      ctx.fail(fmt::format("parameters of shape {} cannot be broadcast to {}", to_string(ctx.shape(i)),
                           to_string(ctx.shape(0))));
}

void layer_normalize(const KernelContext& ctx, const Tensor& x, const Tensor& scale, const Tensor* shift, float epsilon,
                     Tensor& y, Tensor* means, Tensor* inverses) {
  const std::int64_t axis = first_axis(ctx, x.rank());
  std::vector<double> mean(static_cast<std::size_t>(product(x.shape(), 0, static_cast<std::size_t>(axis)))),
      inverse(mean.size());
  with_type(FloatTypes{}, ctx, x.type(), [&](auto tag) {
    using T = decltype(tag);
    for_rows<T>(x, y, axis, [&](std::int64_t row, const T* in, T* out, std::int64_t length) {
      std::tie(mean[static_cast<std::size_t>(row)], inverse[static_cast<std::size_t>(row)]) =
          standardize(in, out, length, static_cast<T>(epsilon));
    });
    const Tensor factor = parameter_as(scale, x.type());
    const Tensor offset = shift != nullptr ? parameter_as(*shift, x.type()) : Tensor();
    scale_and_shift(ctx, y, factor, shift != nullptr ? &offset : nullptr);
  });
  store(means, std::move(mean));
  store(inverses, std::move(inverse));
}

void rms_normalize(const KernelContext& ctx, const Tensor& x, const Tensor& scale, float epsilon, Tensor& y,
                   Tensor* inverses) {
  const std::int64_t axis = first_axis(ctx, x.rank());
  std::vector<double> inverse(static_cast<std::size_t>(product(x.shape(), 0, static_cast<std::size_t>(axis))));
  with_type(FloatTypes{}, ctx, x.type(), [&](auto tag) {
    using T = decltype(tag);
    for_rows<T>(x, y, axis, [&](std::int64_t row, const T* in, T* out, std::int64_t length) {
      const T factor = T{1} / std::sqrt(mean_square_of(in, length) + static_cast<T>(epsilon));
      for (std::int64_t i = 0; i < length; ++i) out[i] = in[i] * factor;
      inverse[static_cast<std::size_t>(row)] = factor;
    });
    scale_and_shift(ctx, y, parameter_as(scale, x.type()), nullptr);
  });
  store(inverses, std::move(inverse));
}

void infer_instance_normalization(InferContext& ctx) {
  infer_same_as_first(ctx);
  const Shape& x = ctx.shape(0);
  if (x.size() < 2) ctx.fail(fmt::format("expected an input (N, C, ...), got shape {}", to_string(x)));
  for (int i : {1, 2})
    if (ctx.shape(i) != Shape{x[1]})
      ctx.fail(
          fmt::format("expected parameters of shape ({},), one per channel, got {}", x[1], to_string(ctx.shape(i))));
}

void group_normalize(KernelContext& ctx, std::int64_t groups) {
  const Tensor& x = ctx.input(0);
  const Shape& shape = x.shape();
  if (shape.size() < 2) ctx.fail(fmt::format("expected an input (N, C, ...), got shape {}", to_string(shape)));
  const std::int64_t channels = shape[1];
  if (groups < 1 || channels % groups != 0)
    ctx.fail(fmt::format("{} channels cannot be split into {} groups", channels, groups));
  const Tensor scale = parameter_as(ctx.input(1), x.type()), shift = parameter_as(ctx.input(2), x.type());
  // GroupNormalization 18 has one parameter per group.
  const bool per_group = scale.size() == groups && scale.size() != channels;
  if (scale.size() != (per_group ? groups : channels) || shift.size() != scale.size())
    ctx.fail(fmt::format("expected {} scales and biases, one per channel, got {} and {}", channels, scale.size(),
                         shift.size()));
  const std::int64_t inner = product(shape, 2, shape.size()), channels_per_group = groups == 0 ? 0 : channels / groups;
  const std::int64_t length = channels_per_group * inner;
  const float epsilon = ctx.attributes().real("epsilon", 1e-5F);
  with_type(FloatTypes{}, ctx, x.type(), [&](auto tag) {
    using T = decltype(tag);
    const T* in = x.data<T>();
    T* out = ctx.output(0).data<T>();
    const T* s = scale.data<T>();
    const T* b = shift.data<T>();
    parallel_for(shape[0] * groups, rows_per_task(length), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row) {
        T* y = out + row * length;
        standardize(in + row * length, y, length, static_cast<T>(epsilon));
        for (std::int64_t c = 0; c < channels_per_group; ++c) {
          const std::int64_t group = row % groups;
          const std::int64_t p = per_group ? group : group * channels_per_group + c;
          for (std::int64_t i = c * inner; i < (c + 1) * inner; ++i) y[i] = y[i] * s[p] + b[p];
        }
      }
    });
  });
}

}  // namespace ulpscope::ops
