#include "ops/random/random.h"

#include <bit>
#include <cmath>

#include "ops/common.h"
#include "ops/onnx_types.h"

namespace ulpscope::ops {
namespace {

std::uint32_t seed_of(const Layer& layer) {
  if (layer.attributes.has("seed")) {
    const float seed = layer.attributes.real("seed", 0);
    if (seed >= 0 && seed < 0x1p32f && seed == std::floor(seed)) return static_cast<std::uint32_t>(seed);
    return std::bit_cast<std::uint32_t>(seed);
  }
  std::uint32_t hash = 2166136261u;  // FNV-1a
  for (const char c : layer.name) hash = (hash ^ static_cast<unsigned char>(c)) * 16777619u;
  return hash;
}

template <typename Draw>
void fill(KernelContext& ctx, Draw&& draw) {
  Tensor& out = ctx.output(0);
  with_type(FloatTypes{}, ctx, out.type(), [&](auto tag) {
    using T = decltype(tag);
    T* at = out.data<T>();
    for (std::int64_t i = 0; i < out.size(); ++i) at[i] = static_cast<T>(draw());
  });
}

void require_float(InferContext& ctx, DataType type) {
  if (type != DataType::kUndefined && !is_floating(type))
    ctx.fail(fmt::format("cannot draw elements of type {}", name_of(type)));
  ctx.set_type(0, type);
}

}  // namespace

double RandomStream::normal() {
  if (has_spare_) {
    has_spare_ = false;
    return spare_;
  }
  double x, y, r2;
  do {
    x = 2.0 * uniform() - 1.0;
    y = 2.0 * uniform() - 1.0;
    r2 = x * x + y * y;
  } while (r2 >= 1.0 || r2 == 0.0);
  const double factor = std::sqrt(-2.0 * std::log(r2) / r2);
  spare_ = factor * x;
  has_spare_ = true;
  return factor * y;
}

RandomStream random_stream(const Layer& layer) { return RandomStream(seed_of(layer)); }

namespace {

/// Type from `dtype` (float32 when absent) and shape from `shape`.
void infer_random(InferContext& ctx) {
  require_float(ctx, dtype_attribute(ctx.layer(), DataType::kFloat32));
  ctx.set_shape(0, ctx.attributes().required_integers("shape"));
}

/// Type from `dtype` (that of the input when absent) and shape of the input.
void infer_random_like(InferContext& ctx) {
  require_float(ctx, dtype_attribute(ctx.layer(), ctx.type(0)));
  ctx.set_shape(0, ctx.shape(0));
}

void run_random_normal(KernelContext& ctx) {
  RandomStream stream = random_stream(ctx.layer());
  const double mean = ctx.attributes().real("mean", 0.0f), scale = ctx.attributes().real("scale", 1.0f);
  fill(ctx, [&] { return mean + scale * stream.normal(); });
}

void run_random_uniform(KernelContext& ctx) {
  RandomStream stream = random_stream(ctx.layer());
  const double low = ctx.attributes().real("low", 0.0f), high = ctx.attributes().real("high", 1.0f);
  fill(ctx, [&] { return low + (high - low) * stream.uniform(); });
}

void infer_bernoulli(InferContext& ctx) {
  ctx.set_type(0, dtype_attribute(ctx.layer(), ctx.type(0)));
  ctx.set_shape(0, ctx.shape(0));
}

void run_bernoulli(KernelContext& ctx) {
  RandomStream stream = random_stream(ctx.layer());
  const Tensor& in = ctx.input(0);
  Tensor& out = ctx.output(0);
  std::vector<bool> drawn(static_cast<std::size_t>(in.size()));
  with_type(FloatTypes{}, ctx, in.type(), [&](auto tag) {
    const auto* p = in.data<decltype(tag)>();
    for (std::size_t i = 0; i < drawn.size(); ++i) drawn[i] = stream.uniform() < static_cast<double>(p[i]);
  });
  with_type(AllTypes{}, ctx, out.type(), [&](auto tag) {
    using T = decltype(tag);
    T* at = out.data<T>();
    for (std::size_t i = 0; i < drawn.size(); ++i) at[i] = drawn[i] ? T{1} : T{0};
  });
}

/// A row of the table.
OpDef random_row(OpDef op, void (*infer)(InferContext&), void (*run)(KernelContext&)) {
  op.precision = PrecisionRule::kFixed;
  op.infer = infer;
  op.run = run;
  op.is_random = [](std::span<const Tensor* const>) { return true; };
  return op;
}

}  // namespace

OpTable random() {
  return {
      // RandomNormal, ai.onnx 1, 22: normally distributed elements.
      random_row({.name = "RandomNormal", .inputs = {0, 0}}, infer_random, run_random_normal),
      // RandomNormalLike, ai.onnx 1, 22: normally distributed elements in the shape of the input.
      random_row({.name = "RandomNormalLike"}, infer_random_like, run_random_normal),
      // RandomUniform, ai.onnx 1, 22: uniformly distributed elements.
      random_row({.name = "RandomUniform", .inputs = {0, 0}}, infer_random, run_random_uniform),
      // RandomUniformLike, ai.onnx 1, 22: uniformly distributed elements in the shape of the input.
      random_row({.name = "RandomUniformLike"}, infer_random_like, run_random_uniform),
      // Bernoulli, ai.onnx 15, 22: 1 with the probability that the input gives, else 0.
      random_row({.name = "Bernoulli", .since_version = 15, .types = {kFloats}}, infer_bernoulli, run_bernoulli),
  };
}

}  // namespace ulpscope::ops
