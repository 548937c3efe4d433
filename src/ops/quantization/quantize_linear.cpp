// QuantizeLinear, ai.onnx 10, 13, 19, 21, 23, 24, 25, 28: saturate(round(x / scale) + zero point) for integers; floats
// are rounded after the zero point, and saturate unless `saturate` is 0.
#include "core/parallel.h"
#include "formats/rounding.h"
#include "ops/conversion/cast_elements.h"
#include "ops/onnx_types.h"
#include "ops/quantization/scale_layout.h"

namespace ulpscope::ops {
namespace {

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
    ctx.fail(
        fmt::format("expected an output of 2 to 16 bit integers or of floats of 4 to 8 bits, got {}", name_of(type)));
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
  with_type(TargetTypes{}, ctx, ctx.output(0).type(), [&](auto tag) {
    using T = decltype(tag);
    T* out = ctx.output(0).data<T>();
    const double low = format.lowest(), high = format.largest();
    for_each_piece(ctx, layout, x, scales, [&](std::int64_t begin, std::int64_t end, const auto& ratio) {
      for (std::int64_t i = begin; i < end; ++i) out[i] = quantize<T>(ratio(i), zero_at(zero, i), low, high);
    });
  });
}

}  // namespace

OpDef quantize_linear() {
  // Never lowered: scales are fp32 on every target.
  return {.name = "QuantizeLinear",
          .since_version = 10,
          .inputs = {2, 3},
          .types = {kNumbers, kFloats | kIntegers, set_of(TargetTypes{}) | TypeSet{DataType::kFloat32}},
          .precision = PrecisionRule::kFixed,
          .function = Function::kQuantize,
          .weights = 0b110,
          .storage_types = StorageTypes::kTaken,
          .yields_quantized = true,
          .infer = infer_quantize_linear,
          .run = run_quantize_linear};
}

}  // namespace ulpscope::ops
