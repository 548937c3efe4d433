// QuantizeLinear, DequantizeLinear and DynamicQuantizeLinear.
#include <algorithm>
#include <utility>
#include <vector>

#include "core/division.h"
#include "core/parallel.h"
#include "core/vector_clones.h"
#include "formats/coded_elements.h"
#include "formats/rounding.h"
#include "ops/conversion/narrowing.h"
#include "ops/extremes.h"
#include "ops/quantization/quantization.h"

namespace ulpscope::ops {
namespace {

/// Works with both contexts; fails when the scale has a shape that does not fit.
template <typename Context>
ScaleLayout scale_layout(const Context& ctx, const Shape& x, const Shape& scale) {
  if (num_elements(scale) == 1 && scale.size() <= 1) return {};
  const std::int64_t axis = normalize_axis(ctx, ctx.attributes().integer("axis", 1),
                                           static_cast<std::int64_t>(x.size()) + (x.empty() ? 1 : 0));
  const std::int64_t block = ctx.attributes().integer("block_size", 0);
  if (block < 0) ctx.fail("expected a 'block_size' of 0 or more, got {}", block);
  const auto layout = DequantizedElements::layout(x, scale, axis, block);
  if (!layout)
    ctx.fail("a scale of shape {} does not fit an input of shape {} (axis {}, block_size {})", to_string(scale),
             to_string(x), axis, block);
  return *layout;
}

using TargetTypes = TypeList<std::int8_t, std::uint8_t, std::int16_t, std::uint16_t>;

bool is_target(DataType type) {
  switch (type) {
    case DataType::kInt8:
    case DataType::kUInt8:
    case DataType::kInt16:
    case DataType::kUInt16:
      return true;
    default:
      return is_storage_only(type) && type != DataType::kFloat8E8M0;
  }
}

void infer_quantize_linear(InferContext& ctx) {
  DataType type = DataType::kUInt8;
  if (ctx.has_input(2))
    type = ctx.type(2);
  else if (const std::int64_t number = ctx.attributes().integer("output_dtype", 0); number != 0)
    type = data_type_from_onnx(ctx.layer(), number);
  ctx.set_type(0, type);
  if (type != DataType::kUndefined && !is_target(type) && (!ctx.has_input(2) || ctx.is_declared(2)))
    ctx.fail("expected an output of 2 to 16 bit integers or of floats of 4 to 8 bits, got {}", name_of(type));
  scale_layout(ctx, ctx.shape(0), ctx.shape(1));
  ctx.set_shape(0, ctx.shape(0));
}

/// function(begin, end, ratio) for pieces of the input, where ratio(i) = x / scale of element i.
template <typename Function>
void for_each_piece(KernelContext& ctx, const ScaleLayout& layout, const Tensor& x, const Tensor& scales,
                    Function&& function) {
  // "The type of y_scale determines the precision of the division, unless `precision` is specified."
  const std::int64_t precision = ctx.attributes().integer("precision", 0);
  const Rounding rounding = precision == 0 ? Rounding::kNone : rounding_of(data_type_from_onnx(ctx.layer(), precision));
  const float* in = x.data<float>();
  const float* scale = scales.data<float>();
  const auto ratio = [=, &layout](std::int64_t i) { return round_value(in[i] / scale[layout.index(i)], rounding); };
  parallel_for(x.size(), 1 << 14, [&](std::int64_t begin, std::int64_t end) { function(begin, end, ratio); });
}

/// quantize() of in[i] / scale, as bytes.
void to_bytes(const float* in, std::uint8_t* out, std::int64_t count, float scale, std::int32_t zero, double low,
              double high) {
  quantize_bytes(in, out, static_cast<std::size_t>(count), scale, static_cast<float>(low - zero),
                 static_cast<float>(high - zero));
  if (zero == 0) return;
  for (std::int64_t i = 0; i < count; ++i) out[i] = static_cast<std::uint8_t>(out[i] + zero);
}

void run_quantize_linear(KernelContext& ctx) {
  const Tensor x = ctx.input(0).cast(DataType::kFloat32);
  const Tensor scales = ctx.input(1).cast(DataType::kFloat32);
  const ScaleLayout layout = scale_layout(ctx, x.shape(), scales.shape());
  require_count(ctx, 2, scales.size());
  const NumericFormat& format = *format_of(ctx.output_type(0));
  const auto zero_at = [&](const auto& zero, std::int64_t i) {
    return zero[zero.size() == 1 ? 0 : static_cast<std::size_t>(layout.index(i))];
  };
  if (format.is_float) {
    const std::vector<float> zero = float_zero_points(ctx, 2);
    float* out = ctx.output(0).data<float>();
    for_each_piece(ctx, layout, x, scales, [&](std::int64_t begin, std::int64_t end, const auto& ratio) {
      for (std::int64_t i = begin; i < end; ++i) out[i] = ratio(i) + zero_at(zero, i);
      round_array(out + begin, out + begin, static_cast<std::size_t>(end - begin), format, conversion_of(ctx));
    });
    return;
  }
  const auto zero = zero_points(ctx, 2);
  const double low = format.lowest(), high = format.largest();
  if (size_of(ctx.output(0).type()) == 1 && ctx.attributes().integer("precision", 0) == 0) {
    auto* out = static_cast<std::uint8_t*>(ctx.output(0).raw());
    const float* in = x.data<float>();
    parallel_for(x.size(), 1 << 14, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin, count = 0; i < end; i += count) {
        count = layout.run(i, end - i);
        to_bytes(in + i, out + i, count, scales.data<float>()[layout.index(i)], zero_at(zero, i), low, high);
      }
    });
    return;
  }
  with_type(TargetTypes{}, ctx, ctx.output(0).type(), [&]<typename T>(T) {
    T* out = ctx.output(0).data<T>();
    for_each_piece(ctx, layout, x, scales, [&](std::int64_t begin, std::int64_t end, const auto& ratio) {
      for (std::int64_t i = begin; i < end; ++i) out[i] = quantize<T>(ratio(i), zero_at(zero, i), low, high);
    });
  });
}

