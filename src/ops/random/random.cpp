// Random tensors, and what drops elements. Every run gives the same numbers: networks are compared with each other, and
// a trial must differ by its precisions alone.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>

#include "graph/op.h"
#include "ops/adjoint_values.h"
#include "ops/elementwise.h"
#include "ops/movement.h"

namespace ulpscope::ops {
namespace {

/// MT19937 with the draws of NumPy's RandomState: RandomUniform with `seed` s gives what RandomState(s).uniform gives.
class RandomStream {
 public:
  explicit RandomStream(std::uint32_t seed) : engine_(seed) {}

  /// The next raw word.
  std::uint32_t word() { return static_cast<std::uint32_t>(engine_()); }
  /// In [0, 1), with 53 random bits.
  double uniform() {
    const std::uint32_t high = word() >> 5, low = word() >> 6;
    return (high * 67108864.0 + low) / 9007199254740992.0;
  }
  /// Standard normal, by Marsaglia's polar method; draws come in pairs.
  double normal() {
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

 private:
  std::mt19937 engine_;
  bool has_spare_ = false;
  double spare_ = 0;
};

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

/// The stream of a layer: by its attribute `seed` (an integral value is the seed itself, any other its float32 bits),
/// else by a hash of the layer's name, so that unseeded layers differ from each other but not from run to run.
RandomStream random_stream(const Layer& layer) { return RandomStream(seed_of(layer)); }

template <typename Draw>
void fill(KernelContext& ctx, Draw&& draw) {
  Tensor& out = ctx.output(0);
  with_type(FloatTypes{}, ctx, out.type(), [&]<typename T>(T) {
    T* at = out.data<T>();
    for (std::int64_t i = 0; i < out.size(); ++i) at[i] = static_cast<T>(draw());
  });
}

void require_float(InferContext& ctx, DataType type) {
  if (type != DataType::kUndefined && !is_floating(type)) ctx.fail("cannot draw elements of type {}", name_of(type));
  ctx.set_type(0, type);
}

/// Type from `dtype` (float32 when absent) and shape from `shape`.
void infer_random(InferContext& ctx) {
  require_float(ctx, dtype_attribute(ctx.layer(), DataType::kFloat32));
  ctx.set_shape(0, ctx.attributes().required_ints("shape"));
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
  with_type(AllTypes{}, ctx, out.type(), [&]<typename T>(T) {
    T* at = out.data<T>();
    for (std::size_t i = 0; i < drawn.size(); ++i) at[i] = drawn[i] ? T{1} : T{0};
  });
}

/// A row of the table.
OpDef random_row(OpDef op, Infer infer, Run run) {
  op.is_random = [](std::span<const Tensor* const>) { return true; };
  return fixed_op(op, infer, run);
}

void infer_dropout(InferContext& ctx) {
  ctx.set_type(1, ctx.opset() < 10 ? ctx.type(0) : DataType::kBool);
  ctx.set_shape(0, ctx.shape(0));
  ctx.set_shape(1, ctx.shape(0));
}

double single_number(const KernelContext& ctx, int input, double default_value) {
  if (!ctx.has_input(input)) return default_value;
  if (ctx.input(input).size() != 1) ctx.fail("expected one element as input {}", input);
  return ctx.input(input).cast(DataType::kFloat64).data<double>()[0];
}

void write_mask(KernelContext& ctx, const std::vector<char>& keep) {
  if (!ctx.has_output(1)) return;
  Tensor& mask = ctx.output(1);
  with_type(TypeList<bool, float, double>{}, ctx, mask.type(), [&]<typename T>(T) {
    T* out = mask.data<T>();
    for (std::int64_t i = 0; i < mask.size(); ++i)
      out[i] = static_cast<T>(keep.empty() || keep[static_cast<std::size_t>(i)] != 0);
  });
}

void run_dropout(KernelContext& ctx) {
  const double ratio = single_number(ctx, 1, 0.5);
  if (single_number(ctx, 2, 0) == 0 || ratio == 0) {
    run_copy(ctx);
    write_mask(ctx, {});
    return;
  }
  if (!(ratio > 0 && ratio < 1)) ctx.fail("expected a ratio in [0, 1), got {}", ratio);
  const Tensor& in = ctx.input(0);
  RandomStream stream(static_cast<std::uint32_t>(ctx.attributes().integer("seed", 0)));
  std::vector<char> keep(static_cast<std::size_t>(in.size()));
  for (char& k : keep) k = stream.uniform() >= ratio;
  write_mask(ctx, keep);
  with_type(FloatTypes{}, ctx, in.type(), [&]<typename T>(T) {
    const T* x = in.data<T>();
    T* y = ctx.output(0).data<T>();
    const T scale = static_cast<T>(1 / (1 - ratio));
    for (std::int64_t i = 0; i < in.size(); ++i) y[i] = keep[static_cast<std::size_t>(i)] != 0 ? x[i] * scale : T{0};
  });
}

void adjoint_dropout(AdjointContext& ctx) {
  if (ctx.has_input(2)) {
    const Tensor* training = ctx.input_value(2);
    if (training == nullptr || training->cast(DataType::kInt64).data<std::int64_t>()[0] != 0) return ctx.leave_out(0);
  }
  if (ctx.gradient(0) != kNone) view_adjoint(ctx);
}

/// Input 2 is training_mode.
bool is_training(std::span<const Tensor* const> inputs) {
  if (inputs.size() <= 2 || inputs[2] == nullptr) return false;
  return inputs[2]->type() != DataType::kBool || inputs[2]->size() != 1 || inputs[2]->data<bool>()[0];
}

void infer_multinomial(InferContext& ctx) {
  const DataType type = dtype_attribute(ctx.layer(), DataType::kInt32);
  if (type != DataType::kInt32 && type != DataType::kInt64)
    ctx.fail("expected dtype int32 or int64, got {}", name_of(type));
  ctx.set_type(0, type);
  const Shape& shape = ctx.shape(0);
  if (shape.size() != 2 || shape[1] == 0) ctx.fail("expected (batch, classes), got shape {}", to_string(shape));
  ctx.set_shape(0, {shape[0], ctx.attributes().integer("sample_size", 1)});
}

void run_multinomial(KernelContext& ctx) {
  RandomStream stream = random_stream(ctx.layer());
  const Tensor& in = ctx.input(0);
  Tensor& out = ctx.output(0);
  const std::int64_t batches = in.shape()[0], classes = in.shape()[1], samples = out.shape()[1];
  std::vector<double> sums(static_cast<std::size_t>(classes));
  const auto sample_row = [&](auto logits, auto draws) {
    double largest = -std::numeric_limits<double>::infinity(), sum = 0;
    for (std::int64_t c = 0; c < classes; ++c) largest = std::max(largest, static_cast<double>(logits[c]));
    for (std::int64_t c = 0; c < classes; ++c)
      sums[static_cast<std::size_t>(c)] = sum += std::exp(static_cast<double>(logits[c]) - largest);
    for (std::int64_t s = 0; s < samples; ++s) {
      const auto at = std::ranges::upper_bound(sums, stream.uniform() * sum) - sums.begin();
      draws[s] = static_cast<std::decay_t<decltype(*draws)>>(std::min<std::int64_t>(at, classes - 1));
    }
  };
  with_type(FloatTypes{}, ctx, in.type(), [&](auto in_tag) {
    with_type(TypeList<std::int32_t, std::int64_t>{}, ctx, out.type(), [&](auto out_tag) {
      for (std::int64_t b = 0; b < batches; ++b)
        sample_row(in.data<decltype(in_tag)>() + b * classes, out.data<decltype(out_tag)>() + b * samples);
    });
  });
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
      // Dropout, ai.onnx 1, 6, 7, 10 (ratio: attribute), 12, 13, 22 (inputs): the identity, unless training_mode is
      // set.
      movement_op({.name = "Dropout",
                   .inputs = {1, 3},
                   .outputs = {1, 2},
                   .types = {kFloats, kFloats, kBooleans},
                   .function = Function::kDropout,
                   .weights = 0b110,
                   .storage_types = StorageTypes::kRefused,
                   .parameters = 0b110,
                   .is_random = is_training},
                  infer_dropout, run_dropout, adjoint_dropout),
      // Multinomial, ai.onnx 7, 22: draws class indices from rows of unnormalized log-probabilities.
      random_row({.name = "Multinomial", .since_version = 7, .types = {kFloats}}, infer_multinomial, run_multinomial),
  };
}

}  // namespace ulpscope::ops
