// Dropout, ai.onnx 1, 6, 7, 10 (ratio: attribute), 12, 13, 22 (inputs): the identity, unless training_mode is set.
#include <random>

#include "ops/adjoint_values.h"
#include "ops/elementwise.h"
#include "ops/movement.h"

namespace ulpscope::ops {
namespace {

void infer_dropout(InferContext& ctx) {
  ctx.set_type(0, ctx.type(0));
  ctx.set_type(1, ctx.opset() < 10 ? ctx.type(0) : DataType::kBool);
  ctx.set_shape(0, ctx.shape(0));
  ctx.set_shape(1, ctx.shape(0));
}

double single_number(const KernelContext& ctx, int input, double default_value) {
  if (!ctx.has_input(input)) return default_value;
  if (ctx.input(input).size() != 1) ctx.fail(fmt::format("expected one element as input {}", input));
  return ctx.input(input).cast(DataType::kFloat64).data<double>()[0];
}

/// True for the elements that stay. Uniform numbers as NumPy's RandomState(seed) draws them, which is what ONNX's
/// reference does.
std::vector<char> draw(std::int64_t count, double ratio, std::uint32_t seed) {
  std::mt19937 generator(seed);
  std::vector<char> keep(static_cast<std::size_t>(count));
  for (char& k : keep) {
    const double high = static_cast<double>(generator() >> 5), low = static_cast<double>(generator() >> 6);
    k = (high * 67108864.0 + low) / 9007199254740992.0 >= ratio;
  }
  return keep;
}

void write_mask(KernelContext& ctx, const std::vector<char>& keep) {
  if (!ctx.has_output(1)) return;
  Tensor& mask = ctx.output(1);
  with_type(TypeList<bool, float, double>{}, ctx, mask.type(), [&](auto tag) {
    using T = decltype(tag);
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
  if (!(ratio > 0 && ratio < 1)) ctx.fail(fmt::format("expected a ratio in [0, 1), got {}", ratio));
  const Tensor& in = ctx.input(0);
  const std::vector<char> keep =
      draw(in.size(), ratio, static_cast<std::uint32_t>(ctx.attributes().integer("seed", 0)));
  write_mask(ctx, keep);
  with_type(FloatTypes{}, ctx, in.type(), [&](auto tag) {
    using T = decltype(tag);
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

}  // namespace

OpDef dropout() {
  return {.name = "Dropout",
          .inputs = {1, 3},
          .outputs = {1, 2},
          .types = {kFloats, kFloats, kBooleans},
          .precision = PrecisionRule::kMovement,
          .kind = OpKind::kMovement,
          .function = Function::kDropout,
          .weights = 0b110,
          .storage_types = StorageTypes::kRefused,
          .parameters = 0b110,
          .infer = infer_dropout,
          .run = run_dropout,
          .adjoint = adjoint_dropout,
          .is_random = is_training};
}

}  // namespace ulpscope::ops