using SourceTypes = TypeList<std::int8_t, std::uint8_t, std::int16_t, std::uint16_t, std::int32_t>;

void infer_dequantize_linear(InferContext& ctx) {
  const std::int64_t number = ctx.attributes().integer("output_dtype", 0);
  const DataType type = number != 0 ? data_type_from_onnx(ctx.layer(), number) : ctx.type(1);
  ctx.set_type(0, type);
  require_type_of_first(ctx, {2});
  if (type != DataType::kUndefined && (physical_type(type) != DataType::kFloat32 || is_storage_only(type)))
    ctx.fail("expected an output of float32, float16 or bfloat16, got {}{}", name_of(type),
             number == 0 ? ", the type of the scales; try the attribute 'output_dtype'" : "");
  if (const DataType source = ctx.type(0);
      ctx.is_declared(0) && is_floating(source) && (!is_storage_only(source) || source == DataType::kFloat8E8M0))
    ctx.fail("expected integers or floats of 4 to 8 bits as input 0, got {}", name_of(source));
  scale_layout(ctx, ctx.shape(0), ctx.shape(1));
  ctx.set_shape(0, ctx.shape(0));
}

template <typename T>
ULPSCOPE_VECTOR_CLONES void bytes_to_reals(const T* in, float* out, std::int64_t count, std::int32_t zero,
                                           float scale) {
  for (std::int64_t i = 0; i < count; ++i) out[i] = static_cast<float>(in[i] - zero) * scale;
}

/// By one scale and zero point.
void run_dequantize_bytes(KernelContext& ctx, float scale, std::int32_t zero) {
  const Tensor& x = ctx.input(0);
  float* out = ctx.output(0).data<float>();
  with_type(QuantizedTypes{}, ctx, x.type(), [&]<typename T>(T) {
    const T* in = x.data<T>();
    parallel_for(x.size(), 1 << 14, [&](std::int64_t begin, std::int64_t end) {
      bytes_to_reals(in + begin, out + begin, end - begin, zero, scale);
    });
  });
}

void run_dequantize_linear(KernelContext& ctx) {
  const Tensor &x = ctx.input(0), &scales = ctx.input(1);
  require_count(ctx, 2, scales.size());
  const bool is_of_bytes = x.type() == DataType::kInt8 || x.type() == DataType::kUInt8;
  if (is_of_bytes && scales.size() == 1 && scales.type() == DataType::kFloat32 &&
      (!ctx.has_input(2) || ctx.input(2).type() == x.type()))
    return run_dequantize_bytes(ctx, scales.data<float>()[0], zero_points(ctx, 2)[0]);
  const DequantizedElements values(x, scale_layout(ctx, x.shape(), scales.shape()), scales,
                                   ctx.has_input(2) ? ctx.input(2) : Tensor());
  float* out = ctx.output(0).data<float>();
  parallel_for(x.size(), 1 << 14,
               [&](std::int64_t begin, std::int64_t end) { values.read(begin, end - begin, out + begin); });
}

