// DequantizeLinear, ai.onnx 10, 13, 19, 21, 23, 24, 25, 28: (x - zero point) * scale.
#include "core/parallel.h"
#include "ops/onnx_types.h"
#include "ops/quantization/scale_layout.h"
#include "ops/type_rules.h"

namespace ulpscope::ops {
namespace {

using SourceTypes = TypeList<std::int8_t, std::uint8_t, std::int16_t, std::uint16_t, std::int32_t>;

void infer_dequantize_linear(InferContext& ctx) {
  const std::int64_t number = ctx.attributes().integer("output_dtype", 0);
  const DataType type = number != 0 ? data_type_from_onnx(ctx.layer(), number) : ctx.type(1);
  ctx.set_type(0, type);
  require_type_of_first(ctx, {2});
  if (type != DataType::kUndefined && (physical_type(type) != DataType::kFloat32 || is_storage_only(type)))
    ctx.fail(fmt::format("expected an output of float32, float16 or bfloat16, got {}", name_of(type)));
  if (const DataType source = ctx.type(0);
      ctx.is_declared(0) && is_floating(source) && (!is_storage_only(source) || source == DataType::kFloat8E8M0))
    ctx.fail(fmt::format("expected integers or floats of 4 to 8 bits as input 0, got {}", name_of(source)));
  scale_layout(ctx, ctx.shape(0), ctx.shape(1));
  ctx.set_shape(0, ctx.shape(0));
}

void run_dequantize_linear(KernelContext& ctx) {
  const Tensor& x = ctx.input(0);
  const Tensor scales = ctx.input(1).cast(DataType::kFloat32);
  const ScaleLayout layout = scale_layout(ctx, x.shape(), scales.shape());
  require_count(ctx, 2, scales.size());
  const float* scale = scales.data<float>();
  float* out = ctx.output(0).data<float>();
  if (x.type() == DataType::kFloat32) {
    const std::vector<float> zero = float_zero_points(ctx, 2);
    const float* in = x.data<float>();
    return parallel_for(x.size(), 1 << 14, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        const std::int64_t k = layout.index(i);
        out[i] = (in[i] - zero[zero.size() == 1 ? 0 : static_cast<std::size_t>(k)]) * scale[k];
      }
    });
  }
  const auto zero = zero_points(ctx, 2);
  with_type(SourceTypes{}, ctx, x.type(), [&](auto tag) {
    using T = decltype(tag);
    const T* in = x.data<T>();
    parallel_for(x.size(), 1 << 14, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        const std::int64_t k = layout.index(i);
        const std::int64_t centered = std::int64_t{in[i]} - zero[zero.size() == 1 ? 0 : static_cast<std::size_t>(k)];
        out[i] = static_cast<float>(centered) * scale[k];
      }
    });
  });
}

}  // namespace

OpDef dequantize_linear() {
  // Never lowered: scales are fp32 on every target.
  return {.name = "DequantizeLinear",
          .since_version = 10,
          .inputs = {2, 3},
          .types = {set_of(SourceTypes{}) | TypeSet{DataType::kFloat32}, kFloats,
                    set_of(SourceTypes{}) | TypeSet{DataType::kFloat32}},
          .precision = PrecisionRule::kFixed,
          .function = Function::kDequantize,
          .weights = 0b110,
          .storage_types = StorageTypes::kTaken,
          .infer = infer_dequantize_linear,
          .run = run_dequantize_linear};
}

}  // namespace ulpscope::ops
