// TensorRT's own operators for blocks that share a scale: NVFP4 and MXFP8.
#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "core/messages.h"
#include "core/parallel.h"
#include "formats/rounding.h"
#include "graph/scale_choice.h"
#include "ops/quantization/quantization.h"

namespace ulpscope::ops {
namespace {

constexpr std::int64_t kFp4Block = 16, kMxBlock = 32;
/// TensorProto.FLOAT8E4M3FN.
constexpr std::int64_t kE4M3InOnnx = 17;
constexpr float kLargestE2M1 = 6, kLargestE4M3 = 448;
/// Codes of E8M0: 2^(code - 127).
constexpr int kE8M0Bias = 127, kE8M0Largest = 254, kE8M0NaN = 255;

/// The elements that share one scale: `size` of them along an axis, for each place before and behind it.
struct Blocks {
  std::int64_t outer = 1, groups = 1, inner = 1, size = 1;

  std::int64_t count() const { return outer * groups * inner; }
  /// The first element of block `b`, in the order of the scales; the others follow in steps of `inner`.
  std::int64_t first(std::int64_t b) const { return (b / inner * size) * inner + b % inner; }
};

/// Works with both contexts; fails where the axis has no whole blocks.
template <typename Context>
Blocks blocks_of(const Context& ctx, const Shape& x, std::int64_t axis, std::int64_t size) {
  const Around a = around(x, static_cast<std::size_t>(axis));
  if (size <= 0 || a.size % size != 0)
    ctx.fail("expected a multiple of {} elements along axis {}, got an input of shape {}; try another axis", size, axis,
             to_string(x));
  return {.outer = a.outer, .groups = a.size / size, .inner = a.inner, .size = size};
}

Shape shape_of_scales(Shape x, std::int64_t axis, std::int64_t size) {
  x[static_cast<std::size_t>(axis)] /= size;
  return x;
}

template <typename Context>
std::int64_t axis_of(const Context& ctx, const Shape& x, std::int64_t absent) {
  return normalize_axis(ctx, ctx.attributes().integer("axis", absent), static_cast<std::int64_t>(x.size()));
}

void warn(const InferContext& ctx, const std::string& text) {
  log_once(LogLevel::kWarning, "layer '{}' ({}): {}", ctx.layer().name, ctx.layer().op->name, text);
}

/// Attributes that TensorRT's parser does not read.
void warn_of_ignored(const InferContext& ctx, std::initializer_list<std::string_view> known) {
  for (const auto& [name, value] : ctx.attributes().all())
    if (std::ranges::find(known, name) == known.end())
      warn(ctx, fmt::format("TensorRT's parser ignores the attribute {}", name));
}

/// A block size that TensorRT has no other for; 0 means that there is none, as in the parser.
void require_block(const InferContext& ctx, std::int64_t only) {
  const std::int64_t given = ctx.attributes().integer("block_size", only);
  if (given != only && given != 0)
    ctx.fail("expected a block_size of {}, the only one that TensorRT takes, got {}", only, given);
}

/// Input `i` is a float of 16 or 32 bits, or of a type not known yet.
void require_wide_float(const InferContext& ctx, int i) {
  const DataType type = ctx.type(i);
  if (type != DataType::kUndefined && (physical_type(type) != DataType::kFloat32 || is_storage_only(type)))
    ctx.fail("expected float32, float16 or bfloat16 as input {}, got {}", i, name_of(type));
}

/// What multiplies the scales of all blocks of a tensor. Works with both contexts.
template <typename Context>
float global_scale(const Context& ctx, const Tensor& scale) {
  if (scale.size() != 1)
    ctx.fail("expected one element as input 1, the scale of the whole tensor, got a shape of {}",
             to_string(scale.shape()));
  const float value = scale.cast(DataType::kFloat32).data<float>()[0];
  if (!(value > 0) || !std::isfinite(value))
    ctx.fail("expected a finite scale above 0 as input 1, got {}; try the largest magnitude of input 0 / 2688", value);
  return value;
}

/// The largest magnitude of a block; NaN where there is one.
float largest_of(const float* x, const Blocks& blocks) {
  float largest = 0;
  for (std::int64_t i = 0; i < blocks.size; ++i) {
    const float magnitude = std::abs(x[i * blocks.inner]);
    if (magnitude > largest || magnitude != magnitude) largest = magnitude;
    if (largest != largest) break;
  }
  return largest;
}

/// function(index of the scale, index of the first element) for every block, on several threads.
template <typename Function>
void for_each_block(const Blocks& blocks, Function&& function) {
  parallel_each(blocks.count(), std::max<std::int64_t>(1, (1 << 13) / blocks.size),
                [&](std::int64_t b) { function(b, blocks.first(b)); });
}

/// As in CUDA, NaN becomes the largest E2M1, which has none.
float to_e2m1(float value) {
  if (value != value) return kLargestE2M1;
  return round_value(value, rounding_to(Format::kFloat4E2M1, /*saturate=*/true));
}

void infer_fp4_dynamic_quantize(InferContext& ctx) {
  ctx.set_type(0, DataType::kFloat4E2M1);
  ctx.set_type(1, DataType::kFloat8E4M3);
  require_wide_float(ctx, 0);
  require_wide_float(ctx, 1);
  require_block(ctx, kFp4Block);
  if (const std::int64_t type = ctx.attributes().integer("scale_type", 0); type != kE4M3InOnnx && type != 0)
    ctx.fail("expected a scale_type of 17 (FLOAT8E4M3FN), the only one that TensorRT takes, got {}", type);
  constexpr std::pair<const char*, const char*> kTaken[] = {{"block_size", "16"}, {"scale_type", "FLOAT8E4M3FN"}};
  for (const auto& [name, taken] : kTaken)
    if (ctx.attributes().integer(name, 0) == 0) warn(ctx, fmt::format("has no {}; TensorRT takes {}", name, taken));
  warn_of_ignored(ctx, {"axis", "block_size", "scale_type"});
  const Shape& x = ctx.shape(0);
  const std::int64_t axis = axis_of(ctx, x, 1);
  blocks_of(ctx, x, axis, kFp4Block);
  ctx.set_shape(0, x);
  ctx.set_shape(1, shape_of_scales(x, axis, kFp4Block));
  global_scale(ctx, ctx.value(1));
}

/// Per block: scale = E4M3(largest / (6 global)), 1 for zeros; elements are E2M1(x / (scale * global)). All in float32.
void run_fp4_dynamic_quantize(KernelContext& ctx) {
  const Tensor& x = ctx.input(0);
  const Blocks blocks = blocks_of(ctx, x.shape(), axis_of(ctx, x.shape(), 1), kFp4Block);
  const float global = global_scale(ctx, ctx.input(1));
  const float divisor = kLargestE2M1 * global;
  const float* in = x.data<float>();
  float* out = ctx.has_output(0) ? ctx.output(0).data<float>() : nullptr;
  float* scales = ctx.has_output(1) ? ctx.output(1).data<float>() : nullptr;
  for_each_block(blocks, [&](std::int64_t b, std::int64_t at) {
    const float largest = largest_of(in + at, blocks);
    const float scale = largest == 0 ? 1.0f
                                     : round_value(std::min(largest / divisor, kLargestE4M3),
                                                   rounding_to(Format::kFloat8E4M3, /*saturate=*/true));
    if (scales != nullptr) scales[b] = scale;
    if (out == nullptr) return;
    const float by = scale * global;
    for (std::int64_t i = at; i < at + blocks.size * blocks.inner; i += blocks.inner)
      out[i] = by == 0 ? 0.0f : to_e2m1(in[i] / by);
  });
}

/// The code of the smallest power of two with which this magnitude is at most 448: by the bits of the float32 quotient.
int e8m0_code(float largest) {
  const float ratio = largest / kLargestE4M3;
  if (ratio != ratio) return kE8M0NaN;
  if (std::isinf(ratio)) return kE8M0Largest;
  if (ratio == 0) return 0;
  int exponent = 0;
  if (std::frexp(ratio, &exponent) == 0.5f) --exponent;
  return std::clamp(exponent + kE8M0Bias, 0, kE8M0Largest);
}

/// The same rounded down: the exponent of the largest value less that of 448. Some may saturate.
int e8m0_code_below(float largest) {
  if (!(largest > 0) || std::isinf(largest)) return e8m0_code(largest);
  return std::clamp(std::ilogb(largest) - std::ilogb(kLargestE4M3) + kE8M0Bias, 0, kE8M0Largest);
}

double e8m0_value(int code) {
  return code == kE8M0NaN ? std::numeric_limits<double>::quiet_NaN() : std::ldexp(1.0, code - kE8M0Bias);
}

void infer_mxfp8_dynamic_quantize(InferContext& ctx) {
  ctx.set_type(0, DataType::kFloat8E4M3);
  ctx.set_type(1, DataType::kUInt8);
  require_wide_float(ctx, 0);
  require_block(ctx, kMxBlock);
  if (const std::int64_t type = ctx.attributes().integer("output_dtype", kE4M3InOnnx); type != kE4M3InOnnx)
    warn(ctx, fmt::format("TensorRT's parser ignores output_dtype ({}); the output is 17 (FLOAT8E4M3FN)", type));
  warn_of_ignored(ctx, {"axis", "block_size", "output_dtype", kRoundsScalesDown});
  const Shape& x = ctx.shape(0);
  const std::int64_t axis = axis_of(ctx, x, -1);
  blocks_of(ctx, x, axis, kMxBlock);
  ctx.set_shape(0, x);
  ctx.set_shape(1, shape_of_scales(x, axis, kMxBlock));
}

/// Per block: scale = 2^e with the smallest e for which nothing saturates, or as MxScaleRule has it; elements are
/// E4M3(x / 2^e).
void run_mxfp8_dynamic_quantize(KernelContext& ctx) {
  const Tensor& x = ctx.input(0);
  const Blocks blocks = blocks_of(ctx, x.shape(), axis_of(ctx, x.shape(), -1), kMxBlock);
  const float* in = x.data<float>();
  float* out = ctx.has_output(0) ? ctx.output(0).data<float>() : nullptr;
  std::uint8_t* scales = ctx.has_output(1) ? ctx.output(1).data<std::uint8_t>() : nullptr;
  const bool down = ctx.attributes().integer(kRoundsScalesDown, 0) != 0;
  for_each_block(blocks, [&](std::int64_t b, std::int64_t at) {
    const float largest = largest_of(in + at, blocks);
    const int code = down ? e8m0_code_below(largest) : e8m0_code(largest);
    if (scales != nullptr) scales[b] = static_cast<std::uint8_t>(code);
    if (out == nullptr) return;
    const double by = 1 / e8m0_value(code);
    // What float32 does not hold of the quotient is far below the smallest E4M3.
    for (std::int64_t i = at; i < at + blocks.size * blocks.inner; i += blocks.inner)
      out[i] = round_value(static_cast<float>(in[i] * by), rounding_to(Format::kFloat8E4M3, /*saturate=*/true));
  });
}

/// What shares a scale follows from the shapes, as in TensorRT's parser. Works with both contexts.
template <typename Context>
Blocks scaled_blocks(const Context& ctx, const Shape& x, const Shape& scales) {
  const std::int64_t axis = axis_of(ctx, x, 1);
  const auto at = static_cast<std::size_t>(axis);
  std::int64_t size = ctx.attributes().integer("block_size", 0);
  if (size <= 0) size = scales.size() == x.size() && scales[at] > 0 ? x[at] / scales[at] : kMxBlock;
  if (size <= 0 || x[at] % size != 0 || scales != shape_of_scales(x, axis, size))
    ctx.fail("scales of shape {} do not fit an input of shape {} (axis {}, block_size {})", to_string(scales),
             to_string(x), axis, size);
  return blocks_of(ctx, x, axis, size);
}

void infer_mxfp8_dequantize_linear(InferContext& ctx) {
  const std::int64_t number = ctx.attributes().integer("output_dtype", 0);
  const DataType type = number == 0 ? DataType::kFloat32 : data_type_from_onnx(ctx.layer(), number);
  ctx.set_type(0, type);
  if (type == DataType::kUndefined || physical_type(type) != DataType::kFloat32 || is_storage_only(type))
    ctx.fail("expected float32, float16 or bfloat16 as output_dtype, got {}", name_of(type));
  if (ctx.attributes().has("precision")) ctx.fail("TensorRT takes no attribute precision here; try output_dtype");
  if (const DataType codes = ctx.type(0);
      ctx.is_declared(0) && codes != DataType::kFloat8E4M3 && codes != DataType::kUndefined)
    ctx.fail("expected float8e4m3fn as input 0, got {}", name_of(codes));
  warn_of_ignored(ctx, {"axis", "block_size", "output_dtype"});
  scaled_blocks(ctx, ctx.shape(0), ctx.shape(1));
  ctx.set_shape(0, ctx.shape(0));
}

void run_mxfp8_dequantize_linear(KernelContext& ctx) {
  const Tensor& x = ctx.input(0);
  const Blocks blocks = scaled_blocks(ctx, x.shape(), ctx.input(1).shape());
  const float* in = x.data<float>();
  const std::uint8_t* codes = ctx.input(1).data<std::uint8_t>();
  float* out = ctx.output(0).data<float>();
  for_each_block(blocks, [&](std::int64_t b, std::int64_t at) {
    const double scale = e8m0_value(codes[b]);
    for (std::int64_t i = at; i < at + blocks.size * blocks.inner; i += blocks.inner)
      out[i] = static_cast<float>(in[i] * scale);
  });
}

/// A row of the table.
OpDef block_op(OpDef op, Infer infer, Run run) {
  op.domain = "trt";
  op.storage_types = StorageTypes::kTaken;
  return fixed_op(op, infer, run);
}

}  // namespace

OpTable block_quantize() {
  constexpr TypeSet kFloat{DataType::kFloat32};
  return {
      // TRT_FP4DynamicQuantize, trt 1: to E2M1 with an E4M3 scale per block of 16 and one scale of the whole tensor.
      block_op({.name = "TRT_FP4DynamicQuantize",
                .inputs = {2, 2},
                .outputs = {2, 2},
                .types = {kFloat},
                .weights = 0b10,
                .yields_quantized = true},
               infer_fp4_dynamic_quantize, run_fp4_dynamic_quantize),
      // TRT_MXFP8DynamicQuantize, trt 1: to E4M3 with a power of two per block of 32, as its E8M0 code.
      block_op({.name = "TRT_MXFP8DynamicQuantize", .outputs = {2, 2}, .types = {kFloat}, .yields_quantized = true},
               infer_mxfp8_dynamic_quantize, run_mxfp8_dynamic_quantize),
      // TRT_MXFP8DequantizeLinear, trt 1: E4M3 times the power of two of its block.
      block_op({.name = "TRT_MXFP8DequantizeLinear",
                .inputs = {2, 2},
                .types = {kFloat, TypeSet{DataType::kUInt8}},
                .function = Function::kDequantize,
                .weights = 0b10},
               infer_mxfp8_dequantize_linear, run_mxfp8_dequantize_linear),
  };
}

}  // namespace ulpscope::ops