// Outputs: y, y_scale, y_zero_point.
void infer_dynamic_quantize_linear(InferContext& ctx) {
  ctx.set_type(0, DataType::kUInt8);
  ctx.set(1, DataType::kFloat32, {});
  ctx.set(2, DataType::kUInt8, {});
  require_type(ctx, 0, DataType::kFloat32);
  ctx.set_shape(0, ctx.shape(0));
}

/// Of the numbers and 0; NaN is none of them.
std::pair<float, float> range_with_zero(std::span<const float> x) {
  constexpr std::int64_t kPiece = 1 << 14;
  const auto size = static_cast<std::int64_t>(x.size()), pieces = divided_up(size, kPiece);
  std::vector<Extremes> found(static_cast<std::size_t>(pieces));
  parallel_each(pieces, 2, [&](std::int64_t i) {
    found[static_cast<std::size_t>(i)] = extremes_of(x.data() + i * kPiece, std::min(kPiece, size - i * kPiece));
  });
  std::pair<float, float> range{0, 0};
  for (const Extremes& piece : found) range = {std::min(range.first, piece.low), std::max(range.second, piece.high)};
  return range;
}

void run_dynamic_quantize_linear(KernelContext& ctx) {
  const auto x = ctx.input(0).values<float>();
  const DynamicScale by = dynamic_scale(x);
  if (ctx.has_output(0)) quantize_dynamically(x, by, ctx.output(0).data<std::uint8_t>());
  if (ctx.has_output(1)) *ctx.output(1).data<float>() = by.scale;
  if (ctx.has_output(2)) *ctx.output(2).data<std::uint8_t>() = by.zero;
}

/// Saturate(round(x / scale) + zero point) for integers; floats are rounded after the zero point, and saturate unless
/// `saturate` is 0. Never lowered: scales are fp32 on every target.
OpDef quantize_in(std::string_view domain, int since_version) {
  return fixed_op({.name = "QuantizeLinear",
                   .domain = domain,
                   .since_version = since_version,
                   .inputs = {2, 3},
                   .types = {kNumbers, kFloats | kIntegers, set_of(TargetTypes{}) | TypeSet{DataType::kFloat32}},
                   .function = Function::kQuantize,
                   .weights = 0b110,
                   .storage_types = StorageTypes::kTaken,
                   .yields_quantized = true},
                  infer_quantize_linear, run_quantize_linear);
}

/// (x - zero point) * scale. Never lowered: scales are fp32 on every target.
OpDef dequantize_in(std::string_view domain, int since_version) {
  return fixed_op({.name = "DequantizeLinear",
                   .domain = domain,
                   .since_version = since_version,
                   .inputs = {2, 3},
                   .types = {set_of(SourceTypes{}) | TypeSet{DataType::kFloat32}, kFloats,
                             set_of(SourceTypes{}) | TypeSet{DataType::kFloat32}},
                   .function = Function::kDequantize,
                   .weights = 0b110,
                   .storage_types = StorageTypes::kTaken},
                  infer_dequantize_linear, run_dequantize_linear);
}

}  // namespace

DynamicScale dynamic_scale(std::span<const float> x) {
  const auto [low, high] = range_with_zero(x);
  // Of nothing but zeros, any scale will do: 1, as in ONNX Runtime. 0 would make NaN of what is divided by it.
  const float scale = high == low ? 1.0f : (high - low) / 255.0f;
  return {scale, scale == 0 ? std::uint8_t{0} : quantize<std::uint8_t>(-low / scale, 0)};
}

void quantize_dynamically(std::span<const float> x, const DynamicScale& by, std::uint8_t* out) {
  parallel_for(static_cast<std::int64_t>(x.size()), 1 << 14, [&](std::int64_t begin, std::int64_t end) {
    if (by.scale == 0) return std::fill(out + begin, out + end, by.zero);
    to_bytes(x.data() + begin, out + begin, end - begin, by.scale, by.zero, 0, 255);
  });
}

OpTable quantize_linear() {
  return {
      // ai.onnx 10, 13, 19, 21, 23, 24, 25, 28.
      quantize_in("", 10),
      dequantize_in("", 10),
      // com.microsoft 1: the same without blocks, of more types than ai.onnx had when ONNX Runtime needed them.
      quantize_in("com.microsoft", 1),
      dequantize_in("com.microsoft", 1),
      // DynamicQuantizeLinear, ai.onnx 11: quantizes to uint8 with the range of the data.
      fixed_op({.name = "DynamicQuantizeLinear",
                .since_version = 11,
                .outputs = {3, 3},
                .types = {kFloats},
                .yields_quantized = true},
               infer_dynamic_quantize_linear, run_dynamic_quantize_linear),
  };
}

}  // namespace ulpscope::ops
