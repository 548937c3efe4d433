// Resize and Upsample: the geometry and the interpolation along each axis.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "core/parallel.h"
#include "ops/adjoint_linear.h"
#include "ops/adjoint_values.h"
#include "ops/fail.h"
#include "ops/forms.h"
#include "ops/movement.h"

namespace ulpscope::ops {
namespace {

enum class ResampleMode { kNearest, kLinear, kCubic };

/// How positions of the output map to positions of the input, and how values are weighted.
struct ResampleOptions {
  ResampleMode mode = ResampleMode::kNearest;
  std::string coordinates = "half_pixel";      ///< coordinate_transformation_mode
  std::string nearest = "round_prefer_floor";  ///< nearest_mode, or "simple": what opset 10 and Upsample do.
  float cubic_a = -0.75f;
  bool exclude_outside = false, antialias = false;
  float extrapolation_value = 0;
};

/// One axis that is resized. `scale` is output / input, possibly not exactly (floor, or a common scale for all axes).
struct ResampleAxis {
  std::int64_t axis = 0;
  std::int64_t output = 0;
  float scale = 1;
  float roi_start = 0, roi_end = 1;
};

void check_name(const Layer& layer, const char* attribute, const std::string& value,
                std::initializer_list<std::string_view> known) {
  if (std::ranges::find(known, value) == known.end()) fail(layer, "'{}' is not a value of '{}'", value, attribute);
}

/// The position in the input that an output position samples. In float32, as other runtimes do: with `nearest`, ties
/// would be decided differently in a wider type.
float source_position(const ResampleOptions& o, const ResampleAxis& a, std::int64_t input, std::int64_t at) {
  const float x = static_cast<float>(at), n = static_cast<float>(input);
  // The scaled length, which need not be whole; but what 7 / 3 * 3 is in float32 must not move what a Floor gives.
  const float length = static_cast<float>(a.output), scaled = a.scale * n;
  const float exact_output = std::abs(scaled - length) <= 1e-6f * length ? length : scaled;
  if (o.coordinates == "align_corners") return exact_output == 1 ? 0 : x * (n - 1) / (exact_output - 1);
  if (o.coordinates == "asymmetric") return x / a.scale;
  if (o.coordinates == "tf_crop_and_resize") {
    if (a.output <= 1) return 0.5f * (a.roi_start + a.roi_end) * (n - 1);
    return a.roi_start * (n - 1) + x * (a.roi_end - a.roi_start) * (n - 1) / static_cast<float>(a.output - 1);
  }
  if (o.coordinates == "pytorch_half_pixel") return a.output <= 1 ? 0 : (x + 0.5f) / a.scale - 0.5f;
  if (o.coordinates == "half_pixel_symmetric") {
    const float adjustment = length / exact_output;
    return n / 2 * (1 - adjustment) + (x + 0.5f) / a.scale - 0.5f;
  }
  if (o.coordinates == "tf_half_pixel_for_nn") return (x + 0.5f) / a.scale;
  return (x + 0.5f) / a.scale - 0.5f;
}

float nearest_position(const ResampleOptions& o, float x, float scale) {
  if (o.nearest == "floor") return std::floor(x);
  if (o.nearest == "ceil") return std::ceil(x);
  if (o.nearest == "simple") return scale < 1 ? std::ceil(x) : std::floor(x);
  if (o.nearest == "round_prefer_ceil") return std::floor(x + 0.5f);
  return std::ceil(x - 0.5f);
}

/// Keys' cubic kernel (IEEE Transactions on Acoustics, Speech, and Signal Processing 29, 1981), equation 4.
float cubic(float x, float a) {
  x = std::abs(x);
  if (x <= 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  if (x < 2) return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a;
  return 0;
}

/// For each output position `taps` input positions with their weights.
struct Table {
  std::int64_t taps = 1;
  std::vector<std::int64_t> index;
  std::vector<float> weight;
  std::vector<std::uint8_t> outside;  ///< The output position gets the extrapolation value.
};

Table make_table(const ResampleOptions& o, const ResampleAxis& a, std::int64_t input) {
  Table table;
  const float radius = o.mode == ResampleMode::kCubic ? 2.0f : 1.0f;
  const float shrink = o.antialias ? std::min(a.scale, 1.0f) : 1.0f;
  const std::int64_t first = to_index(std::floor(-radius / shrink)) + 1;
  if (o.mode != ResampleMode::kNearest) table.taps = 2 - 2 * first;
  const bool crop = o.coordinates == "tf_crop_and_resize";
  for (std::int64_t at = 0; at < a.output; ++at) {
    const float x = source_position(o, a, input, at);
    table.outside.push_back(crop && (x < 0 || x > static_cast<float>(input - 1)));
    const auto clamp = [&](std::int64_t i) {
      return std::clamp<std::int64_t>(i, 0, std::max<std::int64_t>(input - 1, 0));
    };
    if (o.mode == ResampleMode::kNearest) {
      table.index.push_back(clamp(to_index(nearest_position(o, x, a.scale))));
      table.weight.push_back(1);
      continue;
    }
    const std::int64_t base = to_index(std::ceil(x)) - 1;  // left of x, also where x is an integer
    const float ratio = x - static_cast<float>(base);
    float sum = 0;
    for (std::int64_t k = 0; k < table.taps; ++k) {
      const float distance = (static_cast<float>(first + k) - ratio) * shrink;
      float weight =
          o.mode == ResampleMode::kCubic ? cubic(distance, o.cubic_a) : std::max(0.0f, 1 - std::abs(distance));
      const std::int64_t i = base + first + k;
      if (o.exclude_outside && (i < 0 || i >= input)) weight = 0;
      sum += weight;
      table.index.push_back(clamp(i));
      table.weight.push_back(weight);
    }
    if (o.antialias || o.exclude_outside)
      for (std::int64_t k = 0; k < table.taps; ++k)
        table.weight[table.weight.size() - 1 - static_cast<std::size_t>(k)] /= sum;
  }
  return table;
}

/// True when the axis stays as it is.
bool is_untouched(const ResampleOptions& o, const ResampleAxis& a, std::int64_t input) {
  const bool cropped = o.coordinates == "tf_crop_and_resize" && (a.roi_start != 0 || a.roi_end != 1);
  return a.output == input && a.scale == 1 && !cropped;
}

/// out(outer, output, inner) from in(outer, input, inner). Elements that are no floats are words, with the nearest one.
template <typename T>
void resample_axis(const ResampleOptions& o, const Table& table, T outside, const T* in, T* out, std::int64_t outer,
                   std::int64_t input, std::int64_t output, std::int64_t inner) {
  const std::int64_t grain = std::max<std::int64_t>(1, (1 << 14) / std::max<std::int64_t>(1, inner * table.taps));
  parallel_for(outer * output, grain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      const std::int64_t at = row % output;
      const T* source = in + row / output * input * inner;
      T* target = out + row * inner;
      const std::int64_t* index = table.index.data() + at * table.taps;
      const float* weight = table.weight.data() + at * table.taps;
      if (table.outside[static_cast<std::size_t>(at)]) {
        std::fill(target, target + inner, outside);
      } else if (o.mode == ResampleMode::kNearest) {
        std::copy(source + index[0] * inner, source + (index[0] + 1) * inner, target);
      } else if constexpr (std::is_floating_point_v<T>) {
        std::fill(target, target + inner, T{});
        for (std::int64_t k = 0; k < table.taps; ++k) {
          if (weight[k] == 0) continue;
          const T factor = weight[k];
          const T* values = source + index[k] * inner;
          for (std::int64_t i = 0; i < inner; ++i) target[i] += factor * values[i];
        }
      }
    }
  });
}

/// Applies one axis after the other, the last one first; `values` becomes the result.
template <typename T>
void resample_axes(const ResampleOptions& o, const std::vector<ResampleAxis>& axes, Shape shape, T outside,
                   std::vector<T>& values) {
  for (auto it = axes.rbegin(); it != axes.rend(); ++it) {
    const auto d = static_cast<std::size_t>(it->axis);
    const std::int64_t outer = product(shape, 0, d), input = shape[d], inner = product(shape, d + 1, shape.size());
    if (is_untouched(o, *it, input)) continue;
    std::vector<T> next(static_cast<std::size_t>(outer * it->output * inner));
    if (input > 0)
      resample_axis(o, make_table(o, *it, input), outside, values.data(), next.data(), outer, input, it->output, inner);
    values.swap(next);
    shape[d] = it->output;
  }
}

/// What one axis adds up.
std::vector<SumTerm> terms_of(const ResampleOptions& o, const ResampleAxis& a, std::int64_t input) {
  const Table table = make_table(o, a, input);
  std::vector<SumTerm> terms;
  for (std::int64_t at = 0; at < a.output; ++at)
    for (std::int64_t k = 0; k < table.taps && table.outside[static_cast<std::size_t>(at)] == 0; ++k) {
      const auto tap = static_cast<std::size_t>(at * table.taps + k);
      const double weight = static_cast<double>(table.weight[tap]);
      // Taps beyond an end fall together there.
      if (k > 0 && terms.back().to == at && terms.back().from == table.index[tap])
        terms.back().weight += weight;
      else
        terms.push_back({table.index[tap], at, weight});
    }
  return terms;
}

/// The factor by which every element of the axis is repeated; 0 when that is not what the terms do.
std::int64_t repetition(const std::vector<SumTerm>& terms, std::int64_t input, std::int64_t output) {
  if (input == 0 || output % input != 0 || std::ssize(terms) != output) return 0;
  const std::int64_t factor = output / input;
  const auto repeats = [&](const SumTerm& t) { return t.from == t.to / factor && t.weight == 1; };
  return std::ranges::all_of(terms, repeats) ? factor : 0;
}

/// Reads mode and friends from the attributes; `legacy` is for Resize of opset 10 and Upsample. Throws
/// Error(kInvalidFile) for unknown modes.
ResampleOptions resample_options(const Layer& layer, bool legacy) {
  const Attributes& attributes = layer.attributes;
  ResampleOptions o;
  const std::string mode = attributes.text("mode", "nearest");
  check_name(layer, "mode", mode, {"nearest", "linear", "bilinear", "cubic"});
  o.mode = mode == "nearest" ? ResampleMode::kNearest : mode == "cubic" ? ResampleMode::kCubic : ResampleMode::kLinear;
  if (legacy) {
    o.coordinates = "asymmetric";
    o.nearest = "simple";
    return o;
  }
  o.coordinates = attributes.text("coordinate_transformation_mode", "half_pixel");
  check_name(layer, "coordinate_transformation_mode", o.coordinates,
             {"half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric",
              "tf_crop_and_resize", "tf_half_pixel_for_nn"});
  o.nearest = attributes.text("nearest_mode", "round_prefer_floor");
  check_name(layer, "nearest_mode", o.nearest, {"round_prefer_floor", "round_prefer_ceil", "floor", "ceil"});
  o.cubic_a = attributes.real("cubic_coeff_a", -0.75f);
  o.exclude_outside = attributes.integer("exclude_outside", 0) != 0;
  o.antialias = attributes.integer("antialias", 0) != 0 && o.mode != ResampleMode::kNearest;
  o.extrapolation_value = attributes.real("extrapolation_value", 0);
  return o;
}

/// The shape of the output.
Shape resampled_shape(const Shape& input, const std::vector<ResampleAxis>& axes) {
  Shape shape = input;
  for (const ResampleAxis& a : axes) shape[static_cast<std::size_t>(a.axis)] = a.output;
  return shape;
}

/// One entry per axis from one scale per axis; fails naming the layer when their number does not fit.
std::vector<ResampleAxis> axes_from_scales(const Layer& layer, const Shape& x, const std::vector<std::int64_t>& axes,
                                           const std::vector<float>& scales) {
  if (scales.size() != axes.size()) fail(layer, "expected {} scales, one per axis, got {}", axes.size(), scales.size());
  std::vector<ResampleAxis> result;
  for (std::size_t i = 0; i < axes.size(); ++i) {
    if (!(scales[i] > 0 && std::isfinite(scales[i]))) fail(layer, "expected positive finite scales, got {}", scales[i]);
    const float exact = static_cast<float>(x[static_cast<std::size_t>(axes[i])]) * scales[i];
    result.push_back({axes[i], to_index(std::floor(exact)), scales[i]});
  }
  return result;
}

/// Interpolates `x` into `out`, which has the resampled shape. Any numeric type; integers are computed in float32 and
/// rounded, except that `nearest` moves them as they are.
void resample(const KernelContext& ctx, const ResampleOptions& options, const std::vector<ResampleAxis>& axes,
              const Tensor& x, Tensor& out) {
  if (out.size() == 0) return;
  const auto apply = [&]<typename T>(T outside) {
    const T* in = static_cast<const T*>(x.raw());
    std::vector<T> values(in, in + x.size());
    resample_axes(options, axes, x.shape(), outside, values);
    std::copy(values.begin(), values.end(), static_cast<T*>(out.raw()));
  };
  if (x.type() == DataType::kFloat32) return apply(options.extrapolation_value);
  if (x.type() == DataType::kFloat64) return apply(static_cast<double>(options.extrapolation_value));
  const Tensor outside = Tensor::scalar(options.extrapolation_value).cast(x.type());
  if (options.mode == ResampleMode::kNearest)
    return with_word(x.type(), [&](auto word) { apply(load_word<decltype(word)>(outside.raw(), 0)); });
  const Tensor wide = x.cast(DataType::kFloat32);
  std::vector<float> values(wide.values<float>().begin(), wide.values<float>().end());
  resample_axes(options, axes, x.shape(), options.extrapolation_value, values);
  with_type(IntegerTypes{}, ctx, x.type(), [&](auto tag) {
    using Limits = std::numeric_limits<decltype(tag)>;
    auto* target = out.data<decltype(tag)>();
    for (std::size_t i = 0; i < values.size(); ++i)
      target[i] = static_cast<decltype(tag)>(
          std::clamp<double>(std::nearbyint(values[i]), double(Limits::min()), double(Limits::max())));
  });
}

/// The adjoint of `resample` for input 0 of the layer.
void resample_adjoint(AdjointContext& ctx, const ResampleOptions& options, const std::vector<ResampleAxis>& axes) {
  const Shape& shape = ctx.input_shape(0);
  if (num_elements(shape) == 0) return;
  Value g = gradient(ctx);
  std::vector<std::pair<std::int64_t, std::vector<SumTerm>>> sums;
  std::vector<std::int64_t> factors(shape.size(), 1);
  for (const ResampleAxis& a : axes) {
    const auto d = static_cast<std::size_t>(a.axis);
    if (is_untouched(options, a, shape[d])) continue;
    sums.emplace_back(a.axis, terms_of(options, a, shape[d]));
    factors[d] = repetition(sums.back().second, shape[d], a.output);
  }
  const bool repeats = std::ranges::none_of(factors, [](std::int64_t f) { return f == 0; });
  if (repeats && shape.size() >= 3 && shape.size() <= 5 && factors[0] == 1 && factors[1] == 1) {
    // Sums over tiles, by the kernel of a pooling layer.
    const Shape tile(factors.begin() + 2, factors.end());
    const TensorId means = ctx.add("AveragePool", {g.id}, {{"kernel_shape", tile}, {"strides", tile}});
    return ctx.set(0, (Value{&ctx, means} * static_cast<double>(num_elements(tile))).id);
  }
  for (auto& [axis, terms] : sums)
    g = transposed_along_axis(g, std::move(terms), shape[static_cast<std::size_t>(axis)], axis);
  ctx.set(0, g.id);
}

const Tensor& tensor_of(const InferContext& ctx, int i) { return ctx.value(i); }
const Tensor& tensor_of(const KernelContext& ctx, int i) { return ctx.input(i); }
const Tensor& tensor_of(const AdjointContext& ctx, int i) {
  if (ctx.input_value(i) == nullptr) throw NotKnownYet{};
  return *ctx.input_value(i);
}

template <typename Context>
std::vector<float> floats_of(const Context& ctx, int i) {
  const Tensor values = tensor_of(ctx, i).cast(DataType::kFloat32);
  return {values.template values<float>().begin(), values.template values<float>().end()};
}

/// An input that is absent, or empty: the form in which files of opset 11 leave it out.
template <typename Context>
bool given(const Context& ctx, int i) {
  return ctx.has_input(i) && num_elements(shape_of(ctx, i)) > 0;
}

template <typename Context>
std::vector<ResampleAxis> axes_from_sizes(const Context& ctx, const Shape& x, const std::vector<std::int64_t>& axes,
                                          const std::vector<std::int64_t>& sizes) {
  if (sizes.size() != axes.size()) ctx.fail("expected {} sizes, one per axis, got {}", axes.size(), sizes.size());
  std::vector<ResampleAxis> result;
  for (std::size_t i = 0; i < axes.size(); ++i) {
    const std::int64_t input = x[static_cast<std::size_t>(axes[i])];
    result.push_back({axes[i], sizes[i], input == 0 ? 1 : static_cast<float>(sizes[i]) / static_cast<float>(input)});
  }
  const std::string policy = ctx.attributes().text("keep_aspect_ratio_policy", "stretch");
  if (policy == "stretch" || result.empty()) return result;
  if (policy != "not_larger" && policy != "not_smaller")
    ctx.fail("'{}' is not a value of 'keep_aspect_ratio_policy'", policy);
  const auto by_scale = [](const ResampleAxis& a, const ResampleAxis& b) { return a.scale < b.scale; };
  const float scale = policy == "not_larger" ? std::ranges::min_element(result, by_scale)->scale
                                             : std::ranges::max_element(result, by_scale)->scale;
  for (ResampleAxis& a : result) {
    a.scale = scale;
    a.output = to_index(std::floor(scale * static_cast<float>(x[static_cast<std::size_t>(a.axis)]) + 0.5f));
  }
  return result;
}

// Inputs: X, scales (opset 10), or X, roi, scales, sizes.
template <typename Context>
std::vector<ResampleAxis> resize_axes(const Context& ctx) {
  const Shape& x = shape_of(ctx, 0);
  std::vector<std::int64_t> axes = ctx.attributes().ints("axes");
  if (axes.empty()) {
    axes.resize(x.size());
    std::iota(axes.begin(), axes.end(), 0);
  }
  axes = normalize_axes(ctx, std::move(axes), static_cast<std::int64_t>(x.size()));
  const int scales = ctx.opset() < 11 ? 1 : 2;
  if (!given(ctx, scales) && !given(ctx, 3)) ctx.fail("expected 'scales' or 'sizes', got neither");
  if (given(ctx, scales)) return axes_from_scales(ctx.layer(), x, axes, floats_of(ctx, scales));
  return axes_from_sizes(ctx, x, axes, ctx.input_ints(3));
}

void infer_resize(InferContext& ctx) {
  resample_options(ctx.layer(), ctx.opset() < 11);
  const Shape shape = resampled_shape(ctx.shape(0), resize_axes(ctx));
  ctx.set_shape(0, shape);
  for (std::size_t d = 0; d < shape.size(); ++d)
    if (ctx.shape(0)[d] == 0 && shape[d] > 0)
      ctx.fail("nothing can be enlarged to {} elements (dimension {})", shape[d], d);
}

/// The resize_axes with the regions that tf_crop_and_resize reads.
template <typename Context>
std::vector<ResampleAxis> cropped_plan(const Context& ctx, const ResampleOptions& options) {
  std::vector<ResampleAxis> axes = resize_axes(ctx);
  if (options.coordinates != "tf_crop_and_resize") return axes;
  if (!given(ctx, 1)) ctx.fail("coordinate_transformation_mode 'tf_crop_and_resize' needs the input 'roi'");
  const auto roi = floats_of(ctx, 1);
  if (roi.size() != 2 * axes.size()) ctx.fail("expected {} values in 'roi', got {}", 2 * axes.size(), roi.size());
  for (std::size_t i = 0; i < axes.size(); ++i) {
    axes[i].roi_start = roi[i];
    axes[i].roi_end = roi[i + axes.size()];
  }
  return axes;
}

void run_resize(KernelContext& ctx) {
  const ResampleOptions options = resample_options(ctx.layer(), ctx.opset() < 11);
  const auto axes = cropped_plan(ctx, options);
  resample(ctx, options, axes, ctx.input(0), ctx.output(0));
}

void adjoint_resize(AdjointContext& ctx) {
  const ResampleOptions options = resample_options(ctx.layer(), ctx.opset() < 11);
  resample_adjoint(ctx, options, cropped_plan(ctx, options));
}

// The scales are an attribute in opset 7 and input 1 from opset 9 on.
template <typename Context>
std::vector<ResampleAxis> upsample_axes(const Context& ctx, const Shape& x, const Tensor* scales) {
  std::vector<std::int64_t> axes(x.size());
  std::iota(axes.begin(), axes.end(), 0);
  if (scales == nullptr) return axes_from_scales(ctx.layer(), x, axes, ctx.attributes().reals("scales"));
  const Tensor values = scales->cast(DataType::kFloat32);
  return axes_from_scales(ctx.layer(), x, axes, {values.values<float>().begin(), values.values<float>().end()});
}

void infer_upsample(InferContext& ctx) {
  ctx.set_shape(
      0, resampled_shape(ctx.shape(0), upsample_axes(ctx, ctx.shape(0), ctx.has_input(1) ? &ctx.value(1) : nullptr)));
}

void run_upsample(KernelContext& ctx) {
  const Tensor& x = ctx.input(0);
  const auto axes = upsample_axes(ctx, x.shape(), ctx.has_input(1) ? &ctx.input(1) : nullptr);
  resample(ctx, resample_options(ctx.layer(), true), axes, x, ctx.output(0));
}

void adjoint_upsample(AdjointContext& ctx) {
  const Tensor* scales = ctx.input_value(1);
  if (ctx.has_input(1) && scales == nullptr) return ctx.leave_out(0);
  resample_adjoint(ctx, resample_options(ctx.layer(), true), upsample_axes(ctx, ctx.input_shape(0), scales));
}

}  // namespace

