// LayerNormalization and its kin: rows over the axes from `axis` on, or channels, or groups of them, become standard,
// then are scaled and shifted.
#include <cmath>

#include "ops/movement.h"
#include "ops/normalization/normalization.h"

namespace ulpscope::ops {
namespace {

template <typename T>
T mean_square_of(const T* row, std::int64_t length) {
  return pairwise_sum<T>(0, length, [&](std::int64_t i) { return row[i] * row[i]; }) / static_cast<T>(length);
}

/// out = (x - mean) / sqrt(variance + epsilon); returns mean and 1 / sqrt(variance + epsilon).
template <typename T>
std::pair<T, T> standardize(const T* in, T* out, std::int64_t length, T epsilon) {
  const T mean = mean_of(in, length);
  const T inverse = T{1} / std::sqrt(variance_of(in, length, mean) + epsilon);
  for (std::int64_t i = 0; i < length; ++i) out[i] = (in[i] - mean) * inverse;
  return {mean, inverse};
}

/// Calls function(row, x, y, length) for the rows over the axes from `axis` on.
template <typename T, typename Function>
void for_rows(const Tensor& x, Tensor& y, std::size_t axis, const Function& function) {
  const std::int64_t count = product(x.shape(), 0, axis), length = product(x.shape(), axis, x.shape().size());
  const T* in = x.data<T>();
  T* out = y.data<T>();
  parallel_each(count, rows_per_task(length),
                [&](std::int64_t row) { function(row, in + row * length, out + row * length, length); });
}

/// y = y * scale + shift, both broadcast to y; `shift` may be null.
void scale_and_shift(const KernelContext& ctx, Tensor& y, const Tensor& scale, const Tensor* shift) {
  const auto apply = [&](const Tensor& parameter, BinaryLoop loop) {
    if (broadcast(parameter.shape(), y.shape()) != y.shape())
      ctx.fail("parameters of shape {} cannot be broadcast to {}", to_string(parameter.shape()), to_string(y.shape()));
    map_binary(y, parameter_as(parameter, y.type()), y, loop);
  };
  const auto product = [](auto a, auto b) { return a * b; };
  const auto sum = [](auto a, auto b) { return a + b; };
  apply(scale, find_binary_loop<FloatTypes, decltype(product)>(ctx, y.type()));
  if (shift != nullptr) apply(*shift, find_binary_loop<FloatTypes, decltype(sum)>(ctx, y.type()));
}

/// The type that `stash_type` (a TensorProto.DataType) names; float32 for any that is not a float.
DataType stash_type(const InferContext& ctx) {
  const DataType type = data_type_from_onnx(ctx.layer(), ctx.attributes().integer("stash_type", 1));
  return is_floating(type) ? type : DataType::kFloat32;
}

/// Outputs 1 and 2 have the stash type and the shape of the input with 1 for the axes from `axis` on.
void infer_layer_normalization(InferContext& ctx) {
  ctx.set_type(1, stash_type(ctx));
  ctx.set_type(2, stash_type(ctx));
  Shape shape = ctx.shape(0);
  ctx.set_shape(0, shape);
  std::fill(shape.begin() + static_cast<std::ptrdiff_t>(axis_of(ctx, -1)), shape.end(), 1);
  ctx.set_shape(1, shape);
  ctx.set_shape(2, shape);
  for (int i = 1; i < ctx.num_inputs(); ++i)
    if (ctx.has_input(i) && broadcast(ctx.shape(i), ctx.shape(0)) != ctx.shape(0))
      ctx.fail("parameters of shape {} cannot be broadcast to {}", to_string(ctx.shape(i)), to_string(ctx.shape(0)));
}

/// What differs between the operators of the table: where scale, shift and bias are (-1: there is none), where the mean
/// and the inverse deviation go, and whether input 1 is added first, with the sum as output 3.
struct Form {
  bool centered = true;
  int scale = 1, shift = -1, mean_output = -1, inverse_output = -1;
  bool skip = false;
  int bias = -1;
  float epsilon = 1e-5F;
};

void infer_with_skip(InferContext& ctx) {
  ctx.set_type(3, ctx.type(0));
  infer_layer_normalization(ctx);
  ctx.set_shape(3, ctx.shape(0));
}

/// x + skip (+ bias); also written to output 3 where that is wanted.
Tensor sum_with_skip(const KernelContext& ctx, int bias) {
  const Tensor& x = ctx.input(0);
  Tensor sum = ctx.has_output(3) ? ctx.output(3) : Tensor(x.type(), x.shape());
  const auto add = [](auto a, auto b) { return a + b; };
  const BinaryLoop loop = find_binary_loop<FloatTypes, decltype(add)>(ctx);
  map_binary(x, parameter_as(ctx.input(1), x.type()), sum, loop);
  if (ctx.has_input(bias)) map_binary(sum, parameter_as(ctx.input(bias), x.type()), sum, loop);
  return sum;
}

/// Means and inverse deviations, which may be asked for in another type than that of the elements.
void store(const KernelContext& ctx, int o, const std::vector<double>& values) {
  if (o < 0 || !ctx.has_output(o)) return;
  Tensor& out = ctx.output(o);
  if (out.type() == DataType::kFloat64)
    std::copy(values.begin(), values.end(), out.data<double>());
  else
    std::transform(values.begin(), values.end(), out.data<float>(), [](double v) { return static_cast<float>(v); });
}

/// y = (x - mean) / sqrt(variance + epsilon) * scale + shift over the axes from `axis` on; x / sqrt(mean(x^2) +
/// epsilon) * scale when not centered.
void run_normalization(const KernelContext& ctx, const Form& form) {
  const Tensor x = form.skip ? sum_with_skip(ctx, form.bias) : ctx.input(0);
  Tensor y = ctx.has_output(0) ? ctx.output(0) : Tensor(x.type(), x.shape());
  const float epsilon = ctx.attributes().real("epsilon", form.epsilon);
  const std::size_t axis = axis_of(ctx, -1);
  std::vector<double> means(static_cast<std::size_t>(product(x.shape(), 0, axis))), inverses(means);
  with_type(FloatTypes{}, ctx, x.type(), [&]<typename T>(T) {
    for_rows<T>(x, y, axis, [&](std::int64_t row, const T* in, T* out, std::int64_t length) {
      const auto r = static_cast<std::size_t>(row);
      if (form.centered) {
        std::tie(means[r], inverses[r]) = standardize(in, out, length, static_cast<T>(epsilon));
        return;
      }
      const T factor = T{1} / std::sqrt(mean_square_of(in, length) + static_cast<T>(epsilon));
      for (std::int64_t i = 0; i < length; ++i) out[i] = in[i] * factor;
      inverses[r] = factor;
    });
  });
  const bool shifts = form.shift >= 0 && ctx.has_input(form.shift);
  scale_and_shift(ctx, y, ctx.input(form.scale), shifts ? &ctx.input(form.shift) : nullptr);
  store(ctx, form.mean_output, means);
  store(ctx, form.inverse_output, inverses);
  if (!form.centered && form.inverse_output == 2 && ctx.has_output(1))  // there is no mean
    std::fill_n(ctx.output(1).data<float>(), ctx.output(1).size(), 0.0F);
}

/// What normalize_adjoint finds on the way.
struct Normalized {
  Value inverse;   ///< 1 / sqrt(variance + epsilon), or of the mean square.
  Value result;    ///< x normalized, before scale and shift.
  Value gradient;  ///< Of x.
};

/// The gradient of x from that of its normalization over `axes`: (x - mean) * inverse, or x * inverse when not
/// `centered`.
Normalized normalize_adjoint(Value x, Value gradient, const std::vector<std::int64_t>& axes, double epsilon,
                             bool centered) {
  const Value c = centered ? x - mean(x, axes) : x;
  const Value inverse = 1 / sqrt(mean(square(c), axes) + epsilon);
  const Value result = c * inverse;
  const Value along = gradient - result * mean(gradient * result, axes);
  return {inverse, result, (centered ? along - mean(gradient, axes) : along) * inverse};
}

/// Gradients that arrive at the outputs with the mean and the inverse deviation count.
void adjoint_normalization(AdjointContext& ctx, const Form& form) {
  Value x = input(ctx, 0);
  if (form.skip) x = x + input(ctx, 1);
  if (form.bias >= 0 && ctx.has_input(form.bias)) x = x + input(ctx, form.bias);
  const Shape shape = x.shape();
  const double epsilon = static_cast<double>(ctx.attributes().real("epsilon", form.epsilon));
  const std::vector<std::int64_t> axes =
      axes_after(positive_axis(ctx.attributes().integer("axis", -1), shape.size()), shape.size());
  const Value g = ctx.gradient(0) != kNone ? gradient(ctx, 0) : zeros(ctx, shape);
  const Normalized n = normalize_adjoint(x, g * input(ctx, form.scale), axes, epsilon, form.centered);
  if (ctx.wants(form.scale)) set(ctx, form.scale, g * n.result);
  if (form.shift >= 0 && ctx.wants(form.shift)) set(ctx, form.shift, g);
  Value gx = n.gradient;
  double count = 1;
  for (std::int64_t a : axes) count *= static_cast<double>(shape[static_cast<std::size_t>(a)]);
  if (form.mean_output >= 0 && ctx.gradient(form.mean_output) != kNone)
    gx = gx + gradient(ctx, form.mean_output) * (1 / count);
  if (form.inverse_output >= 0 && ctx.gradient(form.inverse_output) != kNone)
    gx = gx - n.result * (gradient(ctx, form.inverse_output) * square(n.inverse) * (1 / count));
  if (!form.skip) {
    if (ctx.wants(0)) ctx.set(0, gx.id);
    return;
  }
  if (ctx.gradient(3) != kNone) gx = gx + gradient(ctx, 3);
  for (int i : {0, 1, form.bias})
    if (ctx.wants(i)) set(ctx, i, gx);
}

std::optional<std::vector<std::int64_t>> normalized_axes(const Layer& layer, std::int64_t rank, const Tensor*) {
  const std::int64_t axis = layer.attributes.integer("axis", -1), first = axis < 0 ? axis + rank : axis;
  if (first < 0 || first >= rank) return std::nullopt;
  return axes_from(first, rank);
}

/// A row of the table.
template <Form form>
OpDef normalization(OpDef op) {
  op.types = {kFloats};
  op.kind = OpKind::kNormalization;
  op.weights = 1U << form.scale | (form.shift < 0 ? 0U : 1U << form.shift) | (form.bias < 0 ? 0U : 1U << form.bias);
  if (op.infer == nullptr) op.infer = form.skip ? infer_with_skip : infer_layer_normalization;
  op.run = [](KernelContext& ctx) { run_normalization(ctx, form); };
  op.adjoint = [](AdjointContext& ctx) { adjoint_normalization(ctx, form); };
  op.axes = normalized_axes;
  return op;
}

/// How many groups the channels of a sample are in: InstanceNormalization has one for each.
template <typename Context>
std::int64_t groups_of(const Context& ctx) {
  const Shape& shape = shape_of(ctx, 0);
  if (ctx.layer().op->function == Function::kInstanceNormalization) return shape.size() < 2 ? 1 : shape[1];
  return ctx.attributes().required_integer("num_groups");
}

void infer_instance_normalization(InferContext& ctx) {
  infer_same_as_first(ctx);
  const Shape& x = ctx.shape(0);
  if (x.size() < 2) ctx.fail("expected an input (N, C, ...), got shape {}", to_string(x));
  for (int i : {1, 2})
    if (ctx.shape(i) != Shape{x[1]})
      ctx.fail("expected parameters of shape ({},), one per channel, got {}", x[1], to_string(ctx.shape(i)));
}

void run_group_normalization(KernelContext& ctx) {
  const Tensor& x = ctx.input(0);
  const Shape& shape = x.shape();
  if (shape.size() < 2) ctx.fail("expected an input (N, C, ...), got shape {}", to_string(shape));
  const std::int64_t channels = shape[1], groups = groups_of(ctx);
  // Without channels an InstanceNormalization has no groups either.
  const bool splits = groups > 0 ? channels % groups == 0 : groups == channels;
  if (!splits) ctx.fail("{} channels cannot be split into {} groups", channels, groups);
  const Tensor scale = parameter_as(ctx.input(1), x.type()), shift = parameter_as(ctx.input(2), x.type());
  // GroupNormalization 18 has one parameter per group.
  const bool per_group = scale.size() == groups && scale.size() != channels;
  if (scale.size() != (per_group ? groups : channels) || shift.size() != scale.size())
    ctx.fail("expected {} scales and biases, one per channel, got {} and {}", channels, scale.size(), shift.size());
  const std::int64_t inner = product(shape, 2, shape.size()), channels_per_group = groups == 0 ? 0 : channels / groups;
  const std::int64_t length = channels_per_group * inner;
  const float epsilon = ctx.attributes().real("epsilon", 1e-5F);
  with_type(FloatTypes{}, ctx, x.type(), [&]<typename T>(T) {
    const T* in = x.data<T>();
    T* out = ctx.output(0).data<T>();
    const T* s = scale.data<T>();
    const T* b = shift.data<T>();
    parallel_each(shape[0] * groups, rows_per_task(length), [&](std::int64_t row) {
      T* y = out + row * length;
      standardize(in + row * length, y, length, static_cast<T>(epsilon));
      for (std::int64_t c = 0; c < channels_per_group; ++c) {
        const std::int64_t group = row % groups;
        const std::int64_t p = per_group ? group : group * channels_per_group + c;
        for (std::int64_t i = c * inner; i < (c + 1) * inner; ++i) y[i] = y[i] * s[p] + b[p];
      }
    });
  });
}

void adjoint_group_normalization(AdjointContext& ctx) {
  const std::int64_t groups = groups_of(ctx);
  const Shape shape = ctx.input_shape(0);
  if (num_elements(shape) == 0) return;
  const std::int64_t samples = shape[0], channels = shape[1], inner = product(shape, 2, shape.size());
  const std::int64_t length = channels / groups * inner;
  const double epsilon = static_cast<double>(ctx.attributes().real("epsilon", 1e-5F));
  // Parameters per channel, or per group, broadcast over (sample, group, channel of the group, position).
  const std::int64_t per_group = num_elements(ctx.input_shape(1)) == channels ? channels / groups : 1;
  const Shape parts{samples, groups, channels / groups, inner}, parameters{1, groups, per_group, 1};
  const Value g = reshape(gradient(ctx), parts);
  const auto rows = [&](Value x) { return reshape(x, {samples, groups, length}); };
  const Normalized n =
      normalize_adjoint(rows(input(ctx, 0)), rows(g * reshape(input(ctx, 1), parameters)), {2}, epsilon, true);
  if (ctx.wants(0)) ctx.set(0, reshape(n.gradient, shape).id);
  if (ctx.wants(1)) ctx.set(1, reshape(sum_to(g * reshape(n.result, parts), parameters), ctx.input_shape(1)).id);
  if (ctx.wants(2)) ctx.set(2, reshape(sum_to(g, parameters), ctx.input_shape(2)).id);
}

std::optional<std::vector<std::int64_t>> spatial_axes(const Layer&, std::int64_t rank, const Tensor*) {
  return axes_from(2, rank);
}

}  // namespace

OpTable layer_normalization() {
  constexpr std::string_view kMicrosoft = "com.microsoft";
  return {
      // LayerNormalization, ai.onnx 17 (and 1, as ONNX Runtime's fusions write it): standardizes.
      normalization<Form{.shift = 2, .mean_output = 1, .inverse_output = 2}>(
          {.name = "LayerNormalization",
           .inputs = {2, 3},
           .outputs = {1, 3},
           .function = Function::kLayerNormalization}),
      // RMSNormalization, ai.onnx 23: divides by the root of the mean square.
      normalization<Form{.centered = false}>(
          {.name = "RMSNormalization", .since_version = 23, .inputs = {2, 2}, .function = Function::kRmsNormalization}),
      // SimplifiedLayerNormalization, as ONNX Runtime's fusions write it into ai.onnx: RMSNormalization with the
      // inverse deviation as output 1.
      normalization<Form{.centered = false, .inverse_output = 1}>({.name = "SimplifiedLayerNormalization",
                                                                   .inputs = {2, 2},
                                                                   .outputs = {1, 2},
                                                                   .function = Function::kRmsNormalization}),
      // SkipLayerNormalization, com.microsoft 1: LayerNormalization of x + skip + bias over the last axis.
      normalization<Form{
          .scale = 2, .shift = 3, .mean_output = 1, .inverse_output = 2, .skip = true, .bias = 4, .epsilon = 1e-12F}>(
          {.name = "SkipLayerNormalization", .domain = kMicrosoft, .inputs = {3, 5}, .outputs = {1, 4}}),
      // SkipSimplifiedLayerNormalization, com.microsoft 1: RMSNormalization of x + skip + bias over the last axis.
      normalization<Form{
          .centered = false, .scale = 2, .inverse_output = 2, .skip = true, .bias = 3, .epsilon = 1e-12F}>(
          {.name = "SkipSimplifiedLayerNormalization", .domain = kMicrosoft, .inputs = {3, 4}, .outputs = {1, 4}}),
      // InstanceNormalization, ai.onnx 1, 6, 22: standardizes every channel of every sample, then scales and shifts.
      make_op({.name = "InstanceNormalization",
               .inputs = {3, 3},
               .types = {kFloats},
               .kind = OpKind::kNormalization,
               .function = Function::kInstanceNormalization,
               .weights = 0b110,
               .axes = spatial_axes},
              infer_instance_normalization, run_group_normalization, adjoint_group_normalization),
      // GroupNormalization, ai.onnx 18 (parameters per group), 21 (per channel): standardizes groups of channels.
      make_op({.name = "GroupNormalization",
               .since_version = 18,
               .inputs = {3, 3},
               .types = {kFloats},
               .kind = OpKind::kNormalization,
               .weights = 0b110},
              infer_same_as_first, run_group_normalization, adjoint_group_normalization),
  };
}

}  // namespace ulpscope::ops