std::optional<std::vector<ResampledAxis>> resampled_axes(const Layer& layer, const Shape& input,
                                                         std::span<const Tensor* const> values) {
  if (!is_resize(layer)) return std::nullopt;
  std::vector<InferContext::Input> inputs;
  for (std::size_t i = 0; i < layer.inputs.size(); ++i) {
    inputs.push_back({layer.inputs[i] != kNone});
    if (i < values.size() && values[i] != nullptr) inputs[i].shape = &values[i]->shape(), inputs[i].value = values[i];
  }
  inputs[0].shape = &input;
  const InferContext ctx(layer, inputs, {});
  const bool upsample = layer.op->function == Function::kUpsample;
  const ResampleOptions options = resample_options(layer, upsample || ctx.opset() < 11);
  std::vector<ResampledAxis> result;
  try {
    for (const ResampleAxis& a : upsample ? upsample_axes(ctx, input, ctx.has_input(1) ? &ctx.value(1) : nullptr)
                                          : cropped_plan(ctx, options)) {
      const std::int64_t size = input[static_cast<std::size_t>(a.axis)];
      if (is_untouched(options, a, size)) continue;
      const Table table = make_table(options, a, size);
      if (std::ranges::any_of(table.outside, [](std::uint8_t outside) { return outside != 0; })) return std::nullopt;
      ResampledAxis& made = result.emplace_back();
      made.axis = a.axis;
      made.taps = table.taps;
      made.index = Tensor(DataType::kInt32, {a.output, table.taps});
      made.weight = Tensor(DataType::kFloat32, {a.output, table.taps});
      std::ranges::copy(table.index, made.index.data<std::int32_t>());
      std::ranges::copy(table.weight, made.weight.data<float>());
    }
  } catch (const NotKnownYet&) {
    return std::nullopt;
  }
  return result;
}

OpTable resize() {
  return {
      // Resize, ai.onnx 10, 11, 13, 18, 19: interpolation to other sizes.
      make_op({.name = "Resize",
               .since_version = 10,
               .inputs = {1, 4},
               .types = {kNumbers, kFloats, kFloats, kIndices},
               .function = Function::kResize,
               .weights = 0b1110,
               .parameters = 0b1110},
              infer_resize, run_resize, adjoint_resize),
      // Upsample, ai.onnx 7, 9, 10 (deprecated by Resize): nearest or linear interpolation with a scale per axis.
      make_op({.name = "Upsample",
               .since_version = 7,
               .inputs = {1, 2},
               .types = {kNumbers, kFloats},
               .function = Function::kUpsample,
               .weights = 0b10,
               .parameters = 0b10},
              infer_upsample, run_upsample, adjoint_upsample),
  };
}

}  // namespace ulpscope::ops
